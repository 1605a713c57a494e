import { once } from 'node:events'
import { Agent, createServer, type IncomingMessage, type OutgoingHttpHeaders, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { DOCUMENT, startPrism } from './prism.ts'
import type { Exchange } from './recorder.ts'

/** Something that Prism reports as wrong. */
export interface Violation {
  /** `request` or `response`, and the path from there. */
  location: string[]
  code?: string | number
  message: string
}

/** The outcome of an exchange that was replayed through Prism. */
export interface ReplayResult {
  /** Prism forwarded the request to the service. */
  reached: boolean
  /** What the client received. */
  status: number
  responseBody: string
  violations: Violation[]
}

/** Sends recorded requests through `prism proxy` to a service that returns the recorded responses. */
export interface Replayer {
  replay: (exchange: Exchange) => Promise<ReplayResult>
  close: () => Promise<void>
}

/** Names the exchange to which a request belongs. */
const EXCHANGE_HEADER = 'x-exchange'

/** Headers of a connection or of the encoding on it, not of a message, and those that HTTP libraries set by themselves. */
const CONNECTION_HEADERS = [
  'accept-encoding',
  'connection',
  'content-encoding',
  'content-length',
  'date',
  'expect',
  'host',
  'keep-alive',
  'transfer-encoding',
]

/** Prism never responds to some requests. */
const TIMEOUT_ms = 10_000

/** Starts Prism and the service. Without `--errors`, Prism forwards everything and adds its findings in a header. */
export async function startReplay(): Promise<Replayer> {
  const pending = new Map<string, Exchange>()
  const service = createServer(async (incoming, response) => {
    await text(incoming)
    const number = String(incoming.headers[EXCHANGE_HEADER])
    const exchange = pending.get(number)
    pending.delete(number)
    response
      .writeHead(exchange?.status ?? 500, messageHeaders(exchange?.responseHeaders ?? {}))
      .end(exchange?.responseBody)
  })
  await once(service.listen(0, '127.0.0.1'), 'listening')
  const { port: upstream } = service.address() as AddressInfo
  const prism = await startPrism('proxy', DOCUMENT, `http://127.0.0.1:${upstream}`, '--cors=false')
  const agent = new Agent({ keepAlive: true })
  let sent = 0

  return {
    replay: async (exchange) => {
      sent += 1
      const number = String(sent)
      pending.set(number, exchange)
      const { method, url, body } = exchange
      const headers = { ...messageHeaders(exchange.headers), [EXCHANGE_HEADER]: number }
      const outgoing = request({
        agent,
        port: prism.port,
        method,
        path: url,
        headers,
        signal: AbortSignal.timeout(TIMEOUT_ms),
      })
      // The promises below reject as well.
      outgoing.on('error', () => {})
      outgoing.end(body)
      const [incoming]: IncomingMessage[] = await once(outgoing, 'response')
      if (!incoming) throw new Error('no response')
      const responseBody = await text(incoming)
      const violations = violationsIn(String(incoming.headers['sl-violations'] ?? '[]'))
      return { reached: !pending.delete(number), status: incoming.statusCode ?? 0, responseBody, violations }
    },
    close: async () => {
      agent.destroy()
      await prism.stop()
      service.close()
      await once(service, 'close')
    },
  }
}

/** The message of each violation when there are too many for Prism's header, which then lacks the last ones. */
export const ONE_OF_MANY = 'one of too many'

const messageHeaders = (headers: OutgoingHttpHeaders): OutgoingHttpHeaders =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !CONNECTION_HEADERS.includes(name)))

/** Reads Prism's header. Past 8 KB it is truncated after `Too many violations!`; the start of each location suffices. */
function violationsIn(header: string): Violation[] {
  if (header.startsWith('[')) return JSON.parse(header)
  return [...header.matchAll(/\{"location":(\["\w+"(?:,"(?:[^"\\]|\\.)*")*)/g)].map(([, location]) => ({
    location: JSON.parse(`${location}]`),
    message: ONE_OF_MANY,
  }))
}
