import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import path from 'node:path'
import { cleanEnv, customCleanEnv, host, makeValidator, str, type ValidatorSpec } from 'envalid'
import pg from 'pg'
import { isCheckout } from './release.ts'

/** All settings. They come from environment variables only; README.md lists those for operators. */
export interface Config {
  /** The operator's own PostgreSQL; when undefined, the embedded one in `dataDir` is used. */
  databaseUrl: string | undefined
  /** Standby servers of it, which reads are sent to. */
  databaseReplicaUrls: string[]
  /** Absolute path; holds the embedded PostgreSQL and the demo keys. */
  dataDir: string
  logLevel: (typeof LOG_LEVELS)[number]
  server: {
    /** How many processes serve; with more than one, another supervises them. */
    workers: number
    host: string
    /** 0 for any that is free. */
    port: number
    /** Where the probes and metrics are served instead, if set. */
    admin: { host: string; port: number } | undefined
    /** How long a stopping server says so, and still serves, before it drains. */
    drainDelay_ms: number
    /** How long a stopping server waits for requests in progress before it closes their connections. */
    drainTimeout_ms: number
  }
  http: {
    /** `''` or a path without trailing slash. */
    basePath: string
    /** The URL of the API for its readers, with the base path and without trailing slash; undefined for the one they use. */
    publicUrl: string | undefined
    /** Origins that browsers may call from; empty disables CORS, `*` allows any. */
    corsOrigins: string[]
    /** Requests per minute and API key; undefined disables the limit. */
    rateLimitPerMinute: number | undefined
    /** As in Fastify: whether, or from which proxies, to trust X-Forwarded-For. */
    trustProxy: boolean | string
    /** The most connections of clients at once; further ones are closed. */
    maxConnections: number
    /** How many requests may wait for events at once; half of them in one project. */
    maxFollowers: number
    /** How long a request may take before its line in the log is a warning. */
    slowRequest_ms: number
    /** The largest body of an import, in bytes. */
    maxImport_bytes: number
  }
  /** The server's database connections. */
  connections: {
    read: number
    write: number
    /** How many imports may run at once over HTTP, each on a connection of its own; half of them in one project. */
    import: number
    /** After this long PostgreSQL cancels a statement of a request. */
    statementTimeout_ms: number
  }
  recorder: RecorderOptions
  /** After so many days the Idempotency-Keys of events are forgotten; undefined when they are kept as long as the events. */
  idempotencyRetention_days: number | undefined
  /** How traces are exported; undefined when they are not. */
  tracing: TracingOptions | undefined
}

/** What the variables of OpenTelemetry say of traces (docs/operations.md#traces). */
export interface TracingOptions {
  /** Without those of the TLS files, which the exporter reads itself. */
  exporter: {
    protocol: (typeof OTLP_PROTOCOLS)[number]
    url: string
    headers: Record<string, string>
    timeout_ms: number
    compression: (typeof OTLP_COMPRESSIONS)[number]
  }
  sampler: (typeof SAMPLERS)[number]
  /** The part of all traces that a sampler by ratio takes. */
  samplerRatio: number
  /** How spans are collected until they are exported. */
  collector: { delay_ms: number; timeout_ms: number; maxQueuedSpans: number; maxExportedSpans: number }
  /** What is said of the service, besides what it says itself. */
  resource: Record<string, string>
}

/** Limits of the recorder (src/recording/recorder.ts). */
export interface RecorderOptions {
  /**
   * How many events of all projects may wait or be recorded before more are refused. One project may have half of them, so
   * that a locked one leaves room for the others.
   */
  maxQueuedEvents: number
  /** How long an event may wait until a batch records it, in milliseconds. */
  maxQueueWait_ms: number
  /** How long a single-project batch waits for the project's lock before it makes room for other projects, in milliseconds. */
  lockTimeout_ms: number
  /** The most events of one transaction. */
  maxBatchSize: number
}

export const RECORDER_DEFAULTS: RecorderOptions = {
  // A few seconds' load when the database is well. Half of them are any one project's: ten batches of a thousand.
  maxQueuedEvents: 20_000,
  // About as long as HTTP clients wait; past it nobody is likely to read the response.
  maxQueueWait_ms: 10_000,
  // Many times another recorder's transaction; only an import or a stalled process holds the lock for longer.
  lockTimeout_ms: 500,
  // As many as a request has at the most.
  maxBatchSize: 1_000,
}

