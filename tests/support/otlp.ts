import { once } from 'node:events'
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'

/** A span as OTLP has it in JSON, with its attributes as an object. */
export interface ReceivedSpan {
  traceId: string
  spanId: string
  parentSpanId?: string
  name: string
  kind: number
  flags: number
  /** In nanoseconds. */
  startTimeUnixNano: string
  endTimeUnixNano: string
  attributes: Record<string, unknown>
  links: { traceId: string; spanId: string }[]
  status: { code: number; message?: string }
}

/** What OTLP calls the kinds of spans. */
export const KIND = { internal: 1, server: 2, client: 3 } as const

/** The flag of a span whose parent is another process's. */
export const IS_REMOTE = 0x200

/** A receiver of traces by OTLP over HTTP. */
export interface OtlpReceiver {
  url: string
  /** The requests so far, with their bodies. */
  requests: { path: string | undefined; headers: IncomingMessage['headers']; body: Buffer }[]
  /** The spans of requests in JSON. */
  spans: () => ReceivedSpan[]
  /** The attributes of what has sent them. */
  resource: () => Record<string, unknown>
  close: () => Promise<void>
}

interface Attribute {
  key: string
  value: object
}

const valuesOf = (attributes: Attribute[]) =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]))

/** Starts a receiver. @param port a free one by default */
export async function receiveTraces(port = 0): Promise<OtlpReceiver> {
  const requests: OtlpReceiver['requests'] = []
  const server = createServer(async (request, response) => {
    const body = await buffer(request)
    requests.push({ path: request.url, headers: request.headers, body })
    response.end()
  })
  await once(server.listen(port, '127.0.0.1'), 'listening')
  const resourceSpans = () => requests.flatMap(({ body }) => JSON.parse(String(body)).resourceSpans)
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    spans: () =>
      resourceSpans().flatMap(({ scopeSpans }) =>
        scopeSpans.flatMap(({ spans }: { spans: (ReceivedSpan & { attributes: Attribute[] })[] }) =>
          spans.map((span) => ({ ...span, attributes: valuesOf(span.attributes) })),
        ),
      ),
    resource: () => valuesOf(resourceSpans()[0]?.resource.attributes ?? []),
    async close() {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    },
  }
}
