import { expect, test } from 'vitest'
import { readConfig } from '../../src/config.ts'
import { judgeDisk, judgeSchema } from '../../src/doctor/diagnose.ts'
import { judgeDocument } from '../../src/doctor/document.ts'
import { judgeClock, SESSION_CHECKS } from '../../src/doctor/session-checks.ts'

// What a database of a test cannot show: each check's judgement of what its query could return.

const judge = (name: string, row: object, settings: Record<string, string> = {}) => {
  const check = SESSION_CHECKS.find((one) => one.name === name)
  return check?.judge(row, readConfig(settings))
}
const settings = (values: Record<string, string>, from: string | null = null) => ({
  settings: Object.fromEntries(Object.entries(values).map(([name, value]) => [name, { value, from }])),
})

test.each([
  ['version', { version: '14.20', major: 14 }, 'error', /Upgrade PostgreSQL to 15 to 18/],
  ['version', { version: '15.0', major: 15 }, 'ok', undefined],
  ['version', { version: '18.1', major: 18 }, 'ok', undefined],
  ['version', { version: '19beta1', major: 19 }, 'warning', /newer Flowtrail/],
  ['fsync', { fsync: 'on' }, 'ok', undefined],
  ['fsync', { fsync: 'off' }, 'error', /ALTER SYSTEM SET fsync = on/],
  ['full_page_writes', { full_page_writes: 'on' }, 'ok', undefined],
  ['full_page_writes', { full_page_writes: 'off' }, 'warning', /ALTER SYSTEM SET full_page_writes = on/],
  ['writable', { is_standby: true, ...settings({ default_transaction_read_only: 'off' }) }, 'error', /primary/],
  ['writable', settings({ default_transaction_read_only: 'on' }, 'ROLE app'), 'error', /^ALTER ROLE app RESET/],
  ['synchronous_commit', settings({ synchronous_commit: 'remote_apply' }), 'ok', undefined],
  ['synchronous_commit', settings({ synchronous_commit: 'off' }), 'warning', /postgresql\.conf/],
  ['timeouts', settings({ lock_timeout: '0', transaction_timeout: '0' }), 'ok', undefined],
  ['timeouts', settings({ lock_timeout: '0', transaction_timeout: '5' }), 'warning', /transaction_timeout/],
  [
    'timeouts',
    settings({ lock_timeout: '7', transaction_timeout: '5' }, 'ROLE app'),
    'warning',
    /^ALTER ROLE app RESET lock_timeout; ALTER ROLE app RESET transaction_timeout$/,
  ],
])('%s of %j: %s', (name, row, status, fix) => {
  const found = judge(name, row)
  expect(found?.status).toBe(status)
  expect(found?.fix ?? '').toMatch(fix ?? /^$/)
})

test('connections are compared with the strictest limit, and those in use with that of the server', () => {
  const pools = { READ_CONNECTIONS: '3', WRITE_CONNECTIONS: '4', IMPORT_CONNECTIONS: '8' }
  const limits = { server: 97, others: 0, role: -1, database: -1 }
  const found = (changed: object, settings = {}) =>
    judge('connections', { ...limits, ...changed }, { ...pools, ...settings })
  expect(found({})).toMatchObject({ status: 'ok', finding: expect.stringMatching(/up to 15 .*PostgreSQL has 97$/) })
  expect(found({ server: 15 })).toMatchObject({ status: 'ok' })
  expect(found({ server: 15 }, { IDEMPOTENCY_RETENTION_DAYS: '1' })).toMatchObject({ status: 'error' })
  expect(found({ server: 16 }, { IDEMPOTENCY_RETENTION_DAYS: '1' })).toMatchObject({ status: 'ok' })
  const replicas = { DATABASE_URL: 'postgres://primary/x', DATABASE_REPLICA_URLS: 'postgres://replica/x' }
  expect(found({ server: 16 }, replicas)).toMatchObject({ status: 'ok' })
  expect(found({ server: 15 }, replicas)).toMatchObject({
    status: 'error',
    finding: expect.stringContaining('IMPORT_CONNECTIONS and one to compare replicas with)'),
  })
  expect(found({ server: 14 })).toMatchObject({ status: 'error', fix: expect.stringContaining('max_connections') })
  expect(found({ role: 14 })).toMatchObject({ status: 'error', fix: expect.stringContaining('ALTER ROLE') })
  expect(found({ database: 0, role: 14 })).toMatchObject({
    status: 'error',
    fix: expect.stringContaining('ALTER DATABASE'),
  })
  expect(found({ others: 82 })).toMatchObject({ status: 'ok' })
  expect(found({ others: 83 })).toMatchObject({ status: 'warning', finding: expect.stringContaining('others use 83') })
  expect(judge('connections', limits, { ...pools, WORKERS: '6' })).toMatchObject({ status: 'ok' })
  expect(judge('connections', limits, { ...pools, WORKERS: '7' })).toMatchObject({
    status: 'error',
    finding: expect.stringContaining('up to 105 (WORKERS times READ_CONNECTIONS'),
  })
})

