import { type ChildProcess, execFile } from 'node:child_process'
import { once } from 'node:events'
import { appendFile, chown, cp, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { promisify } from 'node:util'
import { chooseAccount } from '../../db/embedded/account.ts'
import { findBinaries } from '../../db/embedded/binaries.ts'
import { signalFamily } from './embedded-postgres.ts'
import { freePort } from './service.ts'

const run = promisify(execFile)

/** A running server. */
export interface TcpServer {
  port: number
  /** The connection string for a role, whose password is its name. The superuser is `admin`. */
  url: (role: string, database: string, parameters?: string) => string
}

export interface Standby extends TcpServer {
  /** Its postmaster. */
  process: ChildProcess
  /** Starts it again after its end. */
  restart: () => Promise<void>
}

/** A PostgreSQL of its own on a port, with passwords and TLS, as those of providers are. */
export interface TcpPostgres extends TcpServer {
  /** Those that replay its log. */
  standbys: Standby[]
  /** The certificate of the authority that signed the server's, which is for `localhost`. */
  ca: string
  /** Runs another program as the user of PostgreSQL's. It ends with the server. */
  spawn: (program: string, args: string[]) => ChildProcess
  /** A directory that this user may read and write. */
  directory: string
  /** The directory of its data, which is in that one. */
  data: string
  /** Its postmaster. */
  process: ChildProcess
  /** Starts a server on other data in that directory. It ends with this one. */
  startOn: (data: string) => Promise<TcpServer & { process: ChildProcess }>
  stop: () => Promise<void>
}

/**
 * Starts a PostgreSQL.
 * @param settings in place of PostgreSQL's defaults
 * @param standbyCount how many standby servers it gets
 * @param binaries where its programs are; without it, those of the packages
 */
export async function startTcpPostgres(
  settings: Record<string, string> = {},
  standbyCount = 0,
  binaries?: string,
): Promise<TcpPostgres> {
  await using cleanup = new AsyncDisposableStack()
  const directory = await mkdtemp(path.join(tmpdir(), 'flowtrail-postgres-'))
  cleanup.defer(() => rm(directory, { recursive: true }))
  const { initdb, postgres } = binaries
    ? { initdb: path.join(binaries, 'initdb'), postgres: path.join(binaries, 'postgres') }
    : await findBinaries('')
  const account = await chooseAccount(directory, directory, postgres, '')
  const data = path.join(directory, 'data')
  await mkdir(data, { mode: 0o700 })
  await writeFile(path.join(directory, 'password'), 'admin')
  await createCertificates(directory)
  for (const name of ['.', ...(await readdir(directory))]) await chown(path.join(directory, name), account.owner, -1)

  const children = cleanup.use(new AsyncDisposableStack())
  const spawn = (program: string, args: string[]) => {
    const child = account.spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'] })
    children.defer(() => end(child))
    return child
  }
  const created = spawn(initdb, [
    ...['-D', data, '--no-sync', '--encoding=UTF8', '--locale=C', '--username=admin'],
    ...['--auth=scram-sha-256', `--pwfile=${directory}/password`],
  ])
  created.stderr?.resume()
  const [status] = await once(created, 'exit')
  if (status !== 0) throw new Error(`initdb ended with ${status}`)
  // This role must use TLS.
  const hba = ['hostssl all tls_only 127.0.0.1/32 scram-sha-256', 'host all tls_only 127.0.0.1/32 reject']
  hba.push('host all,replication all 127.0.0.1/32 scram-sha-256')
  await writeFile(path.join(data, 'pg_hba.conf'), `${hba.join('\n')}\n`)
  await configure(data, {
    ...{ listen_addresses: '127.0.0.1', unix_socket_directories: '', fsync: 'off' },
    ...{ ssl: 'on', ssl_cert_file: `${directory}/server.pem`, ssl_key_file: `${directory}/server.key` },
    ...settings,
  })
  // A copy of a cluster that has not been started yet replays all that the cluster will write.
  const copies = Array.from({ length: standbyCount }, (_, i) => path.join(directory, `standby-${i + 1}`))
  for (const copy of copies) await cp(data, copy, { recursive: true, preserveTimestamps: true })

  const start = async (cluster: string, port: number) => {
    const server = spawn(postgres, ['-D', cluster, '-p', String(port)])
    await untilLogged(server, 'ready to accept')
    return server
  }
  const startOn = async (cluster: string) => {
    const port = await freePort()
    return { ...addressOf(port), process: await start(cluster, port) }
  }
  const primary = await startOn(data)
  const standbys: Standby[] = []
  for (const copy of copies) {
    const primary_conninfo = `host=localhost port=${primary.port} user=admin password=admin`
    await configure(copy, { primary_conninfo, wal_retrieve_retry_interval: '100ms' })
    await writeFile(path.join(copy, 'standby.signal'), '')
    await setOwner(copy, account.owner)
    const ownPort = await freePort()
    const standby: Standby = {
      ...addressOf(ownPort),
      process: await start(copy, ownPort),
      restart: async () => {
        standby.process = await start(copy, ownPort)
      },
    }
    standbys.push(standby)
  }
  const kept = cleanup.move()
  return {
    ...primary,
    standbys,
    ca: `${directory}/ca.pem`,
    spawn,
    directory,
    data,
    startOn,
    stop: () => kept.disposeAsync(),
  }
}

/** Ends a server, also one that is frozen. */
async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = once(child, 'exit')
  child.kill('SIGINT')
  await signalFamily(Number(child.pid), 'SIGCONT')
  await ended
}

