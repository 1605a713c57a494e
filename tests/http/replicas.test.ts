import { randomBytes } from 'node:crypto'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { LightMyRequestResponse } from 'fastify'
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, expect, inject, onTestFinished, test, vi } from 'vitest'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import type { ReadReplicas } from '../../src/database/replicas.ts'
import { QUERY_CHANNEL, type QueryTiming } from '../../src/database/timed-query.ts'
import { SELECT_WAL_POSITION, UNKNOWN_POSITION } from '../../src/database/wal-position.ts'
import { createTestApp, loadExamples, type TestApp } from '../support/app.ts'
import { document } from '../support/contract.ts'
import { createTestDatabase } from '../support/database.ts'
import { onServer } from '../support/global-setup.ts'
import { EVENT, expectIssues } from './requests.ts'

// Which reads go to a replica, and what it has to have (tests/database/standbys.test.ts and the trial have real ones).

let api: TestApp
let replica: Database
const asked: unknown[][] = []
const noted: unknown[][] = []
const replicas: ReadReplicas = {
  databaseFor: (...args) => {
    asked.push(args)
    return replica
  },
  noteWrite: (...args) => void noted.push(args),
  usage: [
    { name: 'one:5432/flowtrail', isUsable: true, lag_s: 0.25, reads: 3, fallbacks: 1 },
    { name: 'two:5432/flowtrail', isUsable: false, lag_s: Number.POSITIVE_INFINITY, reads: 2, fallbacks: 0 },
  ],
  primaryReads: 4,
}

beforeAll(async () => {
  api = await createTestApp({ replicas })
  replica = connect(api.databaseUrl, { max: 2 })
})
afterAll(async () => {
  await api.close()
  await replica.destroy()
})
beforeEach(() => {
  asked.length = 0
  noted.length = 0
})

const tokenOf = ({ headers }: LightMyRequestResponse) => headers['consistency-token']
const RECORDS = JSON.stringify({ type: 'group', group_id: 'imported' })

const reads = Object.entries(document.paths).filter(([, item]) => item.get)
test.each([
  '/modules',
  '/modules/skin-quiz',
  '/modules/skin-quiz/versions',
  '/modules/skin-quiz/versions/1',
  '/entries/019ca8bb-b5c0-7000-8000-000000000001',
  '/entries/019ca8bb-b5c0-7000-8000-000000000001/events',
])('a read of %s asks for a replica that has what the token stands for', async (path) => {
  await api.call({ path: `/projects/demo${path}`, headers: { 'consistency-token': '4711' } })
  await api.call({ path: `/projects/demo${path}`, method: 'HEAD' })
  expect(asked).toEqual([
    ['demo', 4711],
    ['demo', undefined],
  ])
})

test.each(['/entries', '/entries-page-views', '/events', '/erasures'])(
  'a read of %s, by which copies are kept, is of the primary server',
  async (path) => {
    const { statusCode } = await api.call({ path: `/projects/demo${path}`, headers: { 'consistency-token': '4711' } })
    expect(statusCode).toBe(200)
    expect(asked).toEqual([])
  },
)

test('all reading operations are among them', () => expect(reads).toHaveLength(10))

test.each([
  ['/projects/demo/events', EVENT],
  ['/projects/demo/events/batch', { events: [EVENT, { ...EVENT, module_id: 'nowhere' }, EVENT] }],
])('a write to %s is noted, and its token stands for it', async (path, body) => {
  const response = await api.call({ method: 'POST', path, body })
  expect(response.statusCode).toBe(200)
  const position = Number(tokenOf(response))
  expect(position).toBeGreaterThan(0)
  expect(new Set(noted.map(String))).toEqual(new Set([`demo,${position}`]))
  const next = await api.call({ method: 'POST', path, body })
  expect(Number(tokenOf(next))).toBeGreaterThan(position)
  expect(asked).toEqual([])
})

