import { sql } from 'kysely'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { destroySocket } from '../../src/database/client.ts'
import { openWritePool } from '../../src/database/open.ts'
import { SELECT_WAL_POSITION } from '../../src/database/wal-position.ts'
import { toApiError } from '../../src/http/error-handler.ts'
import type { Recorder } from '../../src/recording/recorder.ts'
import { importInto, type TestApp } from '../support/app.ts'
import { isOnCitus } from '../support/citus.ts'
import { type HeldLock, holdProject } from '../support/waiting.ts'
import {
  contact,
  createRecordingApp,
  entry,
  eventsOf,
  freshValue,
  IMPORTED_CONTACT,
  pageView,
  parsedEvent,
  recorderOn,
  rowCounts,
  waitersFor,
  watchStatements,
} from './fixture.ts'

let api: TestApp
let pool: pg.Pool
let recorder: Recorder
beforeAll(async () => {
  api = await createRecordingApp()
  pool = openWritePool(api.databaseUrl, { max: 2 })
  recorder = recorderOn(pool)
})
afterAll(async () => {
  await pool.end()
  await api.close()
})

const PROJECTS = ['demo', 'other', 'third']

const codeOf = (error: unknown) => toApiError(error).errorCode
const named = (...values: string[]) => values.map((value, i) => ({ key: `k${i}`, value }))

/** How many transactions begin during `work`. */
async function transactionsOf(work: () => Promise<unknown>): Promise<number> {
  const { transactions } = watchStatements()
  await work()
  return transactions()
}

