import type { Socket } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { expect, test } from 'vitest'
import { clientErrorHandler } from '../../src/http/client-errors.ts'

/** Handles an error of Node's parser on a socket. @returns what was sent, or `destroyed` */
function handled(code: string, { writable = true, _httpMessage = undefined as object | undefined } = {}): string {
  let result = ''
  const socket = {
    writable,
    _httpMessage,
    end: (text: string) => {
      result += text
    },
    destroy: () => {
      result += 'destroyed'
    },
  }
  const server = { log: { info: () => {} } } as unknown as FastifyInstance
  clientErrorHandler.call(server, Object.assign(new Error(), { code }), socket as unknown as Socket)
  return result
}

test.each([
  ['ERR_HTTP_REQUEST_TIMEOUT', 'The request was not complete within 30 seconds.'],
  ['HPE_HEADER_OVERFLOW', 'The request line and headers exceed 16 KiB; shorten the path, the query or the headers.'],
  ['HPE_INVALID_METHOD', 'This is not a valid HTTP/1.1 request.'],
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
  const due = (headersSent: boolean, complete: boolean) => ({ _httpMessage: { headersSent, req: { complete } } })
  expect(handled('HPE_INVALID_METHOD', due(true, false))).toBe('destroyed')
  expect(handled('HPE_INVALID_METHOD', due(false, true))).toBe('destroyed')
  expect(handled('HPE_INVALID_METHOD', due(false, false))).toMatch(/^HTTP/)
})
