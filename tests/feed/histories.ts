import { setTimeout } from 'node:timers/promises'
import fc from 'fast-check'
import type pg from 'pg'
import { expect } from 'vitest'
import { isUnavailable } from '../../src/database/failures.ts'
import { connect, connectShared, openWritePool } from '../../src/database/open.ts'
import { createPool } from '../../src/database/pool.ts'
import type { Wait } from '../../src/domain/read-lease.ts'
import { Followers } from '../../src/feed/followers.ts'
import { listErasures } from '../../src/handlers/erasures.ts'
import { listProjectEvents } from '../../src/handlers/events.ts'
import { eraseContact } from '../../src/queries/erasures.ts'
import type { Recorder } from '../../src/recording/recorder.ts'
import { Importer } from '../../src/transfer/importer.ts'
import { parsedEvent, recorderOn } from '../recording/fixture.ts'
import { EXAMPLES, importFile } from '../support/app.ts'
import { createTestDatabase } from '../support/database.ts'
import { UNLIMITED } from '../support/lease.ts'
import { load } from '../transfer/fixture.ts'

// Histories of a project: several clients record and import at once, some of their transactions are held open at the commit
// or ended by the database, a visitor is erased, and followers keep copies. Chance decides what is done; how it interleaves is
// up to the machine.

/** A transaction is held open when its events have their positions, while followers read. */
interface Hold {
  at: 'insert' | 'commit'
  /** For how many queries of another session. */
  queries: number
  /** Whether a bystander is to record an event meanwhile, who has to wait. */
  blocks: boolean
  end: 'commit' | 'cancel' | 'terminate'
}

/** A third process, which records when the others are to be overtaken. */
const BYSTANDER = 2

interface Import {
  kind: 'import'
  events: number
  hold: Hold | undefined
}

interface Recording extends Omit<Import, 'kind'> {
  kind: 'record'
  process: 0 | 1 | typeof BYSTANDER
  areLarge: boolean
  /** Whether the events are of the visitor, whom others erase, or of a contact who stays. */
  ofVisitor: boolean
}

type Step =
  | Recording
  | Import
  /** An event gets its position from a server whose clock is ahead. */
  | { kind: 'clock' }
  | { kind: 'erase' }
  /** A connection that is recording or importing is terminated. */
  | { kind: 'kill' }

interface History {
  /** Of the followers' pages. */
  limit: number
  /** Whether the bystander overtakes each of the first transactions right before it locks the project. */
  overtaken: boolean[]
  /** What each client does, one step after another. */
  clients: Step[][]
}

const constant = fc.constant
const hold: fc.Arbitrary<Hold> = fc.record({
  at: fc.constantFrom('insert', 'commit'),
  queries: fc.integer({ min: 1, max: 12 }),
  blocks: fc.boolean(),
  end: fc.constantFrom('commit', 'commit', 'cancel', 'terminate'),
})
const events = fc.integer({ min: 1, max: 6 })
const holdOneIn = (times: number) =>
  fc.oneof({ weight: times - 1, arbitrary: constant(undefined) }, { weight: 1, arbitrary: hold })
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record<Recording>({
      ...{ kind: constant('record'), process: fc.constantFrom(0, 1) },
      ...{ events, areLarge: fc.boolean(), ofVisitor: fc.boolean(), hold: holdOneIn(3) },
    }),
  },
  { weight: 1, arbitrary: fc.record<Import>({ kind: constant('import'), events, hold: holdOneIn(2) }) },
  { weight: 1, arbitrary: constant<Step>({ kind: 'clock' }) },
  { weight: 2, arbitrary: constant<Step>({ kind: 'erase' }) },
  { weight: 1, arbitrary: constant<Step>({ kind: 'kill' }) },
)

export const history: fc.Arbitrary<History> = fc.record({
  limit: fc.integer({ min: 1, max: 20 }),
  overtaken: fc.array(fc.boolean(), { minLength: 6, maxLength: 6 }),
  clients: fc.array(fc.array(step, { minLength: 1, maxLength: 3 }), { minLength: 2, maxLength: 4, size: 'max' }),
})

/** Nothing that comes after it wakes those who wait, should they have been told of it before it was committed. */
const LAST: Step = {
  ...{ kind: 'record', process: 0, events: 1, areLarge: false, ofVisitor: false },
  hold: { at: 'commit', queries: 4, blocks: false, end: 'commit' },
}

/** How each follower keeps its place, and for how many seconds it waits: longer than a history takes. */
const FOLLOWERS = [
  { by: 'cursor', wait: 0 },
  { by: 'after', wait: 0 },
  { by: 'after', wait: 10 },
] as const