test('the token of a batch that takes several commits stands for the last of them', async () => {
  const { mock, mockRestore } = vi.spyOn(pg.Client.prototype, 'query')
  onTestFinished(() => mockRestore())
  const large = { ...EVENT, custom_event_props: JSON.stringify({ text: 'x'.repeat(32_000) }) }
  const response = await api.call({
    method: 'POST',
    path: '/projects/demo/events/batch',
    body: { events: Array.from({ length: 100 }, () => large) },
  })
  const positions = await Promise.all(
    mock.settledResults
      .filter((_, index) => (mock.calls[index] as unknown[])[0] === SELECT_WAL_POSITION)
      .map(({ value }) => (value as pg.QueryResult).rows[0].wal_position),
  )
  expect(new Set(positions).size).toBeGreaterThan(1)
  expect(noted).toEqual([['demo', Math.max(...positions)]])
  expect(Number(tokenOf(response))).toBe(Math.max(...positions))
})

test('an import is noted, and its token stands for it', async () => {
  const headers = { 'content-type': 'application/x-ndjson' }
  const response = await api.call({ method: 'POST', path: '/projects/demo/records', body: RECORDS, headers })
  expect(response.statusCode).toBe(200)
  expect(noted).toEqual([['demo', Number(tokenOf(response))]])
})

test('a replayed event has a token, too: the response to the first request may have been lost', async () => {
  const call = {
    method: 'POST',
    path: '/projects/demo/events',
    body: EVENT,
    headers: { 'idempotency-key': 'one' },
  } as const
  const first = Number(tokenOf(await api.call(call)))
  expect(Number(tokenOf(await api.call(call)))).toBeGreaterThanOrEqual(first)
})

test('a write that was refused has no token', async () => {
  const refused = { ...EVENT, module_id: 'nowhere' }
  expect(tokenOf(await api.call({ method: 'POST', path: '/projects/demo/events', body: refused }))).toBeUndefined()
  const path = '/projects/demo/events/batch'
  expect(tokenOf(await api.call({ method: 'POST', path, body: { events: [refused] } }))).toBeUndefined()
  expect(noted).toEqual([])
})

test.each([
  '/modules/skin-quiz',
  '/modules/skin-quiz/versions',
  '/modules/skin-quiz/versions/1',
  '/entries/019ca8bb-b5c0-7000-8000-000000000001',
  '/entries/019ca8bb-b5c0-7000-8000-000000000001/events',
])('what a replica does not have yet of %s is read from the primary server', async (path) => {
  const empty = await createTestDatabase()
  onTestFinished(() => empty.drop())
  const late = connect(empty.url, { max: 2 })
  onTestFinished(() => late.destroy())
  const current = replica
  onTestFinished(() => {
    replica = current
  })
  const expected = await api.call({ path: `/projects/demo${path}` })
  replica = late
  const { statusCode, body } = await api.call({ path: `/projects/demo${path}` })
  expect([statusCode, body]).toEqual([200, expected.body])
})

test('what is read from the primary server, since no replica can serve it, is not looked up twice', async () => {
  const queries: string[] = []
  const onQuery = (timing: unknown) => void queries.push((timing as QueryTiming).query)
  subscribe(QUERY_CHANNEL, onQuery)
  onTestFinished(() => void unsubscribe(QUERY_CHANNEL, onQuery))
  /** Those on the service's own connections, which alone are timed here. */
  const lookUps = async () => {
    queries.length = 0
    const { statusCode } = await api.call({ path: '/projects/demo/entries/nowhere' })
    expect(statusCode).toBe(404)
    return queries.filter((query) => query === 'findEntry').length
  }
  expect(await lookUps()).toBe(1)
  const databaseFor = vi.spyOn(replicas, 'databaseFor').mockReturnValue(api.readDb)
  onTestFinished(() => databaseFor.mockRestore())
  expect(await lookUps()).toBe(1)
})

