import { setTimeout } from 'node:timers/promises'
import fastify from 'fastify'
import { afterAll, expect, test, vi } from 'vitest'
import { serveProbes } from '../../src/http/probes.ts'

const app = fastify()
let isReady = true
serveProbes(app, {
  basePath: '/flow',
  metrics: async () => '',
  ready: async () => Promise[isReady ? 'resolve' : 'reject'](new Error('down')),
})
afterAll(() => app.close())

test.each(['', '/flow'])('the probes below "%s" tell life from readiness', async (prefix) => {
  isReady = true
  for (const probe of ['livez', 'readyz']) {
    const { statusCode, body } = await app.inject(`${prefix}/${probe}`)
    expect([statusCode, JSON.parse(body)]).toEqual([200, { status: 'ok' }])
  }
  const { statusCode, headers } = await app.inject(`${prefix}/metrics`)
  expect([statusCode, headers['content-type']]).toEqual([200, 'text/plain; version=0.0.4; charset=utf-8'])
  isReady = false
  expect((await app.inject(`${prefix}/livez`)).statusCode).toBe(200)
  expect((await app.inject(`${prefix}/readyz`)).statusCode).toBe(500)
})

test('a database that takes a while is ready, and one that does not respond is not', async () => {
  const probes = fastify()
  let respond = () => {}
  const ready = vi.fn(
    () =>
      new Promise<void>((resolve) => {
        respond = resolve
      }),
  )
  serveProbes(probes, { basePath: '', metrics: async () => '', ready })
  const slow = probes.inject('/readyz')
  await expect.poll(() => ready.mock.calls).toHaveLength(1)
  await setTimeout(50)
  respond()
  expect((await slow).statusCode).toBe(200)
  expect((await probes.inject('/readyz')).statusCode).toBe(503)
  await probes.close()
})