describe('events that arrive together', () => {
  // On a cluster a transaction is of one shard (ADR 0033).
  test.skipIf(isOnCitus)('share a transaction, across projects, and each caller gets its own result', async () => {
    const events = Array.from({ length: 40 }, (_, i) => ({
      projectId: i % 2 ? 'demo' : 'other',
      name: `together ${i}`,
    }))
    const results: { body: { project_id: string; custom_event_name: string; entry_id: string } }[] = []
    const transactions = await transactionsOf(async () => {
      const recorded = events.map(({ projectId, name }) =>
        recorder.record(projectId, parsedEvent({ custom_event_name: name })),
      )
      results.push(...(await Promise.all(recorded)))
    })
    expect(transactions).toBe(1)
    expect(results.map(({ body }) => [body.project_id, body.custom_event_name])).toEqual(
      events.map(({ projectId, name }) => [projectId, name]),
    )
    expect(new Set(results.map(({ body }) => body.entry_id)).size).toBe(40)
  })

  test('start batches once', async () => {
    const scheduled = vi.spyOn(globalThis, 'setImmediate')
    const recorded = Array.from({ length: 3 }, () => recorder.record('demo', parsedEvent()))
    expect(scheduled).toHaveBeenCalledOnce()
    vi.restoreAllMocks()
    await Promise.all(recorded)
  })

  test('gather while the previous batch commits', async () => {
    // On a slow machine too, it must not try again and so begin a transaction more.
    const patient = recorderOn(pool, { lockTimeout_ms: 10_000 })
    const obstacle = await holdProject(api.databaseUrl)
    const first = patient.record('demo', parsedEvent())
    await obstacle.waiting(1)
    const transactions = await transactionsOf(async () => {
      const others = Array.from({ length: 30 }, () => patient.record('demo', parsedEvent()))
      await obstacle.release()
      await Promise.all([first, ...others])
    })
    expect(transactions).toBe(1)
  })

  test('fill a batch up to its limit; the rest go in the next ones', async () => {
    const small = recorderOn(pool, { maxBatchSize: 4 })
    const transactions = await transactionsOf(() =>
      Promise.all(Array.from({ length: 10 }, () => small.record('demo', parsedEvent()))),
    )
    expect(transactions).toBe(3)
  })

  test('fill a batch up to its limit from several projects', async () => {
    const small = recorderOn(pool, { maxBatchSize: 4 })
    const transactions = await transactionsOf(() =>
      Promise.all(Array.from({ length: 9 }, (_, i) => small.record(PROJECTS[i % 3] ?? '', parsedEvent()))),
    )
    expect(transactions).toBe(3)
  })

  test.each([
    ['1,000 are one batch while no other project waits', [{ id: 'demo', count: 1_000 }], 1],
    [
      '256 are a batch while another waits, which comes with the rest',
      [
        { id: 'demo', count: 2 * 256 },
        { id: 'other', count: 1 },
      ],
      3,
    ],
  ])('%s', async (_, projects, expected) => {
    // It does not know yet whether they share a shard.
    const fresh = recorderOn(pool)
    const transactions = await transactionsOf(() =>
      Promise.all(
        projects.flatMap(({ id, count }) => Array.from({ length: count }, () => fresh.record(id, parsedEvent()))),
      ),
    )
    expect(transactions).toBe(expected)
  })

  test('have the outcome of one after another: each sees the contacts that earlier ones added or extended', async () => {
    const [a, b, c] = [freshValue(), freshValue(), freshValue()]
    const outcomes = await Promise.all(
      [named(a), named(a, b), [{ key: 'k1', value: b }], [{ key: 'k2', value: c }], named(a, b, c)].map((identifiers) =>
        recorder.record('demo', parsedEvent({ identifiers })).then(({ body }) => body, codeOf),
      ),
    )
    const [first, second, third, fourth, fifth] = outcomes as { contact_id: string; entry_id: string }[]
    expect([second, third]).toMatchObject([first, first].map((one) => ({ contact_id: one?.contact_id })))
    expect([second, third]).toMatchObject([first, first].map((one) => ({ entry_id: one?.entry_id })))
    expect(fourth?.contact_id).not.toBe(first?.contact_id)
    expect(fifth).toBe('identifier_conflict')
  })

  test('leave nothing behind for later ones when they are refused', async () => {
    const [a, b, fresh] = [freshValue(), freshValue(), freshValue()]
    const identifiers = [named(a), [{ key: 'k1', value: b }], named(a, b, fresh), [{ key: 'k2', value: fresh }]]
    const outcomes = await Promise.all([
      ...identifiers.map((one) =>
        recorder.record('demo', parsedEvent({ identifiers: one })).then(({ body }) => body, codeOf),
      ),
      recorder.record('demo', parsedEvent({ module_id: 'absent', identifiers: named(freshValue()) })).catch(codeOf),
    ])
    expect(outcomes[2]).toBe('identifier_conflict')
    expect(outcomes[4]).toBe('module_does_not_exist')
    const { contact_id } = outcomes[3] as { contact_id: string }
    expect([outcomes[0], outcomes[1]].map((one) => (one as { contact_id: string }).contact_id)).not.toContain(
      contact_id,
    )
  })

  test('of a new contact in one module share an entry, created at the time of the first', async () => {
    const identifiers = named(freshValue())
    const [late, early] = ['2026-03-02T00:00:00Z', '2026-03-01T00:00:00Z']
    const outcomes = await Promise.all([
      recorder.record('demo', parsedEvent({ identifiers, timestamp: late })),
      recorder.record('demo', parsedEvent({ identifiers, timestamp: early })),
      recorder.record('demo', parsedEvent({ identifiers, timestamp: early, module_id: 'booking' })),
    ])
    const [first, second, third] = outcomes.map(({ body }) => body)
    expect(second?.entry_id).toBe(first?.entry_id)
    expect(third?.entry_id).not.toBe(first?.entry_id)
    const stored = await api.call({ path: `/projects/demo/entries/${first?.entry_id}` })
    expect(stored.json().created_at).toBe('2026-03-02T00:00:00.000Z')
  })

  test('each have the furthest page at their own time', async () => {
    await importInto(api.databaseUrl, [
      contact('walker'),
      entry('walk', 'walker', 'quiz', '2026-01-10T00:00:00Z'),
      pageView('walk', 'w1', '2026-01-10T00:00:01Z', 0, 3),
      pageView('walk', 'w2', '2026-01-10T00:00:02Z', 1, 3),
    ])
    const identifiers = [{ key: 'contact_id', value: '"walker"' }]
    const instants = ['2026-01-10T00:00:00Z', '2026-01-10T00:00:01Z', '2026-01-10T00:00:05Z']
    await Promise.all(instants.map((timestamp) => recorder.record('demo', parsedEvent({ identifiers, timestamp }))))
    const custom = (await eventsOf(api, 'walk')).filter((event) => event.custom_event_name !== undefined)
    expect(custom.map((event) => event.max_page_index)).toEqual([undefined, 0, 1])
  })

  test('are one event if they and their Idempotency-Key are equal; a different event under the key is refused', async () => {
    const event = parsedEvent({ identifiers: named(freshValue()) })
    const before = await rowCounts(api)
    const outcomes = await Promise.all([
      recorder.record('demo', event, 'shared-key'),
      recorder.record('demo', event, 'shared-key'),
      recorder.record('demo', parsedEvent(), 'shared-key').catch(codeOf),
      recorder.record('other', event, 'shared-key'),
    ])
    const [first, second] = outcomes as { body: object; replayed: boolean }[]
    expect(first?.replayed).toBe(false)
    expect(second).toEqual({ body: first?.body, replayed: true })
    expect(outcomes[2]).toBe('idempotency_key_reused')
    expect(outcomes[3]).toMatchObject({ replayed: false })
    expect((await rowCounts(api)).events).toBe((before.events ?? 0) + 2)
  })

  test('may use an Idempotency-Key whose first event was refused', async () => {
    const outcomes = await Promise.all([
      recorder.record('demo', parsedEvent({ module_id: 'absent' }), 'reused-key').catch(codeOf),
      recorder.record('demo', parsedEvent(), 'reused-key'),
    ])
    expect(outcomes).toMatchObject(['module_does_not_exist', { replayed: false }])
  })
})

