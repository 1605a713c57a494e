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
export interface Passage {
  /** Prism let the request through to the service. */
  reached: boolean
  /** What the client got. */
  status: number
  answer: string
  violations: Violation[]
}

/** The way from a client through `prism proxy` to a service that answers as it is told, and back. */
export interface Way {
  pass: (exchange: Exchange) => Promise<Passage>
  close: () => Promise<void>
}

/** Tells the service which exchange a request belongs to. */
const NUMBER = 'x-exchange'

/** Headers of a connection, not of a message, and those that HTTP libraries write by themselves. */
const OF_THE_CONNECTION = ['connection', 'content-length', 'date', 'expect', 'host', 'keep-alive', 'transfer-encoding']

/** How long Prism may take; there are requests that it never answers. */
const PATIENCE_ms = 10_000

/** Opens a way over real connections. Without `--errors`, Prism passes everything on and adds what it finds. */
export async function openWay(): Promise<Way> {
  const underWay = new Map<string, Exchange>()
  const service = createServer(async (incoming, response) => {
    await text(incoming)
    const number = String(incoming.headers[NUMBER])
    const exchange = underWay.get(number)
    underWay.delete(number)
    response.writeHead(exchange?.status ?? 500, ofTheMessage(exchange?.answerHeaders ?? {})).end(exchange?.answer)
  })
  await once(service.listen(0, '127.0.0.1'), 'listening')
  const { port: upstream } = service.address() as AddressInfo
  const prism = await startPrism('proxy', DOCUMENT, `http://127.0.0.1:${upstream}`, '--cors=false')
  const agent = new Agent({ keepAlive: true })
  let sent = 0

  return {
    pass: async (exchange) => {
      sent += 1
      const number = String(sent)
      underWay.set(number, exchange)
      const { method, url, body } = exchange
      const headers = { ...ofTheMessage(exchange.headers), [NUMBER]: number }
      const outgoing = request({
        agent,
        port: prism.port,
        method,
        path: url,
        headers,
        signal: AbortSignal.timeout(PATIENCE_ms),
      })
      // Whoever awaits the response, or its text, is told as well.
      outgoing.on('error', () => {})
      outgoing.end(body)
      const [incoming]: IncomingMessage[] = await once(outgoing, 'response')
      if (!incoming) throw new Error('no response')
      const answer = await text(incoming)
      const violations = violationsIn(String(incoming.headers['sl-violations'] ?? '[]'))
      return { reached: !underWay.delete(number), status: incoming.statusCode ?? 0, answer, violations }
    },
    close: async () => {
      agent.destroy()
      await prism.stop()
      service.close()
      await once(service, 'close')
    },
  }
}

const ofTheMessage = (headers: OutgoingHttpHeaders): OutgoingHttpHeaders =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !OF_THE_CONNECTION.includes(name)))

/** Reads Prism's header. A list past 8 KB is cut off behind `Too many violations!`; where each begins says enough. */
function violationsIn(header: string): Violation[] {
  if (header.startsWith('[')) return JSON.parse(header)
  return [...header.matchAll(/\{"location":(\["\w+)/g)].map(([, location]) => ({
    location: JSON.parse(`${location}"]`),
    message: 'one of too many',
  }))
}