/** Holds an event `held at <insert or commit> <number>` while a session has the advisory lock of the number. */
const MAKE_HOLDS = `
  CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_advisory_xact_lock(substr(NEW.custom_event_name, 15)::bigint);
    RETURN NULL;
  END $$;
  CREATE TRIGGER hold_insert AFTER INSERT ON events FOR EACH ROW
    WHEN (NEW.custom_event_name LIKE 'held at insert %') EXECUTE FUNCTION hold();
  CREATE CONSTRAINT TRIGGER hold_commit AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.custom_event_name LIKE 'held at commit %') EXECUTE FUNCTION hold();`

const FIND_HELD = `SELECT pid FROM pg_locks JOIN pg_database d ON d.oid = database
  WHERE datname = current_database() AND locktype = 'advisory' AND objsubid = 1 AND objid = $1 AND NOT granted`

const FIND_BLOCKED =
  'SELECT FROM pg_stat_activity WHERE datname = current_database() AND $1 = ANY (pg_blocking_pids(pid))'

const WRITER = 'writer'
const KILL = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
  WHERE datname = current_database() AND application_name = '${WRITER}' AND xact_start IS NOT NULL
  ORDER BY random() LIMIT 1`

/** Copies an event. The clock is 50 ms ahead, so that soon the others have greater positions by their clock again. */
const recordAhead = (name: string) => `
  BEGIN;
  SELECT FROM projects WHERE project_id = 'demo' FOR NO KEY UPDATE;
  INSERT INTO events SELECT (jsonb_populate_record(e, jsonb_build_object(
    'event_id', '${name}', 'custom_event_name', '${name}', 'position', greatest(p.last + 1, p.ahead)))).*
  FROM events e, (
    SELECT max(position) AS last, floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 50000 AS ahead
    FROM (SELECT project_id, position FROM events UNION ALL SELECT project_id, position FROM erasures) placed
    WHERE project_id = 'demo'
  ) p
  WHERE e.project_id = 'demo' AND e.custom_event_name IS NOT NULL ORDER BY e.position LIMIT 1;
  COMMIT`

const module_id = 'skin-quiz'
const entry_id = '019ca8bb-b5c0-7000-8000-000000000001'
const contact_id = '019ca8bb-b5c0-7000-9000-000000000001'
const identifiers = [{ key: 'email', value: '"amara.okafor@example.com"' }]
const VISITOR = [{ key: 'email', value: '"visitor@example.com"' }]
/** A page with such events is read by two queries. */
const LARGE = JSON.stringify({ text: 'x'.repeat(5_000) })

/** Delays a connection whenever it is about to lock the project. */
function delayLocks(client: pg.PoolClient, delay: () => Promise<void>): void {
  const query = client.query.bind(client) as (...statement: unknown[]) => Promise<pg.QueryResult>
  let before = Promise.resolve()
  const inTurn = (...statement: [string | pg.Submittable | pg.QueryConfig, ...unknown[]]) => {
    const [first] = statement
    // A COPY is a stream, before which nothing locks.
    if (typeof first === 'object' && 'submit' in first) return query(...statement)
    if (/for no key update/i.test(typeof first === 'string' ? first : first.text)) before = before.then(delay)
    return before.then(() => query(...statement))
  }
  client.query = inTurn as typeof client.query
}

/** As Promise.all, but once all have ended, so that nothing of a history that fails goes on in the next. */
async function allOf<Result>(promises: Promise<Result>[]): Promise<Result[]> {
  await Promise.allSettled(promises)
  return Promise.all(promises)
}

interface Seen {
  name: string | null
  contact_id: string
  position: number
}

/** What the clients of a history were told of their events. */
interface Told {
  recorded: { name: string; contact_id: string }[]
  /** Of these they do not know whether they are committed. */
  failed: string[]
}

/** Opens a database, on which `check` makes one history after another. */
export async function openHistories() {
  const database = await createTestDatabase()
  await importFile(database.url, EXAMPLES)
  const url = new URL(database.url)
  url.searchParams.set('application_name', WRITER)
  const pool = createPool(database.url)
  await pool.query(MAKE_HOLDS)
  const db = connectShared(database.url, { max: 2 })
  const eraser = connect(database.url, { max: 2 })
  const importPool = createPool(url.href)
  // Processes share no memory, and neither do recorders.
  const writePools = Array.from({ length: 3 }, () => openWritePool(url.href, { max: 2 }))
  const recorders = writePools.map((own) => recorderOn(own, { maxQueueWait_ms: 120_000 })) as [
    Recorder,
    Recorder,
    Recorder,
  ]
  const importer = new Importer(importPool)
  const followers = new Followers(db, { maxFollowers: 2 * FOLLOWERS.length, pollInterval_ms: 1 })

  /** What there was in all histories. */
  const figures = {
    histories: 0,
    events: 0,
    pages: 0,
    commit: 0,
    cancel: 0,
    terminate: 0,
    blocked: 0,
    killed: 0,
    failed: 0,
    erasures: 0,
    forgotten: 0,
  }
  /** The contact that the visitor was last. */
  let visitor = ''
  let numbers = 0
  let told: Told = { recorded: [], failed: [] }
  let overtaken: boolean[] = []

  const recordAside = () =>
    take({
      ...{ kind: 'record', process: BYSTANDER, events: 1, areLarge: false, ofVisitor: false },
      hold: undefined,
    })
  /** Lets followers read what is committed. */
  const letRead = async (queries: number) => {
    for (let i = 0; i < queries; i += 1) await pool.query('SELECT')
  }
  const delay = async () => {
    if (!overtaken.shift()) return
    await recordAside()
    await letRead(3)
  }
  for (const one of [importPool, ...writePools.slice(0, BYSTANDER)]) {
    one.on('connect', (client) => delayLocks(client, delay))
  }

  const selectAfter = async (position: number): Promise<Seen[]> => {
    const columns = 'custom_event_name AS name, contact_id, position'
    const from = 'events JOIN entries USING (project_id, entry_id)'
    const where = "project_id = 'demo' AND position > $1"
    return (await pool.query(`SELECT ${columns} FROM ${from} WHERE ${where} ORDER BY position`, [position])).rows
  }

  /** Holds the transaction of `work`, which has an event of this number, and lets it end. It may fail before. */
  async function holdOpen(number: number, { queries, blocks, end }: Hold, work: () => Promise<unknown>): Promise<void> {
    const holder = await pool.connect()
    await holder.query('SELECT pg_advisory_lock($1)', [number])
    const working = work()
    let isOver = false
    const over = () => {
      isOver = true
    }
    working.then(over, over)
    const findHeld = async () => (await pool.query<{ pid: number }>(FIND_HELD, [number])).rows[0]?.pid
    let aside: Promise<void> | undefined
    let pid: number | undefined
    while (pid === undefined && !isOver) pid = await findHeld()
    if (pid !== undefined) {
      figures[end] += 1
      if (blocks) aside = recordAside()
      await letRead(queries)
      figures.blocked += (await pool.query(FIND_BLOCKED, [pid])).rows.length
      if (end !== 'commit') {
        await pool.query(`SELECT pg_${end}_backend($1)`, [pid])
        while ((await findHeld()) === pid);
      }
    }
    await holder.query('SELECT pg_advisory_unlock($1)', [number])
    holder.release()
    await Promise.all([working, aside])
  }

  /** Begins to write events. Gives a promise for each, of the contact that it is of. */
  function write(step: Recording | Import, names: string[]): Promise<string>[] {
    if (step.kind === 'record') {
      const event = {
        ...{ module_id, identifiers: step.ofVisitor ? VISITOR : identifiers },
        custom_event_props: step.areLarge ? LARGE : '{}',
      }
      return names.map(async (custom_event_name) => {
        const { body } = await recorders[step.process].record('demo', parsedEvent({ ...event, custom_event_name }))
        if (step.ofVisitor) visitor = body.contact_id
        return body.contact_id
      })
    }
    const loading = load(
      importPool,
      names.map((name) => ({
        ...{ type: 'event', project_id: 'demo', entry_id, event_id: name, timestamp: '2026-03-01T09:31:50Z' },
        ...{ event_type: 'custom_event:triggered', custom_event_name: name, custom_event_props: '{}' },
      })),
      {},
    )
    return names.map(() => loading.then(() => contact_id))
  }

  async function take(step: Step): Promise<void> {
    switch (step.kind) {
      case 'record':
      case 'import': {
        const number = numbers++
        const names = Array.from({ length: step.events }, (_, i) => `event ${i} of ${number}`)
        if (step.hold) names[0] = `held at ${step.hold.at} ${number}`
        const work = async () => {
          const results = await Promise.allSettled(write(step, names))
          for (const [i, result] of results.entries()) {
            const name = names[i] as string
            if (result.status === 'fulfilled') told.recorded.push({ name, contact_id: result.value })
            else if (isUnavailable(result.reason)) told.failed.push(name)
            else throw result.reason
          }
        }
        return step.hold ? holdOpen(number, step.hold, work) : work()
      }
      case 'clock': {
        const name = `ahead ${numbers++}`
        await pool.query(recordAhead(name))
        told.recorded.push({ name, contact_id })
        return
      }
      case 'erase': {
        if (await eraseContact(eraser, 'demo', visitor)) figures.erasures += 1
        return
      }
      case 'kill': {
        let killed = 0
        // There may be none.
        for (let i = 0; i < 20 && killed === 0; i += 1) killed = (await pool.query(KILL)).rows.length
        figures.killed += killed
      }
    }
  }

  /**
   * Follows the feeds from a position on, as the document describes it: after each walk over the events it reads the erasures.
   * Resolves to what it has when it is at the end, or finds nothing more before.
   */
  async function follow(
    { by, wait }: (typeof FOLLOWERS)[number],
    { start, limit, end }: { start: number; limit: number; end: Promise<number> },
  ): Promise<Seen[]> {
    let seen: Seen[] = []
    let position = start
    let erasedUntil = start
    let last = Number.POSITIVE_INFINITY
    const ended = end.then((end) => {
      last = end
    })
    const request = {
      ...{ path: { projectId: 'demo' }, headers: {} as never, body: undefined, confirmKey: async () => {} },
      lease: {
        ...UNLIMITED,
        pause: <Result>(one: Wait<Result>) => {
          // A client that has everything goes; another one must be told of what it has not.
          void ended.then(() => position >= last && one.cancel())
          return one.ended
        },
      },
    }
    const context = { db, followers, recorder: recorders[0], importer }
    const readErasures = async () => {
      for (;;) {
        const query = { limit, direction: 'ASC', wait: 0, after: erasedUntil } as const
        const { rows } = await listErasures({ ...request, query }, context)
        if (rows.length === 0) return
        for (const erasure of rows as { contact_id: string; position: number }[]) {
          const kept = seen.filter((row) => row.contact_id !== erasure.contact_id || row.position > erasure.position)
          figures.forgotten += seen.length - kept.length
          seen = kept
          expect(erasure.position).toBeGreaterThan(erasedUntil)
          erasedUntil = erasure.position
        }
      }
    }
    let place: { after: number } | { cursor: string | undefined } = { after: start }
    while (position < last) {
      const isOver = last < Number.POSITIVE_INFINITY
      const query = { limit, direction: 'ASC', wait, ...place } as const
      const page = await listProjectEvents({ ...request, query }, context)
      const rows = page.rows as { custom_event_name?: string; contact_id: string; position: number }[]
      for (const row of rows) {
        expect(row.position).toBeGreaterThan(position)
        position = row.position
        seen.push({ name: row.custom_event_name ?? null, contact_id: row.contact_id, position })
      }
      figures.pages += 1
      if (!page.continuationAfter(rows.length).more) await readErasures()
      place = by === 'after' ? { after: position } : { cursor: page.continuationAfter(rows.length).cursor }
      if (rows.length > 0) continue
      if (isOver) break
      if (wait > 0) expect(await selectAfter(position), 'what a follower waited for in vain').toEqual([])
      // As often as a client may ask that does not wait.
      else await setTimeout(1)
    }
    return seen
  }

  async function check({ limit, clients, ...history }: History): Promise<void> {
    const { rows } = await pool.query("SELECT max(position) AS position FROM events WHERE project_id = 'demo'")
    const start = rows[0].position as number
    overtaken = [...history.overtaken]
    told = { recorded: [], failed: [] }
    const act = async (steps: Step[]) => {
      for (const step of steps) await take(step)
    }
    const { promise: end, resolve } = Promise.withResolvers<number>()
    const following = allOf(FOLLOWERS.map((follower) => follow(follower, { start, limit, end })))
    const writing = allOf(clients.map(act)).then(() => act([LAST]))
    // Errors are thrown below, when all have ended.
    following.catch(() => {})
    await writing.catch(() => {})
    const stored = await selectAfter(start)
    resolve(stored.at(-1)?.position ?? start)
    await allOf<unknown>([writing, following])
    for (const seen of await following) expect(seen).toEqual(stored)

    const names = stored.map(({ name }) => name as string)
    const failed = new Set(told.failed)
    const erased = await eraser.selectFrom('erasures').select('contact_id').execute()
    const isErased = (contact: string) => erased.some(({ contact_id }) => contact_id === contact)
    const kept = told.recorded.filter(({ contact_id }) => !isErased(contact_id)).map(({ name }) => name)
    expect(names.filter((name) => !failed.has(name)).toSorted()).toEqual(kept.toSorted())
    expect(new Set(names).size).toBe(names.length)
    figures.histories += 1
    figures.events += names.length
    figures.failed += failed.size
  }

  const close = async () => {
    await Promise.all([
      db.destroy(),
      eraser.destroy(),
      ...[pool, importPool, ...writePools].map((one: pg.Pool) => one.end()),
    ])
    await database.drop()
  }
  return { check, figures, close }
}