/** Adds settings to the configuration of a cluster. */
function configure(cluster: string, settings: Record<string, string>): Promise<void> {
  const lines = Object.entries(settings).map(([name, value]) => `${name} = '${value}'\n`)
  return appendFile(path.join(cluster, 'postgresql.conf'), lines.join(''))
}

const addressOf = (port: number): TcpServer => ({
  port,
  url: (role, database, parameters = '') =>
    `postgres://${role}:${role}@localhost:${port}/${database}${parameters && `?${parameters}`}`,
})

/** Gives a directory and all in it to a user. A copy belongs to who made it. */
async function setOwner(directory: string, owner: number): Promise<void> {
  for (const name of await readdir(directory, { recursive: true })) await chown(path.join(directory, name), owner, -1)
  await chown(directory, owner, -1)
}

/** Stops all processes of a server for a while. @returns what lets them go on */
export async function freeze({ process: { pid } }: Standby): Promise<() => Promise<void>> {
  await signalFamily(Number(pid), 'SIGSTOP')
  return () => signalFamily(Number(pid), 'SIGCONT')
}

/** Waits until a process has written this to standard error. @throws Error with what it has written, if it ends before */
export async function untilLogged({ stderr }: ChildProcess, wanted: string): Promise<void> {
  const lines: string[] = []
  for await (const line of createInterface(stderr as Readable)) {
    lines.push(line)
    if (!line.includes(wanted)) continue
    // Leaving the loop has paused the stream, whose writer would wait.
    stderr?.resume()
    return
  }
  throw new Error(lines.join('\n'))
}

async function createCertificates(directory: string): Promise<void> {
  const at = (name: string) => path.join(directory, name)
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2']
  const ca = ['-subj', '/CN=test authority', '-keyout', at('ca.key'), '-out', at('ca.pem')]
  await run('openssl', ['req', '-x509', ...key, ...ca])
  await run('openssl', [
    ...['req', '-x509', ...key, '-CA', at('ca.pem'), '-CAkey', at('ca.key'), '-subj', '/CN=localhost'],
    ...['-addext', 'subjectAltName=DNS:localhost', '-addext', 'basicConstraints=critical,CA:FALSE'],
    ...['-keyout', at('server.key'), '-out', at('server.pem')],
  ])
}
