import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { SCOPES } from '../../src/domain/api-key.ts'
import { runFlowtrail, type Service, startService } from './service.ts'

/** A server process with the demo project on an embedded PostgreSQL of its own, for external tools. */
export interface DemoService {
  address: string
  /** Keys of project `demo`: with all scopes, and with one each. */
  key: string
  readKey: string
  writeKey: string
  /** A key of project `other`, which is empty. */
  otherKey: string
  /** A second server on the same data with a rate limit of one request per minute and key. */
  limitedAddress: string
  /** What the servers wrote to stderr. */
  stderr: () => string
  /** Stops the servers and their PostgreSQL and removes their data. */
  stop: () => Promise<void>
}

/** A contact of the demo with two entries, which is erased so that there is an erasure. */
export const ERASED = '019dba6d-57d8-7000-9000-000000000005'

/** The environment variables by which an external command finds the service. */
export const demoEnvironment = (service: DemoService): Record<string, string> => ({
  FLOWTRAIL_URL: service.address,
  FLOWTRAIL_KEY: service.key,
  FLOWTRAIL_READ_KEY: service.readKey,
  FLOWTRAIL_WRITE_KEY: service.writeKey,
  FLOWTRAIL_OTHER_KEY: service.otherKey,
  FLOWTRAIL_LIMITED_URL: service.limitedAddress,
})

/** @param settings environment variables of the server, beside its data directory */
export async function startDemoService(settings: Record<string, string> = {}): Promise<DemoService> {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'flowtrail-demo-'))
  const home = { DATA_DIR: dataDir }
  const services: Service[] = []
  const start = async (extra: Record<string, string>) => {
    const service = await startService({ ...settings, ...home, ...extra })
    services.push(service)
    return service.address
  }
  const stop = async () => {
    for (const { child } of services) child.kill('SIGTERM')
    await Promise.all(services.map(({ exit }) => exit))
    await rm(dataDir, { recursive: true })
  }
  try {
    const address = await start({})
    await runToEnd(['demo', '--entries', '202'], home)
    await runToEnd(['contacts', 'erase', ERASED, '--project', 'demo', '--yes'], home)
    await runToEnd(['projects', 'create', 'other'], home)
    const createKey = (project: string, ...scopes: string[]) =>
      runToEnd(['keys', 'create', '--project', project, ...scopes.flatMap((scope) => ['--scope', scope])], home)
    return {
      address,
      key: await createKey('demo', ...SCOPES),
      readKey: await createKey('demo', 'read'),
      writeKey: await createKey('demo', 'events:write'),
      otherKey: await createKey('other'),
      limitedAddress: await start({ RATE_LIMIT_PER_MINUTE: '1' }),
      stderr: () => services.map(({ stderr }) => stderr()).join(''),
      stop,
    }
  } catch (error) {
    await stop()
    throw error
  }
}

/** Runs a command to its end and returns what it prints. */
async function runToEnd(args: string[], settings: Record<string, string>): Promise<string> {
  const command = runFlowtrail(args, settings)
  const status = await command.exit
  if (status !== 0) throw new Error(`flowtrail ${args.join(' ')} ended with ${status}: ${command.stderr()}`)
  return command.stdout().trim()
}
