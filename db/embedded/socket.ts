import { lstat, mkdir, mkdtemp, readFile, readlink, rm, rmdir, stat, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import pg from 'pg'
import { changeOwner } from './account.ts'
import { hasCode } from './process-registry.ts'
import { isSameFile } from './same-file.ts'

export const PORT = '5432'
const SOCKET = `.s.PGSQL.${PORT}`
/** sun_path has 104 bytes on macOS, fewer than on Linux, and ends with a NUL. */
const MAX_PATH_bytes = 103

/**
 * The directory of a cluster's socket: outside the data directory, whose path may be too long for a socket, and accessible
 * only to us, since the server trusts everyone who can reach the socket. A symlink in the data directory points to it.
 */
export class SocketDirectory {
  readonly #link: string
  readonly #cluster: string
  readonly #prefix: string

  /** @param prefix of the directory's name, which ends with random characters */
  constructor(link: string, cluster: string, prefix: string) {
    this.#link = link
    this.#cluster = cluster
    this.#prefix = prefix
  }

  /**
   * Its path if it exists, belongs to the cluster's owner, since in a world-writable directory others may take its name, and has not
   * the socket of another cluster, to which the symlink of a copied data directory points.
   */
  async find(): Promise<string | undefined> {
    try {
      const path = await readlink(this.#link)
      const [found, { uid }] = [await lstat(path), await stat(this.#cluster)]
      return found.isDirectory() && found.uid === uid && !(await this.#isOfOther(path)) ? path : undefined
    } catch (error) {
      if (hasCode(error, 'ENOENT')) return undefined
      throw error
    }
  }

  /** Whether the lock file beside the socket, with the pid and the cluster of its server, is that of another. */
  async #isOfOther(path: string): Promise<boolean> {
    const [pid, directory] = await linesOf(join(path, `${SOCKET}.lock`))
    if (!directory || (await isSameFile(directory, this.#cluster))) return false
    // The cluster may have had another path when the server started.
    const exists = (await stat(directory).catch(() => undefined)) !== undefined
    return exists || pid !== (await linesOf(join(this.#cluster, 'postmaster.pid')))[0]
  }

  async hasSocket(): Promise<boolean> {
    const path = await this.find()
    return path !== undefined && (await lstat(join(path, SOCKET)).catch(() => undefined)) !== undefined
  }

  /**
   * Creates it, empty, under the path that earlier connection strings contain, if that is still free, unless another parent is meant
   * for it by now.
   * @returns its path
   */
  async create(owner: number): Promise<string> {
    const found = await this.find()
    if (found) {
      for (const name of [SOCKET, `${SOCKET}.lock`]) await rm(join(found, name), { force: true })
      return found
    }
    const parent = parentDirectory(owner, this.#prefix)
    const path = (await this.#recreate(parent)) ?? (await mkdtemp(join(parent, this.#prefix)))
    await changeOwner(path, owner)
    await rm(this.#link, { force: true })
    await symlink(path, this.#link)
    return path
  }

  async #recreate(parent: string): Promise<string | undefined> {
    try {
      const path = await readlink(this.#link)
      if (dirname(path) !== parent) return undefined
      await mkdir(path, { mode: 0o700 })
      return path
    } catch {
      return undefined
    }
  }

  /** Removes it if it is empty. To be called when PostgreSQL has stopped. */
  async remove(): Promise<void> {
    const path = await this.find()
    if (path) await rmdir(path).catch(() => {})
  }
}

const linesOf = async (file: string) => (await readFile(file, 'utf8').catch(() => '')).split('\n')

/** TMPDIR, unless another user may lack access to it or the socket's path would be too long. */
function parentDirectory(owner: number, prefix: string): string {
  const length = Buffer.byteLength(join(tmpdir(), `${prefix}XXXXXX`, SOCKET))
  return length <= MAX_PATH_bytes && owner === process.geteuid?.() ? tmpdir() : '/tmp'
}

/**
 * Connects to the server with its socket in that directory, as its superuser `name`, and creates the database of the same
 * name if it does not exist.
 *
 * @returns the database's connection string, or undefined while the server does not accept connections
 * @throws PostgreSQL's other errors
 */
export async function connectionString(directory: string, name: string): Promise<string | undefined> {
  const to = (database: string) =>
    `postgresql://${name}@localhost:${PORT}/${database}?host=${encodeURIComponent(directory)}&sslmode=disable`
  const client = new pg.Client({ connectionString: to('postgres'), connectionTimeoutMillis: 5_000 })
  client.on('error', () => {}) // the promises reject as well
  try {
    await client.connect()
    const { rowCount } = await client.query('SELECT FROM pg_database WHERE datname = $1', [name])
    if (rowCount === 0) await client.query(`CREATE DATABASE ${pg.escapeIdentifier(name)}`)
    return to(name)
  } catch (error) {
    // Starting or stopping (class 57), or not yet or no longer listening.
    if (!(error instanceof pg.DatabaseError) || error.code?.startsWith('57')) return undefined
    throw error
  } finally {
    await client.end().catch(() => {})
  }
}