describe('an event belongs to the entry of its contact', () => {
  const record = async (identifiers: { key: string; value: string }[], projectId = 'demo') =>
    (await recorder.record(projectId, parsedEvent({ identifiers }))).body

  test('also if it is named by an identifier `contact_id` that is no id of a contact', async () => {
    const [email, other] = [
      { key: 'email', value: freshValue() },
      { key: 'contact_id', value: freshValue() },
    ]
    const first = await record([email, other])
    expect(await record([other])).toMatchObject({ contact_id: first.contact_id, entry_id: first.entry_id })
    expect(await record([other, email])).toMatchObject({ contact_id: first.contact_id, entry_id: first.entry_id })
  })

  test('also if the identifier before the known one is new', async () => {
    const [email, phone] = [
      { key: 'email', value: freshValue() },
      { key: 'phone', value: freshValue() },
    ]
    const first = await record([email])
    expect(await record([phone, email])).toMatchObject({ contact_id: first.contact_id, entry_id: first.entry_id })
  })

  test('of its own project, when another has the same identifier in the same batch', async () => {
    const identifiers = [{ key: 'email', value: freshValue() }]
    const before = [await record(identifiers), await record(identifiers, 'other')]
    const after = await Promise.all([record(identifiers), record(identifiers, 'other')])
    const placeOf = ({ project_id, contact_id, entry_id }: (typeof before)[number]) => [
      project_id,
      contact_id,
      entry_id,
    ]
    expect(after.map(placeOf)).toEqual(before.map(placeOf))
    expect(before[0]?.entry_id).not.toBe(before[1]?.entry_id)
  })
})

describe('a transaction sends the statements that its events need, and no others', () => {
  // Opens the connection.
  beforeAll(async () => {
    await recorder.record('demo', parsedEvent())
  })

  interface Post {
    identifiers: { key: string; value: string }[]
    idempotencyKey?: string
  }

  const IMPORTED = { key: 'email', value: '"imported@example.com"' }
  const READS = ['select projects', 'select events', 'select modules', 'select entries']

  test.each([
    [
      'an event of a new contact',
      { identifiers: [{ key: 'email', value: freshValue() }] },
      READS,
      ['insert contacts', 'insert contact_identifiers', 'insert entries', 'insert events'],
    ],
    ['an event of a known contact with an entry', { identifiers: [IMPORTED] }, READS, ['insert events']],
    [
      'a new identifier of a known contact',
      { identifiers: [IMPORTED, { key: 'phone', value: freshValue() }] },
      [...READS, 'select contact_identifiers'],
      ['insert contact_identifiers', 'insert events'],
    ],
    [
      'a new identifier before that of a known contact',
      { identifiers: [{ key: 'phone', value: freshValue() }, IMPORTED] },
      [...READS, 'select contact_identifiers', 'select entries'],
      ['insert contact_identifiers', 'insert events'],
    ],
    [
      'an event of a contact by its own id',
      { identifiers: [{ key: 'contact_id', value: JSON.stringify(IMPORTED_CONTACT) }] },
      [...READS, 'select contact_identifiers', 'select contacts'],
      ['insert events'],
    ],
    [
      'an event with an Idempotency-Key',
      { identifiers: [IMPORTED], idempotencyKey: 'k' },
      [...READS, 'select idempotency_keys'],
      ['insert events', 'insert idempotency_keys'],
    ],
    ['a repetition', { identifiers: [IMPORTED], idempotencyKey: 'k' }, [...READS, 'select idempotency_keys'], []],
  ])('%s', async (_, { identifiers, idempotencyKey }: Post, reads, writes) => {
    const { statements } = watchStatements()
    await recorder.record('demo', parsedEvent({ identifiers }), idempotencyKey)
    expect(statements()).toEqual(['BEGIN', ...reads, ...writes, 'COMMIT'])
  })
})

