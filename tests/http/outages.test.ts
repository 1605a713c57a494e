import fastify from 'fastify'
import pg from 'pg'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { logFailure, reportOutages } from '../../src/http/outages.ts'

const AWAY = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED', syscall: 'connect' })
const TIMED_OUT = Object.assign(new pg.DatabaseError('canceling statement', 0, 'error'), { code: '57014' })

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }))
afterEach(() => void vi.useRealTimers())

function service() {
  const lines: Record<string, unknown>[] = []
  const stream = { write: (line: string) => void lines.push(JSON.parse(line)) }
  const app = fastify({ logger: { level: 'info', stream } })
  let isAway = true
  reportOutages([app], async () => {
    if (isAway) throw AWAY
  })
  const fail = (error: unknown) => logFailure({ log: app.log, server: app } as never, error, 'request failed', { n: 1 })
  const comesBack = () => {
    isAway = false
  }
  return { app, lines, fail, comesBack }
}

test('an outage is a line at its start and one at its end, however many requests fail', async () => {
  const { lines, fail, comesBack } = service()
  for (let i = 0; i < 3; i += 1) fail(AWAY)
  await vi.advanceTimersByTimeAsync(2_500)
  fail(AWAY)
  expect(lines).toMatchObject([
    { level: 50, err: { message: AWAY.message }, msg: expect.stringContaining('DATABASE_URL') },
  ])
  comesBack()
  await vi.advanceTimersByTimeAsync(5_000)
  expect(lines).toHaveLength(1)
  await vi.advanceTimersByTimeAsync(1_000)
  expect(lines[1]).toMatchObject({
    level: 30,
    duration_s: 2.5,
    failed_requests: 4,
    msg: 'the database is available again',
  })
  fail(AWAY)
  await vi.advanceTimersByTimeAsync(10_000)
  expect(lines.slice(2)).toMatchObject([{ level: 50 }, { duration_s: 0, failed_requests: 1 }])
})

test('an outage lasts while requests fail, whatever the ping says, and while the ping fails, without requests', async () => {
  const { lines, fail, comesBack } = service()
  fail(AWAY)
  await vi.advanceTimersByTimeAsync(60_000)
  comesBack()
  for (let i = 0; i < 30; i += 1) {
    fail(AWAY)
    await vi.advanceTimersByTimeAsync(1_000)
  }
  expect(lines).toHaveLength(1)
  await vi.advanceTimersByTimeAsync(6_000)
  expect(lines[1]).toMatchObject({ duration_s: 89, failed_requests: 31 })
})

test('an outage of which nothing is known has advice, too', () => {
  const { lines, fail } = service()
  fail(new Error('Connection terminated unexpectedly'))
  expect(lines[0]?.msg).toMatch(/\. Check that PostgreSQL runs and that DATABASE_URL is right$/)
})

test('what is no outage is logged each time', () => {
  const { lines, fail } = service()
  fail(TIMED_OUT)
  fail(new Error('a defect'))
  expect(lines).toMatchObject([
    { level: 40, err: { message: 'canceling statement' }, msg: 'request failed', n: 1 },
    { level: 50, err: { message: 'a defect' }, msg: 'request failed', n: 1 },
  ])
})

test('apps share an outage', () => {
  const lines: { msg: string }[] = []
  const stream = { write: (line: string) => void lines.push(JSON.parse(line)) }
  const apps = [fastify({ logger: { level: 'info', stream } }), fastify()]
  reportOutages(apps, async () => {})
  for (const app of apps) app.onOutage?.(AWAY)
  expect(lines).toHaveLength(1)
})

test('a server that stops within an outage checks no more', async () => {
  const { app, fail } = service()
  fail(AWAY)
  await app.close()
  expect(vi.getTimerCount()).toBe(0)
})
