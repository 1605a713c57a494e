import { Agent, request } from 'node:http'
import { text } from 'node:stream/consumers'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createTestApp, type TestApp } from '../support/app.ts'
import { runs, TEST_OPTIONS } from '../support/properties.ts'

/** The routes that openapi.yaml does not have, so that its fuzzer does not know them. */

let api: TestApp
let address: string
const agent = new Agent({ keepAlive: true })
beforeAll(async () => {
  api = await createTestApp()
  address = await api.listen()
})
afterAll(async () => {
  agent.destroy()
  // Fails if an error was not an ErrorBody.
  await api.close()
})

const ROUTES = ['/', '/docs', '/docs/static', '/docs/static/swagger-ui.css', '/docs/static/theme/page.js'].concat(
  '/openapi.yaml',
  '/openapi.json',
)
const SEGMENTS = ['.', '..', '%2e%2e', '..%2f', '..%5c', '..\\', '', '%', '%00', '%2', '%ff', '%C3%A9', 'a'.repeat(300)]
const FILES = ['index.html', 'theme', 'page.js', 'swagger-ui.css', 'package.json', 'src', 'constructor', '__proto__']
const target = fc
  .tuple(
    fc.constantFrom(...ROUTES),
    fc.array(fc.constantFrom(...SEGMENTS, ...FILES), { maxLength: 4, size: 'xsmall' }),
    fc.constantFrom('', '', '/', '?', '?a=%', '?url=http://example.com/', '#x'),
  )
  .map(([route, segments, end]) => [route, ...segments].join('/') + end)
const header = fc.constantFrom<[string, string]>(
  ['Accept', 'text/html'],
  ['Accept', '*/*;q=x'],
  ['Accept-Encoding', 'gzip;q=2, \x80'],
  ['Range', 'bytes=0-1'],
  ['Range', 'bytes=-0'],
  ['Range', 'bytes=9-1'],
  ['If-None-Match', '*'],
  ['If-Match', '"x'],
  ['If-Modified-Since', 'never'],
  ['If-Unmodified-Since', 'Thu, 01 Jan 1970 00:00:00 GMT'],
  ['Origin', 'null'],
  ['X-Forwarded-Host', '"><script>'],
  ['Host', 'a"b<script>'],
  ['Host', '[::1'],
)
const method = fc.constantFrom('GET', 'GET', 'GET', 'HEAD', 'OPTIONS', 'POST', 'DELETE', 'PROPFIND')

test(
  'every request for the docs is served, redirected, or refused with the error envelope',
  async () => {
    const statuses = new Set<number>()
    await fc.assert(
      fc.asyncProperty(method, target, fc.array(header, { maxLength: 3 }), async (method, path, headers) => {
        const response = await send(method, path, Object.fromEntries(headers))
        statuses.add(response.status)
        expect(response.status).toBeLessThan(500)
        if (response.status >= 400 && method !== 'HEAD') {
          expect(JSON.parse(response.body).error.code).toMatch(/^(invalid_request|route_not_found|method_not_allowed)$/)
        }
      }),
      runs(1_500),
    )
    expect([...statuses].sort()).toEqual(expect.arrayContaining([200, 206, 302, 304, 400, 404, 412, 416]))
  },
  TEST_OPTIONS.timeout,
)

/** Sends the path as it is: a URL would be normalized. */
async function send(method: string, path: string, headers: Record<string, string>) {
  const { promise, resolve, reject } = Promise.withResolvers<{ status: number; body: string }>()
  request(address, { method, path, headers, agent })
    .on('error', reject)
    .on('response', (response) => {
      text(response).then((body) => resolve({ status: Number(response.statusCode), body }), reject)
    })
    .end()
  return promise
}
