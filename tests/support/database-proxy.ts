import { mkdtemp, rm } from 'node:fs/promises'
import net from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import pg from 'pg'

/** A way to the database server that can be cut, as when PostgreSQL or the network between dies. */
export interface DatabaseProxy {
  /** The connection string that leads to a database of the server through the proxy: `reach` of createTestApp. */
  reach: (databaseUrl: string) => string
  /** Breaks every connection, and takes no new one until restored. */
  cut: () => void
  /** Lets nothing through, but leaves every connection open, as when the network between swallows all. */
  freeze: () => void
  restore: () => void
  close: () => Promise<void>
}

const PORT = 5432

/**
 * Starts a proxy on a Unix socket of its own, whose address stays free for it while it is cut, as no port would.
 * @param serverUrl a connection string of any database of the server, by TCP or Unix socket
 */
export async function createDatabaseProxy(serverUrl: string): Promise<DatabaseProxy> {
  const { host, port } = new pg.Client(serverUrl)
  const target = host.startsWith('/') ? { path: `${host}/.s.PGSQL.${port}` } : { host, port }
  const directory = await mkdtemp(path.join(tmpdir(), 'flowtrail-proxy-'))
  const open = new Set<net.Socket>()
  let server: net.Server | undefined
  let frozen = false

  function connect(from: net.Socket, to: net.Socket): void {
    open.add(from)
    if (!frozen) from.pipe(to)
    // What broke is told to both sides by closing them.
    from.on('error', () => {})
    from.on('close', () => {
      open.delete(from)
      to.destroy()
    })
  }
  const breakAll = () => {
    for (const socket of open) socket.destroy()
  }
  const restore = () => {
    // What a frozen connection swallowed is lost, and so is the connection.
    if (frozen) breakAll()
    frozen = false
    server ??= net
      .createServer((client) => {
        const upstream = net.connect(target)
        connect(client, upstream)
        connect(upstream, client)
      })
      .listen(path.join(directory, `.s.PGSQL.${PORT}`))
  }
  const cut = () => {
    server?.close()
    server = undefined
    breakAll()
  }
  const freeze = () => {
    frozen = true
    for (const socket of open) socket.unpipe()
  }

  restore()
  return {
    reach: (databaseUrl) => {
      const url = new URL(databaseUrl)
      url.searchParams.set('host', directory)
      url.searchParams.set('port', String(PORT))
      return url.href
    },
    cut,
    freeze,
    restore,
    close: async () => {
      cut()
      await rm(directory, { recursive: true })
    },
  }
}
