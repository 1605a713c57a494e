import type { LightMyRequestResponse } from 'fastify'
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from 'vitest'
import { customEvent, fillFixture, IMPORTED_ENTRY, post } from '../recording/fixture.ts'
import { createTestApp, type TestApp } from '../support/app.ts'
import { createDatabaseProxy, type DatabaseProxy } from '../support/database-proxy.ts'
import { holdLock, holdProject } from '../support/waiting.ts'

let proxy: DatabaseProxy
let api: TestApp
beforeAll(async () => {
  proxy = await createDatabaseProxy(inject('databaseServer'))
  api = await createTestApp({ fill: fillFixture, reach: proxy.reach })
})
afterEach(() => proxy.restore())
afterAll(async () => {
  await api.close()
  await proxy.close()
})

const READS = [
  '/projects/demo/modules',
  '/projects/demo/modules/quiz',
  '/projects/demo/modules/quiz/versions',
  '/projects/demo/modules/quiz/versions/1',
  `/projects/demo/entries/${IMPORTED_ENTRY}`,
  `/projects/demo/entries/${IMPORTED_ENTRY}/events`,
  '/projects/demo/entries-page-views',
]

function expectUnavailable(response: LightMyRequestResponse): void {
  expect(response.statusCode, response.body).toBe(503)
  expect(response.json()).toMatchObject({ error: { code: 'service_unavailable' }, projectId: 'demo' })
  expect(response.headers['retry-after']).toMatch(/^[1-9]\d*$/)
}

const eventNames = async () => {
  const rows = await api.db.selectFrom('events').select('custom_event_name').execute()
  return rows.map(({ custom_event_name }) => custom_event_name)
}

describe('while the database is unreachable', () => {
  test.each(READS)('GET %s is a 503, and a 200 once it is back', async (path) => {
    expect((await api.call({ path })).statusCode).toBe(200)
    proxy.cut()
    expectUnavailable(await api.call({ path }))
    expectUnavailable(await api.call({ path }))
    await proxy.disconnected()
    proxy.restore()
    expect((await api.call({ path })).statusCode).toBe(200)
  })

  test('recordCustomEvent is a 503 that stores nothing, and a 200 once it is back', async () => {
    proxy.cut()
    expectUnavailable(await post(api, customEvent({ custom_event_name: 'while unreachable' })))
    proxy.restore()
    expect(await eventNames()).not.toContain('while unreachable')
    expect((await post(api, customEvent({ custom_event_name: 'back again' }))).statusCode).toBe(200)
    expect(await eventNames()).toContain('back again')
  })

  test.each([null, 'ft_wrong'])('the key %s is still refused', async (key) => {
    proxy.cut()
    expect((await api.call({ path: '/projects/demo/modules', key })).statusCode).toBe(401)
  })

  test('the service is live but not ready', async () => {
    proxy.cut()
    expect((await api.call({ path: '/livez' })).statusCode).toBe(200)
    expect((await api.call({ path: '/readyz' })).statusCode).toBe(503)
    proxy.restore()
    expect((await api.call({ path: '/readyz' })).statusCode).toBe(200)
  })
})

describe('a connection that breaks', () => {
  test('during a read makes it a 503', async () => {
    const obstacle = await holdLock(api.databaseUrl, 'LOCK TABLE modules')
    const response = api.call({ path: '/projects/demo/modules' })
    await obstacle.waiting(1)
    proxy.cut()
    expectUnavailable(await response)
    await obstacle.release()
  })

  test('during a recording transaction makes it a 503 that stores nothing', async () => {
    const obstacle = await holdProject(api.databaseUrl)
    const response = post(api, customEvent({ custom_event_name: 'interrupted' }))
    await obstacle.waiting(1)
    proxy.cut()
    expectUnavailable(await response)
    await obstacle.release()
    expect(await eventNames()).not.toContain('interrupted')
  })

  test('at any moment causes only 200 and 503, and every 200 is stored once', async () => {
    const stored: string[] = []
    const lost: string[] = []
    for (let round = 0; round < 30; round += 1) {
      const responses = Array.from({ length: 8 }, async (_, i) => {
        const custom_event_name = `round ${round}, ${i}`
        const response = await post(api, customEvent({ custom_event_name }))
        if (response.statusCode === 200) stored.push(custom_event_name)
        else {
          expectUnavailable(response)
          lost.push(custom_event_name)
        }
        // The moment of the cut differs between rounds: after the first response, the second, …
        if (i === round % 8) proxy.cut()
      })
      const reads = READS.map(async (path) => {
        const response = await api.call({ path })
        if (response.statusCode !== 200) expectUnavailable(response)
      })
      await Promise.all([...responses, ...reads])
      proxy.restore()
    }
    const names = await eventNames()
    for (const name of stored) expect(names.filter((other) => other === name)).toHaveLength(1)
    expect(stored.length).toBeGreaterThan(0)
    expect(lost.length).toBeGreaterThan(0)
  })
})

describe('a database that stops responding', () => {
  test('makes requests in flight a 503 in time, and causes no errors once it is back', async () => {
    const frozen = await createDatabaseProxy(inject('databaseServer'))
    const timingOut = await createTestApp({ fill: fillFixture, reach: frozen.reach, queryTimeout_ms: 300 })
    const request = () =>
      Promise.all([timingOut.call({ path: '/projects/demo/modules' }), post(timingOut, customEvent())])
    expect((await request()).map(({ statusCode }) => statusCode)).toEqual([200, 200])
    frozen.freeze()
    for (const response of await request()) expectUnavailable(response)
    frozen.restore()
    expect((await request()).map(({ statusCode }) => statusCode)).toEqual([200, 200])
    await timingOut.close()
    await frozen.close()
  })
})

describe('a statement that waits for a lock', () => {
  test.each([
    ['and is cancelled, as by a timeout', 'pg_cancel_backend', '57014'],
    ['and whose backend is terminated', 'pg_terminate_backend', '57P01'],
  ])('%s makes the request a 503', async (_, end) => {
    const obstacle = await holdProject(api.databaseUrl)
    const response = post(api, customEvent({ custom_event_name: end }))
    const [pid] = await obstacle.waiting(1)
    await obstacle.query(`SELECT ${end}(${pid})`)
    expectUnavailable(await response)
    await obstacle.release()
    expect(await eventNames()).not.toContain(end)
    expect((await post(api, customEvent())).statusCode).toBe(200)
  })
})