// By a trigger, which Citus refuses.
describe.skipIf(isOnCitus)('an event that PostgreSQL refuses', () => {
  /** Makes inserting events of this name fail, as a bug would. */
  const failOn = (name: string) =>
    sql
      .raw(`CREATE FUNCTION fail_on_name() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.custom_event_name = '${name}' THEN RAISE EXCEPTION USING ERRCODE = '22012'; END IF; RETURN NEW;
      END $$; CREATE TRIGGER fail_on_name BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION fail_on_name()`)
      .execute(api.db)
  const stopFailing = () => sql.raw('DROP TRIGGER fail_on_name ON events; DROP FUNCTION fail_on_name').execute(api.db)

  test('fails alone; the rest of its batch is recorded, once, in order', async () => {
    await failOn('faulty')
    const identifiers = named(freshValue())
    const names = ['one', 'faulty', 'two', 'faulty', 'three']
    const { transactions } = watchStatements()
    const opened = vi.fn()
    pool.on('connect', opened)
    const outcomes = await Promise.all(
      names.map((custom_event_name) =>
        recorder.record('demo', parsedEvent({ identifiers, custom_event_name })).then(({ body }) => body, codeOf),
      ),
    )
    await stopFailing()
    // One of the batch, and one of each event.
    expect(transactions()).toBe(6)
    // A connection whose transaction failed goes on.
    expect(opened).not.toHaveBeenCalled()
    expect(outcomes.map((outcome) => (typeof outcome === 'string' ? outcome : outcome.custom_event_name))).toEqual([
      'one',
      'internal_error',
      'two',
      'internal_error',
      'three',
    ])
    const { entry_id } = outcomes[0] as { entry_id: string }
    expect((await eventsOf(api, entry_id)).map((event) => event.custom_event_name)).toEqual(['one', 'two', 'three'])
    await recorder.record('demo', parsedEvent({ custom_event_name: 'faulty' }))
  })

  test('fails alone in a batch of two', async () => {
    await failOn('faulty')
    const outcomes = await Promise.all(
      ['faulty', 'fine'].map((custom_event_name) =>
        recorder.record('demo', parsedEvent({ custom_event_name })).then(({ body }) => body.custom_event_name, codeOf),
      ),
    )
    await stopFailing()
    expect(outcomes).toEqual(['internal_error', 'fine'])
  })

  test('does not change the order of the rest of its batch when the project is locked meanwhile', async () => {
    await failOn('faulty')
    const identifiers = named(freshValue())
    const send = pg.Client.prototype.query as (...args: unknown[]) => Promise<unknown>
    let obstacle: HeldLock | undefined
    const spy = vi.spyOn(pg.Client.prototype, 'query').mockImplementation(function (
      this: pg.Client,
      ...args: unknown[]
    ) {
      const sent = send.apply(this, args)
      if (args[0] === 'ROLLBACK' && !obstacle) {
        return sent.then(async () => {
          obstacle = await holdProject(api.databaseUrl)
        }) as never
      }
      return (args[0] === 'COMMIT' ? sent.then(() => obstacle?.release()) : sent) as never
    })
    const [first] = await Promise.all(
      ['first', 'faulty', 'last'].map((custom_event_name) =>
        recorder.record('demo', parsedEvent({ identifiers, custom_event_name })).catch(codeOf),
      ),
    )
    spy.mockRestore()
    await stopFailing()
    const { entry_id } = (first as { body: { entry_id: string } }).body
    expect((await eventsOf(api, entry_id)).map((event) => event.custom_event_name)).toEqual(['first', 'last'])
  })
})

