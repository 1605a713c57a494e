import { setImmediate } from 'node:timers/promises'
import fastify from 'fastify'
import { afterAll, expect, onTestFinished, test, vi } from 'vitest'
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

test('a database that takes less than two seconds is ready, and one that does not respond is not', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout'] })
  onTestFinished(() => void vi.useRealTimers())
  const probes = fastify()
  onTestFinished(() => probes.close())
  // Not a spy, which would put the fake timer back after the test.
  const timers = vi.fn(globalThis.setTimeout)
  globalThis.setTimeout = timers as never
  const onOutage = vi.fn()
  probes.decorate('onOutage', onOutage)
  const responses: PromiseWithResolvers<void>[] = []
  const ready = () => {
    const response = Promise.withResolvers<void>()
    responses.push(response)
    return response.promise
  }
  serveProbes(probes, { basePath: '', metrics: async () => '', ready })
  await probes.ready()
  const statuses: number[] = []
  const probe = () => void probes.inject('/readyz').then(({ statusCode }) => statuses.push(statusCode))
  /** An injected request needs some turns of the event loop. */
  const turns = async () => {
    for (let i = 0; i < 100; i += 1) await setImmediate()
  }
  probe()
  await turns()
  vi.advanceTimersByTime(1_999)
  responses[0]?.resolve()
  await turns()
  expect(statuses).toEqual([200])
  expect(onOutage).not.toHaveBeenCalled()

  probe()
  await turns()
  vi.advanceTimersByTime(2_000)
  await turns()
  expect(statuses).toEqual([200, 503])
  expect(onOutage.mock.calls).toEqual([[new Error('The database has not responded for 2 seconds')]])
  const own = timers.mock.results.filter((_, i) => timers.mock.calls[i]?.[1] === 2_000)
  expect(own.map(({ value }) => value.hasRef())).toEqual([false, false])
})