test('a write whose position cannot be read has a token that no replica satisfies', async () => {
  const role = `nowhere_${randomBytes(8).toString('hex')}`
  const blind = await createTestApp({
    replicas,
    fill: async (databaseUrl, db) => {
      await loadExamples(databaseUrl, db)
      const statements = [
        `CREATE ROLE ${role} LOGIN`,
        `GRANT ALL ON ALL TABLES IN SCHEMA public TO ${role}`,
        `GRANT USAGE ON SCHEMA public TO ${role}`,
        'REVOKE EXECUTE ON FUNCTION pg_current_wal_flush_lsn() FROM PUBLIC',
      ]
      for (const statement of statements) await onServer(databaseUrl, statement)
    },
    reach: (databaseUrl) => Object.assign(new URL(databaseUrl), { username: role }).href,
  })
  onTestFinished(async () => {
    await blind.close()
    await onServer(inject('databaseServer'), `DROP ROLE ${role}`)
  })
  const calls = [
    { path: '/projects/demo/events', body: EVENT },
    { path: '/projects/demo/events/batch', body: { events: [EVENT, EVENT] } },
    { path: '/projects/demo/records', body: RECORDS, headers: { 'content-type': 'application/x-ndjson' } },
  ]
  for (const call of calls) {
    const response = await blind.call({ method: 'POST', ...call })
    expect([response.statusCode, tokenOf(response)], call.path).toEqual([200, String(UNKNOWN_POSITION)])
  }
  expect(noted).toEqual(calls.map(() => ['demo', UNKNOWN_POSITION]))
})

test('what a request waits for is read from the primary server, which is asked for it', async () => {
  const { statusCode } = await api.call({ path: '/projects/demo/events?direction=ASC&after=0&wait=1' })
  expect(statusCode).toBe(200)
  expect(asked).toEqual([])
})

const TOKEN = '/headers/Consistency-Token'
const FOREIGN = 'is not a token of this API; send the Consistency-Token of an earlier response, unchanged'
test.each(['', '12345678901234567', '-1', '1.5', '0x10', '1, 2', 'eyJhIjoxfQ'])(
  'a token %j is refused',
  async (token) => {
    const response = await api.call({ path: '/projects/demo/modules', headers: { 'consistency-token': token } })
    expectIssues(response, [`${TOKEN} ${FOREIGN}`])
    expect(asked).toEqual([])
  },
)

test('without replicas there is no token, and one that is sent has no effect but that its form is checked', async () => {
  const plain = await createTestApp()
  onTestFinished(() => plain.close())
  expect(tokenOf(await plain.call({ method: 'POST', path: '/projects/demo/events', body: EVENT }))).toBeUndefined()
  const read = (token: string) =>
    plain.call({ path: '/projects/demo/modules', headers: { 'consistency-token': token } })
  expect((await read('9999999999999999')).statusCode).toBe(200)
  expectIssues(await read('x'), [`${TOKEN} ${FOREIGN}`])
})

test('the metrics tell which replicas are in use', async () => {
  const { body } = await api.call({ path: '/metrics', key: null })
  expect(body.split('\n').filter((line) => /^flowtrail_(replica|server)_/.test(line))).toEqual([
    'flowtrail_replica_usable{replica="one:5432/flowtrail"} 1',
    'flowtrail_replica_usable{replica="two:5432/flowtrail"} 0',
    'flowtrail_replica_lag_seconds{replica="one:5432/flowtrail"} 0.25',
    'flowtrail_replica_lag_seconds{replica="two:5432/flowtrail"} +Inf',
    'flowtrail_server_reads_total{server="primary"} 4',
    'flowtrail_server_reads_total{server="one:5432/flowtrail"} 3',
    'flowtrail_server_reads_total{server="two:5432/flowtrail"} 2',
    'flowtrail_replica_fallbacks_total{replica="one:5432/flowtrail"} 1',
    'flowtrail_replica_fallbacks_total{replica="two:5432/flowtrail"} 0',
  ])
})