const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const
const OTLP_PROTOCOLS = ['http/protobuf', 'http/json'] as const
const OTLP_COMPRESSIONS = ['none', 'gzip'] as const
const SAMPLERS = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const
/** Less than a stopping server has for cleaning up (src/server/process.ts), so that the last spans are exported, or given up, by then. */
const MAX_EXPORT_ms = 20_000
/** In the checkout, wherever a command is run; of an installed package, which updates replace, in the working directory. */
const DEFAULT_DATA_DIR = isCheckout ? path.join(import.meta.dirname, '..', '.data') : '.data'

/**
 * pg 8 takes these modes for verify-full, says so on standard error, and will take them for weaker ones. Whoever wants the
 * weaker ones, as libpq knows them, says uselibpqcompat=true.
 */
const OLD_SSL_MODE = /([?&]sslmode=)(prefer|require|verify-ca)(?=&|$)/

function parsePostgresUrl(text: string): string {
  const form = 'must be a PostgreSQL connection string such as postgres://user:password@host:5432/flowtrail'
  // The driver alone also accepts other forms, such as a socket path.
  if (!/^postgres(ql)?:\/\//.test(text)) throw new Error(form)
  const url = /[?&]uselibpqcompat=true/.test(text) ? text : text.replace(OLD_SSL_MODE, '$1verify-full')
  if (/[?&]pgbouncer=(?!true(&|$))/.test(url)) throw new Error('its parameter pgbouncer must be true or omitted')
  try {
    new pg.Client(url)
    return url
  } catch (error) {
    // A file of sslrootcert, sslcert or sslkey.
    const { code, message } = error as NodeJS.ErrnoException
    throw new Error(
      code === 'ENOENT' || code === 'EACCES'
        ? message
        : `${form}, its reserved characters percent-encoded: / as %2F, # as %23`,
    )
  }
}

/** Where a database is, without user and password. */
export function nameOfDatabase(url: string): string {
  const { host, port, database } = new pg.Client(url)
  return `${host}:${port}/${database}`
}

const postgresUrl = makeValidator(parsePostgresUrl)

const postgresUrls = makeValidator((text) => {
  const urls = text.split(',').map((url) => parsePostgresUrl(url.trim()))
  if (new Set(urls.map(nameOfDatabase)).size < urls.length) throw new Error('names a server twice')
  return urls
})

const basePath = makeValidator((text) => {
  if (text === '' || text === '/') return ''
  if (/^(\/(?!\.{1,2}(\/|$))[A-Za-z0-9._~-]+)+$/.test(text)) return text
  throw new Error('must be a path such as /flowtrail, without a trailing slash')
})

const publicUrl = makeValidator((text) => {
  const url = URL.canParse(text) ? new URL(text) : undefined
  const isPlain = url && /^https?:$/.test(url.protocol) && !/[?#@]/.test(text)
  if (isPlain) return url.href.replace(/\/+$/, '')
  throw new Error('must be an http or https URL without query, such as https://flows.example.com')
})

const origins = makeValidator((text) => {
  const list = text.split(',').map((origin) => origin.trim())
  const isOrigin = (origin: string) => origin === '*' || (URL.canParse(origin) && new URL(origin).origin === origin)
  if (list.every(isOrigin)) return list
  throw new Error('must be * or comma-separated origins, such as https://app.example.com,http://localhost:5173')
})

const integer = (min: number, max: number) =>
  makeValidator((text) => {
    if (/^(0|[1-9]\d{0,8})$/.test(text) && Number(text) >= min && Number(text) <= max) return Number(text)
    throw new Error(`must be an integer from ${min} to ${max}`)
  })

/** Whether the text is an IP address or a network in CIDR notation. */
function isNetwork(text: string): boolean {
  const [address = '', prefix = '1', ...more] = text.trim().split('/')
  const bits = { 0: 0, 4: 32, 6: 128 }[isIP(address)] ?? 0
  return more.length === 0 && /^[1-9]\d{0,2}$/.test(prefix) && Number(prefix) <= bits
}

const trustProxy = makeValidator((text) => {
  if (text === 'true' || text === 'false') return text === 'true'
  if (text.split(',').every(isNetwork)) return text
  throw new Error('must be true, false, or comma-separated addresses or networks, such as 10.0.0.0/8')
})

const ratio = makeValidator((text) => {
  if (/^(0|1|[01]?\.\d+)$/.test(text) && Number(text) <= 1) return Number(text)
  throw new Error('must be a number from 0 to 1')
})

const endpoint = makeValidator((text) => {
  if (URL.canParse(text) && /^https?:$/.test(new URL(text).protocol)) return text
  throw new Error('must be an http or https URL, such as http://localhost:4318')
})

const pairs = makeValidator((text) => {
  try {
    return Object.fromEntries(text.split(',').map(readPair))
  } catch {
    // Without the text, which may hold a password.
    throw new Error('must be key=value pairs, comma-separated and percent-encoded')
  }
})

function readPair(text: string): [string, string] {
  const [, name = '', value = ''] = /^\s*([^\s=]+)\s*=(.*)$/s.exec(text) ?? []
  if (name === '') throw new Error('no pair')
  return [decodeURIComponent(name), decodeURIComponent(value.trim())]
}

const pemFile = makeValidator((text) => {
  let content = ''
  try {
    content = readFileSync(text, 'utf8')
  } catch {
    throw new Error('must be a file that can be read')
  }
  // Without one, TLS would trust nobody, and say of the collector that its certificate is self-signed.
  if (!content.includes('-----BEGIN ')) throw new Error('must be a file in the PEM format')
  return text
})

/** Each of these may also be named for traces alone: `OTEL_EXPORTER_OTLP_TRACES_…` in place of `OTEL_EXPORTER_OTLP_…`. */
const EXPORTER_SETTINGS = {
  ENDPOINT: endpoint({ default: undefined }),
  PROTOCOL: str({ choices: OTLP_PROTOCOLS, default: undefined }),
  HEADERS: pairs({ default: undefined }),
  TIMEOUT: integer(1, MAX_EXPORT_ms)({ default: undefined }),
  COMPRESSION: str({ choices: OTLP_COMPRESSIONS, default: undefined }),
  CERTIFICATE: pemFile({ default: undefined }),
  CLIENT_CERTIFICATE: pemFile({ default: undefined }),
  CLIENT_KEY: pemFile({ default: undefined }),
}

const TRACING_SETTINGS = {
  TRACES_EXPORTER: str({ choices: ['otlp', 'none'], default: 'otlp' }),
  TRACES_SAMPLER: str({ choices: SAMPLERS, default: 'parentbased_always_on' }),
  TRACES_SAMPLER_ARG: ratio({ default: 1 }),
  SERVICE_NAME: str({ default: undefined }),
  RESOURCE_ATTRIBUTES: pairs({ default: {} }),
  BSP_SCHEDULE_DELAY: integer(1, 600_000)({ default: 5_000 }),
  BSP_EXPORT_TIMEOUT: integer(1, MAX_EXPORT_ms)({ default: MAX_EXPORT_ms }),
  BSP_MAX_QUEUE_SIZE: integer(1, 1_000_000)({ default: 2_048 }),
  BSP_MAX_EXPORT_BATCH_SIZE: integer(1, 100_000)({ default: 512 }),
}

/** Whether traces are wanted: an exporter or its endpoint is named, and OpenTelemetry is not disabled. */
function wantsTraces(environment: Record<string, string | undefined>): boolean {
  const { OTEL_SDK_DISABLED = '', OTEL_TRACES_EXPORTER: exporter } = environment
  const endpoint = environment.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT ?? environment.OTEL_EXPORTER_OTLP_ENDPOINT
  return OTEL_SDK_DISABLED.toLowerCase() !== 'true' && exporter !== 'none' && (exporter ?? endpoint) !== undefined
}

/**
 * Reads the settings of traces. They are only looked at when traces are wanted: the same variables are often set for all
 * programs of a machine.
 */
function readTracing(environment: Record<string, string | undefined>, issues: string[]): TracingOptions | undefined {
  if (!wantsTraces(environment)) return undefined
  const read = <Specs extends Record<string, ValidatorSpec<unknown>>>(specs: Specs, prefix: string) =>
    customCleanEnv(
      Object.fromEntries(Object.keys(specs).map((name) => [name, environment[prefix + name]])),
      specs,
      // In place of envalid's guard against reading what is invalid: this is thrown away then.
      (values) => values,
      collectIssues(issues, prefix),
    )
  const settings = read(TRACING_SETTINGS, 'OTEL_')
  const general = read(EXPORTER_SETTINGS, 'OTEL_EXPORTER_OTLP_')
  const own = read(EXPORTER_SETTINGS, 'OTEL_EXPORTER_OTLP_TRACES_')
  const base = general.ENDPOINT ?? 'http://localhost:4318'
  const { SERVICE_NAME, RESOURCE_ATTRIBUTES } = settings
  return {
    exporter: {
      protocol: own.PROTOCOL ?? general.PROTOCOL ?? 'http/protobuf',
      url: own.ENDPOINT ?? `${base.replace(/\/$/, '')}/v1/traces`,
      headers: { ...general.HEADERS, ...own.HEADERS },
      timeout_ms: own.TIMEOUT ?? general.TIMEOUT ?? 10_000,
      compression: own.COMPRESSION ?? general.COMPRESSION ?? 'none',
    },
    sampler: settings.TRACES_SAMPLER,
    samplerRatio: settings.TRACES_SAMPLER_ARG,
    collector: {
      delay_ms: settings.BSP_SCHEDULE_DELAY,
      timeout_ms: settings.BSP_EXPORT_TIMEOUT,
      maxQueuedSpans: settings.BSP_MAX_QUEUE_SIZE,
      maxExportedSpans: Math.min(settings.BSP_MAX_EXPORT_BATCH_SIZE, settings.BSP_MAX_QUEUE_SIZE),
    },
    resource: { ...RESOURCE_ATTRIBUTES, ...(SERVICE_NAME !== undefined && { 'service.name': SERVICE_NAME }) },
  }
}

/** Options of `cleanEnv` by which it adds to the issues. */
const collectIssues = (issues: string[], prefix = '') => ({
  reporter: ({ errors }: { errors: Partial<Record<string, Error>> }) =>
    void issues.push(...Object.entries(errors).map(([name, error]) => `${prefix}${name}: ${error?.message}`)),
})

/** What is wrong with settings that are valid by themselves. */
function contradictions(settings: {
  DATABASE_URL?: string | undefined
  DATABASE_REPLICA_URLS?: readonly string[] | undefined
  PORT: number
  ADMIN_HOST?: string | undefined
  ADMIN_PORT?: number | undefined
  BASE_PATH: string
  PUBLIC_URL?: string | undefined
}): string[] {
  const { DATABASE_URL, DATABASE_REPLICA_URLS = [], PORT, ADMIN_HOST, ADMIN_PORT, BASE_PATH, PUBLIC_URL } = settings
  return [
    DATABASE_REPLICA_URLS.length > 0 &&
      DATABASE_URL === undefined &&
      'DATABASE_REPLICA_URLS: set DATABASE_URL, too, to their primary server',
    ADMIN_HOST !== undefined && ADMIN_PORT === undefined && 'ADMIN_HOST: set ADMIN_PORT, too, or metrics stay on PORT',
    ADMIN_PORT === PORT && 'ADMIN_PORT: it must not be PORT',
    // Links are paths, which a proxy does not change.
    PUBLIC_URL !== undefined &&
      new URL(PUBLIC_URL).pathname !== (BASE_PATH || '/') &&
      `PUBLIC_URL: its path must be BASE_PATH, which is ${BASE_PATH || 'not set'}: set both alike`,
  ].filter((issue) => issue !== false)
}

/**
 * Reads the settings. An empty variable counts as unset, since many tools cannot omit a variable.
 * @throws Error with a one-line message that lists every invalid setting
 */
export function readConfig(environment: Record<string, string | undefined> = process.env): Config {
  const given = Object.fromEntries(Object.entries(environment).filter(([, value]) => value !== ''))
  const issues: string[] = []
  const settings = cleanEnv(
    given,
    {
      HOST: host({ default: '127.0.0.1' }),
      PORT: integer(0, 65_535)({ default: 3000 }),
      WORKERS: integer(1, 64)({ default: 1 }),
      ADMIN_HOST: host({ default: undefined }),
      ADMIN_PORT: integer(1, 65_535)({ default: undefined }),
      DATABASE_URL: postgresUrl({ default: undefined }),
      DATABASE_REPLICA_URLS: postgresUrls({ default: undefined }),
      DATA_DIR: str({ default: DEFAULT_DATA_DIR }),
      LOG_LEVEL: str({ choices: LOG_LEVELS, default: 'info' }),
      BASE_PATH: basePath({ default: '' }),
      PUBLIC_URL: publicUrl({ default: undefined }),
      CORS_ORIGINS: origins({ default: undefined }),
      RATE_LIMIT_PER_MINUTE: integer(1, 999_999_999)({ default: undefined }),
      TRUST_PROXY: trustProxy({ default: false }),
      IDEMPOTENCY_RETENTION_DAYS: integer(1, 3_650)({ default: undefined }),
      MAX_CONNECTIONS: integer(1, 100_000)({ default: 10_000 }),
      MAX_FOLLOWERS: integer(1, 100_000)({ default: 2_000 }),
      READ_CONNECTIONS: integer(1, 100)({ default: 3 }),
      // The recorder needs two: one for batches that never wait for a lock, one for those that may.
      WRITE_CONNECTIONS: integer(2, 100)({ default: 4 }),
      IMPORT_CONNECTIONS: integer(2, 100)({ default: 8 }),
      // The default is in the document, too.
      IMPORT_MAX_BYTES: integer(1_024, 999_999_999)({ default: 16_777_216 }),
      STATEMENT_TIMEOUT_MS: integer(1_000, 600_000)({ default: 10_000 }),
      SLOW_REQUEST_MS: integer(1, 600_000)({ default: 1_000 }),
      DRAIN_DELAY: integer(0, 600)({ default: 0 }),
      DRAIN_TIMEOUT_MS: integer(1, 600_000)({ default: 25_000 }),
      QUEUE_SIZE: integer(1, 100_000)({ default: RECORDER_DEFAULTS.maxQueuedEvents }),
      QUEUE_TIMEOUT_MS: integer(100, 120_000)({ default: RECORDER_DEFAULTS.maxQueueWait_ms }),
      // Less than the shortest STATEMENT_TIMEOUT_MS, which would otherwise end the wait for a lock, and with an error.
      LOCK_TIMEOUT_MS: integer(10, 900)({ default: RECORDER_DEFAULTS.lockTimeout_ms }),
      BATCH_SIZE: integer(1, 1_000)({ default: RECORDER_DEFAULTS.maxBatchSize }),
    },
    collectIssues(issues),
  )
  const tracing = readTracing(given, issues)
  // Those that are invalid by themselves are missing among the settings.
  if (issues.length === 0) issues.push(...contradictions(settings))
  if (issues.length > 0) throw new Error(`Invalid configuration: ${issues.join('; ')}`)
  const { DATABASE_URL, DATABASE_REPLICA_URLS = [], HOST, ADMIN_HOST = HOST, ADMIN_PORT } = settings
  return {
    databaseUrl: DATABASE_URL,
    databaseReplicaUrls: DATABASE_REPLICA_URLS,
    dataDir: path.resolve(settings.DATA_DIR),
    logLevel: settings.LOG_LEVEL,
    server: {
      workers: settings.WORKERS,
      host: HOST,
      port: settings.PORT,
      admin: ADMIN_PORT === undefined ? undefined : { host: ADMIN_HOST, port: ADMIN_PORT },
      drainDelay_ms: settings.DRAIN_DELAY * 1_000,
      drainTimeout_ms: settings.DRAIN_TIMEOUT_MS,
    },
    http: {
      basePath: settings.BASE_PATH,
      publicUrl: settings.PUBLIC_URL,
      corsOrigins: settings.CORS_ORIGINS ?? [],
      rateLimitPerMinute: settings.RATE_LIMIT_PER_MINUTE,
      trustProxy: settings.TRUST_PROXY,
      maxConnections: settings.MAX_CONNECTIONS,
      maxFollowers: settings.MAX_FOLLOWERS,
      slowRequest_ms: settings.SLOW_REQUEST_MS,
      maxImport_bytes: settings.IMPORT_MAX_BYTES,
    },
    connections: {
      read: settings.READ_CONNECTIONS,
      write: settings.WRITE_CONNECTIONS,
      import: settings.IMPORT_CONNECTIONS,
      statementTimeout_ms: settings.STATEMENT_TIMEOUT_MS,
    },
    recorder: {
      maxQueuedEvents: settings.QUEUE_SIZE,
      maxQueueWait_ms: settings.QUEUE_TIMEOUT_MS,
      lockTimeout_ms: settings.LOCK_TIMEOUT_MS,
      maxBatchSize: settings.BATCH_SIZE,
    },
    idempotencyRetention_days: settings.IDEMPOTENCY_RETENTION_DAYS,
    tracing,
  }
}
