import { chown, lstat, mkdir, mkdtemp, readlink, rm, rmdir, stat, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { hasCode } from './presence.ts'

export const PORT = '5432'
const SOCKET = `.s.PGSQL.${PORT}`
const PATH_LIMIT_BYTES = 103
const DATABASE = 'flowtrail'

/**
 * The directory of a cluster's socket: outside the data directory, whose path may be too long for a socket, and ours
 * alone, since whoever reaches the socket is let in. A link in the data directory tells every process where it is.
 */
export class SocketDirectory {
  readonly #link: string
  readonly #cluster: string

  constructor(link: string, cluster: string) {
    this.#link = link
    this.#cluster = cluster
  }

  /** Its path, if it is there and no trap that another user laid: its parent is open to all. */
  async find(): Promise<string | undefined> {
    try {
      const path = await readlink(this.#link)
      const [found, { uid }] = [await lstat(path), await stat(this.#cluster)]
      return found.isDirectory() && found.uid === uid ? path : undefined
    } catch (error) {
      if (hasCode(error, 'ENOENT')) return undefined
      throw error
    }
  }

  async hasSocket(): Promise<boolean> {
    const path = await this.find()
    return path !== undefined && (await lstat(join(path, SOCKET)).catch(() => undefined)) !== undefined
  }

  /** Makes it, empty, under the name that connection strings hold already, unless somebody has taken that. */
  async make(owner: number): Promise<string> {
    const found = await this.find()
    if (found) {
      for (const name of [SOCKET, `${SOCKET}.lock`]) await rm(join(found, name), { force: true })
      return found
    }
    const path = (await this.#remake()) ?? (await mkdtemp(join(parent(owner), 'flowtrail-')))
    await chown(path, owner, -1)
    await rm(this.#link, { force: true })
    await symlink(path, this.#link)
    return path
  }

  async #remake(): Promise<string | undefined> {
    try {
      const path = await readlink(this.#link)
      await mkdir(path, { mode: 0o700 })
      return path
    } catch {
      return undefined
    }
  }

  /** Removes it for tidiness' sake, once PostgreSQL has stopped. */
  async remove(): Promise<void> {
    const path = await this.find()
    if (path) await rmdir(path).catch(() => {})
  }
}

/** Not everybody can reach our TMPDIR, and a socket's path does not fit into every one. */
function parent(owner: number): string {
  const length = Buffer.byteLength(join(tmpdir(), 'flowtrail-XXXXXX', SOCKET))
  return length <= PATH_LIMIT_BYTES && owner === process.geteuid?.() ? tmpdir() : '/tmp'
}

/**
 * Connects to the server whose socket is in that directory, and makes the service's database if there is none.
 * @returns the database's connection string, or undefined when the server does not accept connections for now
 */
export async function connectionString(directory: string): Promise<string | undefined> {
  const to = (database: string) =>
    `postgresql://flowtrail@localhost:${PORT}/${database}?host=${encodeURIComponent(directory)}&sslmode=disable`
  const client = new pg.Client({ connectionString: to('postgres'), connectionTimeoutMillis: 5_000 })
  client.on('error', () => {}) // the promises fail as well
  try {
    await client.connect()
    const { rowCount } = await client.query('SELECT FROM pg_database WHERE datname = $1', [DATABASE])
    if (rowCount === 0) await client.query(`CREATE DATABASE ${DATABASE}`)
    return to(DATABASE)
  } catch (error) {
    // Starting, stopping or full (classes 57 and 53), or not yet or no longer listening.
    if (!(error instanceof pg.DatabaseError) || /^5[37]/.test(error.code ?? '')) return undefined
    throw error
  } finally {
    await client.end().catch(() => {})
  }
}
