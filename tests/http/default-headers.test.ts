import { afterAll, beforeAll, expect, test } from 'vitest'
import { createTestApp, type TestApp } from '../support/app.ts'
import { SECURITY_HEADERS } from '../support/contract.ts'

const ORIGIN = 'https://app.example.com'
const PREFLIGHT = { origin: ORIGIN, 'access-control-request-method': 'POST' }
let api: TestApp
beforeAll(async () => {
  api = await createTestApp({ config: { corsOrigins: [ORIGIN] } })
})
afterAll(() => api.close())

test.each<[number, Parameters<TestApp['call']>[0]]>([
  [200, { path: '/projects/demo/modules' }],
  [200, { method: 'HEAD', path: '/projects/demo/modules/skin-quiz' }],
  [304, { path: '/projects/demo/modules/skin-quiz', headers: { 'if-none-match': '*' } }],
  [401, { path: '/projects/demo/modules', key: null }],
  [404, { path: '/nowhere' }],
  [405, { method: 'DELETE', path: '/projects/demo/modules' }],
  [400, { path: '/projects/demo/modules/%ff' }],
  [204, { method: 'OPTIONS', path: '/projects/demo/events', headers: PREFLIGHT }],
  [200, { path: '/openapi.json' }],
  [200, { path: '/metrics' }],
])('a %i protects browsers: %j', async (status, call) => {
  const response = await api.call(call)
  expect(response.statusCode).toBe(status)
  expect(response.headers).toMatchObject(SECURITY_HEADERS)
  expect(response.headers).not.toHaveProperty('strict-transport-security')
})

test.each(['/docs/', '/docs/static/swagger-ui-bundle.js', '/docs/static/theme/page.js'])(
  '%s has its own policy, and the other headers',
  async (path) => {
    const { headers } = await api.call({ path })
    const { 'content-security-policy': _policy, ...others } = SECURITY_HEADERS
    expect(headers).toMatchObject({ ...others, 'cross-origin-opener-policy': 'same-origin' })
    expect(headers['content-security-policy']).toMatch(/script-src 'self';.*frame-ancestors 'none'/)
  },
)

test.each([
  ['https://flows.example.com', 'max-age=31536000'],
  ['http://flows.example.com', undefined],
])('with PUBLIC_URL=%s Strict-Transport-Security is %s', async (publicUrl, expected) => {
  const other = await createTestApp({ config: { publicUrl } })
  for (const path of ['/projects/demo/modules', '/docs/', '/nowhere']) {
    expect((await other.call({ path })).headers['strict-transport-security'], path).toBe(expected)
  }
  await other.close()
})
