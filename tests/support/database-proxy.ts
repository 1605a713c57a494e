import { mkdtemp, rm } from 'node:fs/promises'
import net from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import pg from 'pg'

/** A way to the database that can be cut, as when PostgreSQL or the network between dies. */
export interface DatabaseProxy {
  /** The connection string that leads to this database through the proxy: `reach` of createTestApp. */
  reach: (databaseUrl: string) => string
  /** Breaks every connection and takes no new one. */
  cut: () => Promise<void>
  /** Takes connections again. */
  mend: () => Promise<void>
  close: () => Promise<void>
}

const PORT = 5432

/** Starts a proxy on a Unix socket of its own, whose address stays free for it while it is cut, as no port would. */
export async function startDatabaseProxy(): Promise<DatabaseProxy> {
  const directory = await mkdtemp(path.join(tmpdir(), 'flowtrail-proxy-'))
  const open = new Set<net.Socket>()
  let target: net.NetConnectOpts | undefined
  let server: net.Server | undefined

  function passOn(client: net.Socket): void {
    if (!target) throw new Error('connected before reach() was asked')
    const upstream = net.connect(target)
    for (const [socket, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      open.add(socket)
      socket.pipe(other)
      // An error is followed by close; here it is only kept from ending the process.
      socket.on('error', () => {})
      socket.on('close', () => {
        open.delete(socket)
        other.destroy()
      })
    }
  }

  const mend = async () => {
    server = net.createServer(passOn)
    const listening = Promise.withResolvers<void>()
    server.once('error', listening.reject).listen(path.join(directory, `.s.PGSQL.${PORT}`), listening.resolve)
    await listening.promise
  }
  const cut = async () => {
    const closed = Promise.withResolvers<void>()
    if (server) server.close(() => closed.resolve())
    else closed.resolve()
    server = undefined
    for (const socket of open) socket.destroy()
    await closed.promise
  }

  await mend()
  return {
    reach: (databaseUrl) => {
      const { host, port } = new pg.Client(databaseUrl)
      target = host.startsWith('/') ? { path: `${host}/.s.PGSQL.${port}` } : { host, port }
      const url = new URL(databaseUrl)
      url.searchParams.set('host', directory)
      url.searchParams.set('port', String(PORT))
      return url.href
    },
    cut,
    mend,
    close: async () => {
      await cut()
      await rm(directory, { recursive: true })
    },
  }
}
