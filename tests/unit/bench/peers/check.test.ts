import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type OutgoingHttpHeaders, request, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { checkPeer } from '../../../../bench/peers/check.ts'
import type { TestApp } from '../../../support/app.ts'
import { createDemoApp } from '../demo-app.ts'

let app: TestApp
let ours: string

beforeAll(async () => {
  app = await createDemoApp()
  ours = await app.listen()
})
afterAll(() => app.close())

interface Response {
  status: number
  headers: OutgoingHttpHeaders
  body: string
}

/** How a peer deviates: the parts of our response that it changes. */
type Fault = (path: string, response: Response) => Partial<Response>

/** A peer that responds as we do, except for its fault. */
async function startPeer(fault: Fault): Promise<Server> {
  const forward = async (method = '', path = '', headers: IncomingHttpHeaders = {}, body = ''): Promise<Response> => {
    const sent = request(ours + path, { method, headers }).end(body)
    const [response] = await once(sent, 'response')
    const { 'content-length': _, 'transfer-encoding': __, ...kept } = response.headers
    return { status: response.statusCode, headers: kept, body: await text(response) }
  }
  const server = createServer(async (incoming, outgoing) => {
    const response = await forward(incoming.method, incoming.url, incoming.headers, await text(incoming))
    const { status, headers, body } = { ...response, ...fault(incoming.url ?? '', response) }
    outgoing.writeHead(status, headers).end(body)
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  return server
}

async function differencesWith(fault: Fault): Promise<string[]> {
  const peer = await startPeer(fault)
  const theirs = `http://127.0.0.1:${(peer.address() as AddressInfo).port}`
  try {
    return (await checkPeer({ name: 'express', ours, theirs, key: app.key })).differences
  } finally {
    peer.close()
    peer.closeAllConnections()
  }
}

const FAULTS: [what: string, where: string, fault: Fault][] = [
  [
    'a field that is missing',
    '/modules',
    (path, { body }) => {
      return path.endsWith('/modules') ? { body: body.replace('"title"', '"name"') } : {}
    },
  ],
  [
    'a list in another order',
    'direction=ASC',
    (path, { status, body }) => {
      return path.includes('direction=ASC') && status === 200
        ? { body: JSON.stringify(JSON.parse(body).reverse()) }
        : {}
    },
  ],
  [
    'a page without a link to the next',
    '/events?limit=3',
    (path, { headers }) => {
      const { link, ...others } = headers
      return path.includes('limit=3') ? { headers: others } : {}
    },
  ],
  ['a resource sent again', 'unchanged', (_path, { status }) => (status === 304 ? { status: 200, body: '{}' } : {})],
  ['another error', 'no such entry', (_path, { body }) => ({ body: body.replace('entry_not_found', 'not_found') })],
  ['a key that is not checked', 'an unknown key', (_path, { status }) => (status === 401 ? { status: 200 } : {})],
  [
    'another version in effect',
    'a new contact',
    (path, { body }) => (path.endsWith('/events') ? { body: body.replace(/"module_version_number":\d/, '$&9') } : {}),
  ],
  [
    'an event without the furthest page',
    'what both recorded there',
    (path, { status, body }) => {
      if (!path.endsWith('/events?limit=100') || status !== 200) return {}
      const events = JSON.parse(body, (name, value) => (name === 'max_page_index' ? 0 : value))
      return { body: JSON.stringify(events) }
    },
  ],
  [
    'a replay without its header',
    'again',
    (_path, { headers }) => {
      const { 'idempotent-replayed': _, ...others } = headers
      return { headers: others }
    },
  ],
  [
    'identifiers of two contacts merged',
    'two contacts',
    (_path, { status }) => (status === 409 ? { status: 200 } : {}),
  ],
]

describe('the check of a peer', () => {
  it('finds no difference between equals', async () => {
    expect(await differencesWith(() => ({}))).toEqual([])
  })

  it.each(FAULTS)('finds %s', async (_what, where, fault) => {
    expect((await differencesWith(fault)).join('\n')).toContain(where)
  })
})
