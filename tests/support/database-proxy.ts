import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import net from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setImmediate } from 'node:timers/promises'
import pg from 'pg'

/** A proxy to the database server that can be cut, to simulate a failure of PostgreSQL or of the network. */
export interface DatabaseProxy {
  /** The connection string of a database of the server through the proxy: for `reach` of createTestApp. */
  reach: (databaseUrl: string) => string
  /** Destroys every connection, and accepts no new one until restored. */
  cut: () => void
  /** Drops all traffic but keeps every connection open, like a network that loses every packet. */
  freeze: () => void
  /** Freezes once a client sends this text, before the server's response to it. Resolves then. */
  freezeAt: (text: string) => Promise<void>
  restore: () => void
  /** Sends new connections to another server. */
  divert: (serverUrl: string) => void
  /** Resolves when both ends of the connections destroyed so far have noticed. */
  disconnected: () => Promise<void>
  close: () => Promise<void>
}

const PORT = 5432

/** Where a server listens, a port or a Unix socket. @param serverUrl a connection string of any of its databases */
export function serverAddress(serverUrl: string): net.NetConnectOpts {
  const { host, port } = new pg.Client(serverUrl)
  return host.startsWith('/') ? { path: `${host}/.s.PGSQL.${port}` } : { host, port }
}

/**
 * Starts a proxy on a Unix socket of its own, whose address no other process can take while it is cut, unlike a port.
 * @param serverUrl a connection string of any database of the server, by TCP or Unix socket
 */
export async function createDatabaseProxy(serverUrl: string): Promise<DatabaseProxy> {
  let target = serverAddress(serverUrl)
  const directory = await mkdtemp(path.join(tmpdir(), 'flowtrail-proxy-'))
  const open = new Set<net.Socket>()
  let server: net.Server | undefined
  let frozen = false
  let freezing: { text: string; done: () => void } | undefined

  function connect(from: net.Socket, to: net.Socket): void {
    open.add(from)
    if (!frozen) from.pipe(to)
    // An error on either side closes both.
    from.on('error', () => {})
    from.on('close', () => {
      open.delete(from)
      to.destroy()
    })
  }
  let closing: Promise<unknown>[] = []
  const destroyAll = () => {
    for (const socket of open) {
      closing.push(once(socket, 'close'))
      socket.destroy()
    }
  }
  const disconnected = async () => {
    await Promise.all(closing)
    closing = []
    // The other end is told in the same turn of the event loop or the next.
    await setImmediate()
  }
  const restore = () => {
    // A frozen connection has lost data and cannot be resumed.
    if (frozen) destroyAll()
    frozen = false
    freezing = undefined
    server ??= net
      .createServer((client) => {
        const upstream = net.connect(target)
        client.on('data', (chunk: Buffer) => {
          if (!freezing || !chunk.includes(freezing.text)) return
          freeze()
          freezing.done()
        })
        connect(client, upstream)
        connect(upstream, client)
      })
      .listen(path.join(directory, `.s.PGSQL.${PORT}`))
  }
  const cut = () => {
    server?.close()
    server = undefined
    destroyAll()
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
    freezeAt: (text) =>
      new Promise((done) => {
        freezing = { text, done }
      }),
    restore,
    divert: (url) => {
      target = serverAddress(url)
    },
    disconnected,
    close: async () => {
      cut()
      await rm(directory, { recursive: true })
    },
  }
}
