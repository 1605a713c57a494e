import { afterAll, expect, test } from 'vitest'
import { createAdminApp } from '../../src/app.ts'
import { loggerOptions } from '../../src/logger.ts'

// The app of ADMIN_PORT, which has no API.

const log: Record<string, unknown>[] = []
const stream = { write: (line: string) => log.push(JSON.parse(line)) > 0, isTTY: false }
const admin = createAdminApp({ logger: loggerOptions('info', { stream }) }, { slowRequest_ms: 1_000 })
afterAll(() => admin.close())

test.each([
  ['/%', 400, 'invalid_request'],
  ['/%zz?a=b', 400, 'invalid_request'],
  ['/nowhere', 404, 'route_not_found'],
])('%s gets the envelope, the headers of every response and a line in the log', async (path, status, code) => {
  log.splice(0)
  const { statusCode, headers, body } = await admin.inject(path)
  expect([statusCode, JSON.parse(body).error.code]).toEqual([status, code])
  expect(headers).toMatchObject({
    'content-type': 'application/json; charset=utf-8',
    'x-content-type-options': 'nosniff',
    'x-request-id': expect.any(String),
  })
  expect(log).toMatchObject([{ msg: 'request', status, error_code: code, request_id: headers['x-request-id'] }])
})
