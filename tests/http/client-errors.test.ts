import type { Socket } from 'node:net'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { expect, test } from 'vitest'
import { clientErrorHandler, requireHost } from '../../src/http/client-errors.ts'

/** Handles an error of Node's parser on a socket. */
function handle(code: string, socket: object): void {
  const server = { log: { info: () => {} } } as unknown as FastifyInstance
  clientErrorHandler.call(server, Object.assign(new Error(), { code }), socket as Socket)
}

/** Handles an error on a socket in this state. @returns what was sent, or `destroyed` */
function handled(code: string, state: object = {}): string {
  let result = ''
  const end = (text: string) => {
    result += text
  }
  const destroy = () => {
    result += 'destroyed'
  }
  handle(code, { writable: true, end, destroy, ...state })
  return result
}

/** A connection with a response that is due. @param complete whether its request has arrived */
const due = (headersSent: boolean, complete: boolean) => ({
  _httpMessage: { headersSent, shouldKeepAlive: true, _last: false, req: { complete } },
})

test.each([
  ['ERR_HTTP_REQUEST_TIMEOUT', 'The request was not complete within 30 seconds.'],
  ['HPE_HEADER_OVERFLOW', 'The request line and headers exceed 16 KiB; shorten the path, the query or the headers.'],
  ['HPE_INVALID_METHOD', 'This is not a valid HTTP/1.1 request.'],
  [
    'HPE_INVALID_URL',
    'The path and query must be percent-encoded UTF-8. Encode a literal % as %25, and all non-ASCII characters.',
  ],
])('%s is a 400 that says what is wrong', (code, message) => {
  const [head = '', body = ''] = handled(code).split('\r\n\r\n')
  expect(head).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/)
  expect(head).toContain(`\r\nContent-Length: ${body.length}\r\n`)
  expect(JSON.parse(body)).toEqual({ error: { code: 'invalid_request', message } })
})

test('nothing is sent to a client that cannot read it', () => {
  expect(handled('ECONNRESET')).toBe('destroyed')
  expect(handled('HPE_INVALID_METHOD', { writable: false })).toBe('destroyed')
})

test('nothing is sent within the response to an earlier request, or in its place', () => {
  expect(handled('HPE_INVALID_METHOD', due(true, false))).toBe('destroyed')
  expect(handled('ERR_HTTP_REQUEST_TIMEOUT', due(false, true))).toBe('destroyed')
  expect(handled('HPE_INVALID_METHOD', due(false, false))).toMatch(/^HTTP/)
})

test('the response to a request that is followed by no HTTP is sent, and is the last', () => {
  const state = due(false, true)
  expect(handled('HPE_INVALID_METHOD', state)).toBe('')
  expect(state._httpMessage).toMatchObject({ shouldKeepAlive: false, _last: false })
  const begun = due(true, true)
  expect(handled('HPE_INVALID_METHOD', begun)).toBe('')
  expect(begun._httpMessage._last).toBe(true)
  // Its client is gone.
  expect(handled('HPE_INVALID_METHOD', { ...due(false, true), writable: false })).toBe('destroyed')
  expect(handled('HPE_INVALID_EOF_STATE', due(false, true))).toBe('destroyed')
})

test('what arrives until that response is sent is discarded, and later what the client still sends', () => {
  const results: string[] = []
  const socket = {
    ...due(false, true),
    writable: true,
    destroy: () => results.push('destroyed'),
    end: (text: string) => results.push(text.slice(0, 12)),
  }
  for (const code of ['HPE_INVALID_METHOD', 'HPE_INVALID_METHOD', 'ERR_HTTP_REQUEST_TIMEOUT']) handle(code, socket)
  Object.assign(socket, { _httpMessage: null, writable: false })
  handle('HPE_INVALID_METHOD', socket)
  expect(results).toEqual([])
  handle('ECONNRESET', socket)
  expect(results).toEqual(['destroyed'])
})

test('nothing is sent after the response to a request that still arrives', () => {
  const arriving = (incoming: object | null) => ({ parser: { incoming } })
  expect(handled('ERR_HTTP_REQUEST_TIMEOUT', arriving({ complete: false }))).toBe('destroyed')
  expect(handled('ERR_HTTP_REQUEST_TIMEOUT', arriving({ complete: true }))).toMatch(/^HTTP/)
  expect(handled('ERR_HTTP_REQUEST_TIMEOUT', arriving(null))).toMatch(/^HTTP/)
})

test.each([
  ['1.1', [], false],
  ['1.1', ['a'], true],
  ['1.1', ['a', 'a'], false],
  ['1.0', [], true],
  ['1.0', ['a', 'b'], false],
])('a request of HTTP/%s with the Hosts %j is accepted: %s', (httpVersion, hosts, isAccepted) => {
  const raw = { httpVersion, headersDistinct: hosts.length > 0 ? { host: hosts } : {} }
  const request = { raw, headers: { host: hosts[0] } } as unknown as FastifyRequest
  let error: Error | undefined
  requireHost.call({} as FastifyInstance, request, {} as FastifyReply, (reason) => {
    error = reason
  })
  expect(error?.message).toBe(isAccepted ? undefined : 'Send exactly one Host header.')
})