describe('a project that is locked by another process', () => {
  test('delays its own events only', async () => {
    const obstacle = await holdProject(api.databaseUrl)
    const delayed = [recorder.record('demo', parsedEvent()), recorder.record('demo', parsedEvent())]
    const others = Array.from({ length: 5 }, () => recorder.record('other', parsedEvent()))
    await Promise.all(others)
    await obstacle.waiting(1)
    for (let i = 0; i < 3; i += 1) await recorder.record('other', parsedEvent())
    await obstacle.release()
    await Promise.all(delayed)
    await recorder.record('demo', parsedEvent())
  })

  test('does not delay another one whose lock was released', async () => {
    const largerPool = openWritePool(api.databaseUrl, { max: 4 })
    const recorder = recorderOn(largerPool, { lockTimeout_ms: 500, maxQueueWait_ms: 600_000 })
    const { lockTimeouts } = watchStatements()
    const [demo, other, third] = [
      await holdProject(api.databaseUrl, 'demo'),
      await holdProject(api.databaseUrl, 'other'),
      await holdProject(api.databaseUrl, 'third'),
    ]
    const delayed = ['demo', 'other'].map((id) => recorder.record(id, parsedEvent()))
    await demo.waiting(2)
    const recorded = recorder.record('third', parsedEvent())
    // The first two take up both batches that may wait: the third waits for its lock only once one of them has given up.
    await expect.poll(() => waitersFor(third), { interval: 5 }).toBe(1)
    expect(lockTimeouts()).toBeGreaterThan(0)
    await third.release()
    // While the other two are still locked.
    await recorded
    await Promise.all([demo.release(), other.release()])
    await Promise.all(delayed)
    await largerPool.end()
  })

  test('has its events in the order of their arrival', async () => {
    const identifiers = named(freshValue())
    const record = (custom_event_name: string) =>
      recorder.record('demo', parsedEvent({ identifiers, custom_event_name }))
    const obstacle = await holdProject(api.databaseUrl)
    const recorded = ['a', 'b', 'c'].map(record)
    await obstacle.waiting(1)
    recorded.push(record('d'))
    await obstacle.release()
    const [first] = await Promise.all(recorded)
    const events = await eventsOf(api, first?.body.entry_id ?? '')
    expect(events.map((event) => event.custom_event_name)).toEqual(['a', 'b', 'c', 'd'])
  })
})

test('a project that was deleted has no modules', async () => {
  const transactions = await transactionsOf(() =>
    expect(recorder.record('deleted', parsedEvent()).catch(codeOf)).resolves.toBe('module_does_not_exist'),
  )
  expect(transactions).toBe(2)
})

test('a project with more events than fit a batch does not starve the others', async () => {
  const small = recorderOn(pool, { maxBatchSize: 4 })
  const order: string[] = []
  const busy = ['demo', 'other'].flatMap((id) =>
    Array.from({ length: 12 }, () => small.record(id, parsedEvent()).then(() => order.push(id))),
  )
  await Promise.all([...busy, small.record('third', parsedEvent()).then(() => order.push('third'))])
  expect(order.indexOf('third')).toBeLessThan(16)
})

test('a transaction whose connection breaks during the commit is not repeated, whatever the error', async () => {
  const send = pg.Client.prototype.query as (...args: unknown[]) => Promise<unknown>
  const events = async () => (await rowCounts(api)).events ?? 0
  const before = await events()
  vi.spyOn(pg.Client.prototype, 'query').mockImplementation(function (this: pg.Client, ...args: unknown[]) {
    const sent = send.apply(this, args)
    if (args[0] !== 'COMMIT') return sent as never
    return sent.then(() => {
      destroySocket(this)
      throw Object.assign(new Error('bad record'), { code: 'ERR_SSL_BAD_RECORD' })
    }) as never
  })
  const failure = (error: Error) => [codeOf(error), (error.cause as Error).message]
  const outcomes = await Promise.all(
    Array.from({ length: 3 }, () => recorder.record('demo', parsedEvent()).catch(failure)),
  )
  vi.restoreAllMocks()
  expect(outcomes).toEqual(Array(3).fill(['service_unavailable', 'bad record']))
  expect(await events()).toBe(before + 3)
})

test('an event is recorded once, without its position, when that cannot be read', async () => {
  const withPositions = recorderOn(pool, { readsPosition: true })
  const record = () => withPositions.record('demo', parsedEvent())
  expect((await record()).position).toBeGreaterThan(0)
  const { events: before = 0 } = await rowCounts(api)
  const send = pg.Client.prototype.query as (...args: unknown[]) => unknown
  vi.spyOn(pg.Client.prototype, 'query').mockImplementation(function (this: pg.Client, ...args: unknown[]) {
    const { name } = args[0] as { name?: string }
    return (name === SELECT_WAL_POSITION.name ? Promise.reject(new Error('none')) : send.apply(this, args)) as never
  })
  const recorded = await record()
  vi.restoreAllMocks()
  expect(recorded).toMatchObject({ replayed: false, position: undefined })
  expect((await rowCounts(api)).events).toBe(before + 1)
})

test('a recorder keeps no process running', async () => {
  const timers = vi.spyOn(globalThis, 'setTimeout')
  const recorded = recorderOn(pool).record('demo', parsedEvent())
  expect(timers.mock.results.map(({ value }) => value.hasRef())).toEqual([false])
  vi.restoreAllMocks()
  await recorded
})