test.each([
  [0, 0, 'ok', "0.0 s from the database's"],
  [1_000, 0, 'ok', "1.0 s from the database's"],
  [1_100, 0, 'warning', "1.1 s ahead of the database's"],
  [-2_500, 0, 'warning', "2.5 s behind the database's"],
  // A slow network is not a clock that is wrong.
  [-2_500, 1_500, 'ok', "2.5 s from the database's"],
])('a clock that differs by %i ms, or by up to %i less: %s', (difference_ms, error_ms, status, finding) => {
  expect(judgeClock(difference_ms, error_ms)).toMatchObject({ status, finding })
})

test.each([
  [2, 'ok'],
  [1.9, 'warning'],
  [0.25, 'warning'],
  [0.2, 'error'],
])('%d GiB that are free: %s', (free_GiB, status) => {
  expect(judgeDisk(free_GiB, '/data')).toMatchObject({
    status,
    finding: `${free_GiB.toFixed(1)} GiB are free for /data`,
  })
})

test('the document that is served is the one that is installed, wherever the server is', () => {
  const document = (version: string, more = {}) => ({ info: { title: 'Flowtrail API', version }, ...more })
  const judged = (served: object | null) =>
    judgeDocument(document('1.2.0', { servers: [1] }), served, 'http://localhost')
  expect(judged(document('1.2.0', { servers: [2], externalDocs: 3 }))).toMatchObject({ status: 'ok' })
  expect(judged(document('1.1.0'))).toMatchObject({
    status: 'warning',
    finding: expect.stringContaining('serves 1.1.0'),
  })
  expect(judged(document('1.2.0', { paths: {} }))).toMatchObject({ status: 'warning' })
  for (const another of [{ info: { title: 'Another API' } }, {}, null]) {
    expect(judged(another)).toMatchObject({ status: 'ok', finding: expect.stringContaining('is not Flowtrail') })
  }
})

test.each([
  [['0001-a', '0002-b'], [], [], 'ok', 'up to date'],
  [['0001-a'], ['0002-b'], [], 'error', 'pending migrations: 0002-b'],
  [['0001-a'], [], ['0002-c'], 'ok', 'of the next release (0002-c), which this one runs on, too'],
  [['0001-a'], [], ['0003-d'], 'error', expect.stringContaining('0003-d')],
])('of the schema %j, with %j pending and %j unknown: %s', (applied, pending, unknown, status, finding) => {
  const appliedAt = new Date(0)
  const migrations = [
    ...applied.map((name) => ({ name, appliedAt, isKnown: true })),
    ...pending.map((name) => ({ name, appliedAt: undefined, isKnown: true })),
    ...unknown.map((name) => ({ name, appliedAt, isKnown: false })),
  ]
  expect(judgeSchema(migrations, false)).toMatchObject({ status, finding })
})
