import { once } from 'node:events'
import { Agent, createServer, type IncomingMessage, type OutgoingHttpHeaders, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { DOCUMENT, startPrism } from './prism.ts'
import type { Exchange } from './recorder.ts'

/** Something that Prism finds wrong. */
export interface Violation {
  /** `request` or `response`, and the way down from there. */
  location: string[]
  code?: string | number
  message: string
}

/** What came of an exchange on its way through Prism. */
export interface ReplayResult {
  /** Prism let the request through to the service. */
  reached: boolean
  /** What the client got. */
  status: number
  responseBody: string
  violations: Violation[]
}

/** The way from a client through `prism proxy` to a service that answers as it is told, and back. */
export interface Replayer {
  replay: (exchange: Exchange) => Promise<ReplayResult>
  close: () => Promise<void>
}

/** Tells the service which exchange a request belongs to. */
const EXCHANGE_HEADER = 'x-exchange'

/** Headers of a connection, not of a message, and those that HTTP libraries write by themselves. */
const CONNECTION_HEADERS = ['connection', 'content-length', 'date', 'expect', 'host', 'keep-alive', 'transfer-encoding']

/** How long Prism may take; there are requests that it never answers. */
const TIMEOUT_ms = 10_000

/** Opens a way over real connections. Without `--errors`, Prism passes everything on and adds what it finds. */
export async function startReplay(): Promise<Replayer> {
  const underWay = new Map<string, Exchange>()
  const service = createServer(async (incoming, response) => {
    await text(incoming)
    const number = String(incoming.headers[EXCHANGE_HEADER])
    const exchange = underWay.get(number)
    underWay.delete(number)
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
      underWay.set(number, exchange)
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
      // Whoever awaits the response, or its text, is told as well.
      outgoing.on('error', () => {})
      outgoing.end(body)
      const [incoming]: IncomingMessage[] = await once(outgoing, 'response')
      if (!incoming) throw new Error('no response')
      const responseBody = await text(incoming)
      const violations = violationsIn(String(incoming.headers['sl-violations'] ?? '[]'))
      return { reached: !underWay.delete(number), status: incoming.statusCode ?? 0, responseBody, violations }
    },
    close: async () => {
      agent.destroy()
      await prism.stop()
      service.close()
      await once(service, 'close')
    },
  }
}

const messageHeaders = (headers: OutgoingHttpHeaders): OutgoingHttpHeaders =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !CONNECTION_HEADERS.includes(name)))

/** Reads Prism's header. A list past 8 KB is cut off behind `Too many violations!`; where each begins says enough. */
function violationsIn(header: string): Violation[] {
  if (header.startsWith('[')) return JSON.parse(header)
  return [...header.matchAll(/\{"location":(\["\w+)/g)].map(([, location]) => ({
    location: JSON.parse(`${location}"]`),
    message: 'one of too many',
  }))
}
