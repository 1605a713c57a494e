import { isIP } from 'node:net'
import path from 'node:path'
import { cleanEnv, host, makeValidator, str } from 'envalid'
import pg from 'pg'

/** Everything that can be set, from the environment alone. README.md has the table for operators. */
export interface Config {
  host: string
  port: number
  /** The operator's own PostgreSQL; without it the embedded one under dataDir is used. */
  databaseUrl: string | undefined
  /** Absolute. */
  dataDir: string
  logLevel: (typeof LOG_LEVELS)[number]
  /** `''` or a path without trailing slash. */
  basePath: string
  /** Origins that browsers may call from; none switches CORS off, `*` stands for all. */
  corsOrigins: string[]
  /** Requests a key may make a minute; none switches the limit off. */
  rateLimitPerMinute: number | undefined
  /** As Fastify takes it: whether, or which proxies, to believe about the caller's address. */
  trustProxy: boolean | string
}

const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const
const DEFAULT_DATA_DIR = path.join(import.meta.dirname, '..', '.data')

/** Whether the driver can read the text; it takes forms that no URL has, such as a socket without a host. */
function isConnectionString(text: string): boolean {
  if (!/^postgres(ql)?:\/\//.test(text)) return false
  try {
    new pg.Client(text)
    return true
  } catch {
    return false
  }
}

const postgresUrl = makeValidator((text) => {
  if (isConnectionString(text)) return text
  throw new Error('must be a PostgreSQL connection string such as postgres://user:password@host:5432/flowtrail')
})

const basePath = makeValidator((text) => {
  if (text === '' || text === '/') return ''
  if (/^(\/(?!\.{1,2}(\/|$))[A-Za-z0-9._~-]+)+$/.test(text)) return text
  throw new Error('must be a path such as /flowtrail, without a slash at the end')
})

const origins = makeValidator((text) => {
  const list = text.split(',').map((origin) => origin.trim())
  const isOrigin = (origin: string) => origin === '*' || (URL.canParse(origin) && new URL(origin).origin === origin)
  if (list.every(isOrigin)) return list
  throw new Error('must be * or origins separated by commas, such as https://app.example.com,http://localhost:5173')
})

const numberUpTo = (most: number) =>
  makeValidator((text) => {
    if (/^[1-9]\d{0,8}$/.test(text) && Number(text) <= most) return Number(text)
    throw new Error(`must be a whole number from 1 to ${most}`)
  })

/** Whether the text is an address or, with a prefix length, a network. */
function isNetwork(text: string): boolean {
  const [address = '', prefix = '1', ...more] = text.trim().split('/')
  const bits = { 0: 0, 4: 32, 6: 128 }[isIP(address)] ?? 0
  return more.length === 0 && /^[1-9]\d{0,2}$/.test(prefix) && Number(prefix) <= bits
}

const trustProxy = makeValidator((text) => {
  if (text === 'true' || text === 'false') return text === 'true'
  if (text.split(',').every(isNetwork)) return text
  throw new Error('must be true, false, or addresses or networks separated by commas, such as 10.0.0.0/8')
})

/**
 * Reads the settings. One that is empty counts as absent, since many tools cannot leave a variable out.
 * @throws Error with one line for everything that is wrong
 */
export function readConfig(environment: Record<string, string | undefined> = process.env): Config {
  const settings = cleanEnv(
    Object.fromEntries(Object.entries(environment).filter(([, value]) => value !== '')),
    {
      HOST: host({ default: '127.0.0.1' }),
      PORT: numberUpTo(65_535)({ default: 3000 }),
      DATABASE_URL: postgresUrl({ default: undefined }),
      DATA_DIR: str({ default: DEFAULT_DATA_DIR }),
      LOG_LEVEL: str({ choices: LOG_LEVELS, default: 'info' }),
      BASE_PATH: basePath({ default: '' }),
      CORS_ORIGINS: origins({ default: undefined }),
      RATE_LIMIT_PER_MINUTE: numberUpTo(999_999_999)({ default: undefined }),
      TRUST_PROXY: trustProxy({ default: false }),
    },
    {
      reporter: ({ errors }) => {
        const problems = Object.entries(errors).map(([name, error]) => `${name}: ${error?.message}`)
        if (problems.length > 0) throw new Error(`The settings are not right: ${problems.join('; ')}`)
      },
    },
  )
  return {
    host: settings.HOST,
    port: settings.PORT,
    databaseUrl: settings.DATABASE_URL,
    dataDir: path.resolve(settings.DATA_DIR),
    logLevel: settings.LOG_LEVEL,
    basePath: settings.BASE_PATH,
    corsOrigins: settings.CORS_ORIGINS ?? [],
    rateLimitPerMinute: settings.RATE_LIMIT_PER_MINUTE,
    trustProxy: settings.TRUST_PROXY,
  }
}
