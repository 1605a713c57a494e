import { once } from 'node:events'
import net from 'node:net'

type Direction = 'request' | 'response'

/** What becomes of a message: of its bytes, and of the connection that it is sent over. */
type Fault =
  /** Nothing of it arrives, and the connection is closed. */
  | 'cut before'
  /** Half of it arrives, and the connection is closed. */
  | 'cut within'
  /** It arrives, and the connection is closed before what follows. */
  | 'cut after'
  /** Nothing of it arrives, and the connection is reset. */
  | 'reset'
  /** It arrives late. */
  | 'delay'
  /** Neither it nor anything after it arrives, not even that the sender closes the connection. */
  | 'withhold'

interface FaultyProxyOptions {
  target: net.NetConnectOpts
  /** Text that marks the messages that faults may befall. */
  marker: string
  /** They befall messages in this order. */
  faults: [Direction, Fault][]
  /** One message in so many is befallen. */
  every: number
}

export interface FaultyProxy {
  port: number
  /** How many faults are still to come. */
  left: () => number
  /** Closes it and all connections. */
  close: () => Promise<void>
}

const DELAY_ms = 200

/** Starts a TCP proxy that passes everything on until the faults begin, and again after the last. */
export async function createFaultyProxy({ target, marker, faults, every }: FaultyProxyOptions): Promise<FaultyProxy> {
  const toCome = [...faults]
  const seen = { request: 0, response: 0 }
  const sockets = new Set<net.Socket>()

  function faultOf(direction: Direction, chunk: Buffer): Fault | undefined {
    if (toCome[0]?.[0] !== direction || !chunk.includes(marker)) return undefined
    seen[direction] += 1
    return seen[direction] % every === 0 ? toCome.shift()?.[1] : undefined
  }

  /** Unix sockets know no reset. */
  const reset = (socket: net.Socket) =>
    socket.remoteAddress === undefined ? socket.destroy() : socket.resetAndDestroy()

  function pass(direction: Direction, from: net.Socket, to: net.Socket): void {
    sockets.add(from)
    const cut = (last: Buffer) => {
      // What is left to send is sent, then both ends are closed.
      from.pause()
      to.end(last, () => to.destroy())
      from.destroy()
    }
    from.on('data', (chunk: Buffer) => {
      switch (faultOf(direction, chunk)) {
        case 'cut before':
          return cut(Buffer.alloc(0))
        case 'cut within':
          return cut(chunk.subarray(0, chunk.length / 2))
        case 'cut after':
          return cut(chunk)
        case 'reset':
          for (const end of [from, to]) reset(end)
          return
        case 'delay':
          from.pause()
          setTimeout(() => {
            to.write(chunk)
            from.resume()
          }, DELAY_ms)
          return
        case 'withhold':
          from.removeAllListeners('data').removeAllListeners('end').removeAllListeners('close').resume()
          return
        default:
          to.write(chunk)
      }
    })
    from.on('end', () => to.end())
    from.on('error', () => {}) // it is closed as well
    from.on('close', () => {
      if (!to.writableEnded) to.destroy()
    })
  }

  const server = net.createServer((client) => {
    const upstream = net.connect(target)
    pass('request', client, upstream)
    pass('response', upstream, client)
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  return {
    port: (server.address() as net.AddressInfo).port,
    left: () => toCome.length,
    close: async () => {
      server.close()
      for (const socket of sockets) socket.destroy()
      await once(server, 'close')
    },
  }
}
