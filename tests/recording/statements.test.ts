import type pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openWritePool } from '../../src/database/open.ts'
import { Recorder } from '../../src/recording/recorder.ts'
import type { TestApp } from '../support/app.ts'
import { createRecordingApp, freshValue, IMPORTED_CONTACT, parsedEvent, watchStatements } from './fixture.ts'

// A transaction sends the statements that its events need and no others: each costs every post its share.

let api: TestApp
let pool: pg.Pool
let recorder: Recorder
beforeAll(async () => {
  api = await createRecordingApp()
  pool = openWritePool(api.databaseUrl, { max: 2 })
  recorder = new Recorder(pool)
  // Opens the connection.
  await recorder.record('demo', parsedEvent())
})
afterAll(async () => {
  await pool.end()
  await api.close()
})

interface Post {
  identifiers: { key: string; value: string }[]
  idempotencyKey?: string
}

const IMPORTED = { key: 'email', value: '"imported@example.com"' }
const READS = ['select projects', 'select modules', 'select contact_identifiers']

test.each([
  [
    'an event of a new contact',
    { identifiers: [{ key: 'email', value: freshValue() }] },
    READS,
    ['insert contacts', 'insert contact_identifiers', 'insert entries', 'insert events'],
  ],
  [
    'an event of a known contact with an entry',
    { identifiers: [IMPORTED] },
    [...READS, 'select entries'],
    ['insert events'],
  ],
  [
    'a new identifier of a known contact',
    { identifiers: [IMPORTED, { key: 'phone', value: freshValue() }] },
    [...READS, 'select entries'],
    ['insert contact_identifiers', 'insert events'],
  ],
  [
    'an event of a contact by its own id',
    { identifiers: [{ key: 'contact_id', value: JSON.stringify(IMPORTED_CONTACT) }] },
    [...READS, 'select contacts', 'select entries'],
    ['insert events'],
  ],
  [
    'an event with an Idempotency-Key',
    { identifiers: [IMPORTED], idempotencyKey: 'k' },
    [...READS, 'select idempotency_keys', 'select entries'],
    ['insert events', 'insert idempotency_keys'],
  ],
  ['a repetition', { identifiers: [IMPORTED], idempotencyKey: 'k' }, [...READS, 'select idempotency_keys'], []],
])('the statements of %s', async (_, { identifiers, idempotencyKey }: Post, reads, writes) => {
  const { statements } = watchStatements()
  await recorder.record('demo', parsedEvent({ identifiers }), idempotencyKey)
  expect(statements()).toEqual(['BEGIN', ...reads, ...writes, 'COMMIT'])
})
