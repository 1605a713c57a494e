import fastify from 'fastify'
import { expect, test, vi } from 'vitest'
import { listen } from '../../src/server/listen.ts'

test('localhost is served at one address, since Fastify would serve the other by a server without what the app has set', async () => {
  const app = fastify()
  const asked = vi.spyOn(app, 'listen')
  expect(await listen(app, { host: 'localhost', port: 0 })).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/)
  expect(asked.mock.calls[0]?.[0]).toMatchObject({ host: '127.0.0.1', port: 0 })
  await app.close()
})

test.each([
  [65_535, 65_534],
  [3_000, 3_001],
])('instead of port %i, if it is in use, %i is suggested', async (port, other) => {
  const app = fastify()
  vi.spyOn(app, 'listen').mockRejectedValue(Object.assign(new Error('in use'), { code: 'EADDRINUSE' }))
  await expect(listen(app, { host: '127.0.0.1', port })).rejects.toThrow(`e.g. PORT=${other}`)
})
