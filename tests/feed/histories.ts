import { setTimeout } from 'node:timers/promises'
import fc from 'fast-check'
import type pg from 'pg'
import { expect } from 'vitest'
import { isUnavailable } from '../../src/database/failures.ts'
import { connectShared, openWritePool } from '../../src/database/open.ts'
import { createPool } from '../../src/database/pool.ts'
import type { Wait } from '../../src/domain/read-lease.ts'
import { Followers } from '../../src/feed/followers.ts'
import { listProjectEvents } from '../../src/handlers/events.ts'
import { Recorder } from '../../src/recording/recorder.ts'
import { parsedEvent } from '../recording/fixture.ts'
import { EXAMPLES, importFile } from '../support/app.ts'
import { createTestDatabase } from '../support/database.ts'
import { UNLIMITED } from '../support/lease.ts'
import { load } from '../transfer/fixture.ts'

// Histories of a project: several clients record and import at once, some of their transactions are held open at the commit
// or ended by the database, and followers read. Chance decides what is done; how it interleaves is up to the machine.

/** What becomes of a transaction at its commit, when its events have their positions. */
interface Hold {
  /** How many queries of another session it is held for, while other writers wait and followers read. */
  queries: number
  end: 'commit' | 'cancel' | 'terminate'
}

interface Import {
  kind: 'import'
  events: number
  hold: Hold | undefined
}

interface Recording extends Omit<Import, 'kind'> {
  kind: 'record'
  process: 0 | 1
  areLarge: boolean
}

type Step =
  | Recording
  | Import
  /** An event gets its position from a server whose clock is ahead. */
  | { kind: 'clock' }
  /** A connection that is recording or importing is terminated. */
  | { kind: 'kill' }

interface History {
  /** Of the followers' pages. */
  limit: number
  /** What each client does, one step after another. */
  clients: Step[][]
}

const constant = fc.constant
const hold: fc.Arbitrary<Hold> = fc.record({
  queries: fc.nat(12),
  end: fc.constantFrom('commit', 'commit', 'cancel', 'terminate'),
})
const events = fc.integer({ min: 1, max: 6 })
const mayBeHeld = fc.oneof({ weight: 2, arbitrary: constant(undefined) }, { weight: 1, arbitrary: hold })
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record<Recording>({
      ...{ kind: constant('record'), process: fc.constantFrom(0, 1) },
      ...{ events, areLarge: fc.boolean(), hold: mayBeHeld },
    }),
  },
  { weight: 1, arbitrary: fc.record<Import>({ kind: constant('import'), events, hold: mayBeHeld }) },
  { weight: 1, arbitrary: constant<Step>({ kind: 'clock' }) },
  { weight: 1, arbitrary: constant<Step>({ kind: 'kill' }) },
)

export const history: fc.Arbitrary<History> = fc.record({
  limit: fc.integer({ min: 1, max: 20 }),
  clients: fc.array(fc.array(step, { minLength: 1, maxLength: 3 }), { minLength: 2, maxLength: 4, size: 'max' }),
})

/** Nothing that comes after it wakes those who wait, should they have been told of it before it was committed. */
const LAST: Step = {
  ...{ kind: 'record', process: 0, events: 1, areLarge: false },
  hold: { queries: 4, end: 'commit' },
}

/** How each follower keeps its place, and for how many seconds it waits: longer than a history takes. */
const FOLLOWERS = [
  { by: 'cursor', wait: 0 },
  { by: 'after', wait: 0 },
  { by: 'after', wait: 10 },
] as const

/** Makes the commit of an event `held <number>` wait while a session holds the advisory lock of the number. */
const HOLD_COMMITS = `
  CREATE FUNCTION hold_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_advisory_xact_lock(substr(NEW.custom_event_name, 6)::bigint);
    RETURN NULL;
  END $$;
  CREATE CONSTRAINT TRIGGER hold_commit AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.custom_event_name LIKE 'held %') EXECUTE FUNCTION hold_commit();`

const FIND_HELD = `SELECT pid FROM pg_locks JOIN pg_database d ON d.oid = database
  WHERE datname = current_database() AND locktype = 'advisory' AND objid = $1 AND NOT granted`

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
    FROM events WHERE project_id = 'demo'
  ) p
  WHERE e.project_id = 'demo' AND e.custom_event_name IS NOT NULL ORDER BY e.position LIMIT 1;
  COMMIT`

const module_id = 'skin-quiz'
const entry_id = '019ca8bb-b5c0-7000-8000-000000000001'
const identifiers = [{ key: 'email', value: '"amara.okafor@example.com"' }]
/** A page with such events is read by two queries. */
const LARGE = JSON.stringify({ text: 'x'.repeat(5_000) })

interface Seen {
  name: string | null
  position: number
}

/** What the clients of a history were told of their events. */
interface Told {
  recorded: string[]
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
  await pool.query(HOLD_COMMITS)
  const db = connectShared(database.url, { max: 2 })
  const importPool = createPool(url.href)
  // Two processes share no memory, and neither do two recorders.
  const writePools = [openWritePool(url.href, { max: 2 }), openWritePool(url.href, { max: 2 })]
  const recorders = writePools.map((own) => new Recorder(own)) as [Recorder, Recorder]
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
  }
  let numbers = 0

  const selectAfter = async (position: number): Promise<Seen[]> => {
    const columns = 'custom_event_name AS name, position'
    const where = "project_id = 'demo' AND position > $1"
    return (await pool.query(`SELECT ${columns} FROM events WHERE ${where} ORDER BY position`, [position])).rows
  }

  /** Holds the commit of `work`, which has an event `held <number>`, and lets it end. It may fail before. */
  async function holdCommit(number: number, { queries, end }: Hold, work: () => Promise<unknown>): Promise<void> {
    const holder = await pool.connect()
    await holder.query('SELECT pg_advisory_lock($1)', [number])
    const working = work()
    let isOver = false
    const over = () => {
      isOver = true
    }
    working.then(over, over)
    const findHeld = async () => (await pool.query<{ pid: number }>(FIND_HELD, [number])).rows[0]?.pid
    let pid: number | undefined
    while (pid === undefined && !isOver) pid = await findHeld()
    if (pid !== undefined) {
      figures[end] += 1
      for (let i = 0; i < queries; i += 1) await pool.query('SELECT')
      figures.blocked += (await pool.query(FIND_BLOCKED, [pid])).rows.length
      if (end !== 'commit') {
        await pool.query(`SELECT pg_${end}_backend($1)`, [pid])
        while ((await findHeld()) === pid);
      }
    }
    await holder.query('SELECT pg_advisory_unlock($1)', [number])
    holder.release()
    await working
  }

  /** Begins to write events. Gives a promise for each. */
  function write(step: Recording | Import, names: string[]): Promise<unknown>[] {
    if (step.kind === 'record') {
      const event = { module_id, identifiers, custom_event_props: step.areLarge ? LARGE : '{}' }
      return names.map((custom_event_name) =>
        recorders[step.process].record('demo', parsedEvent({ ...event, custom_event_name })),
      )
    }
    const loading = load(
      importPool,
      names.map((name) => ({
        ...{ type: 'event', project_id: 'demo', entry_id, event_id: name, timestamp: '2026-03-01T09:31:50Z' },
        ...{ event_type: 'custom_event:triggered', custom_event_name: name, custom_event_props: '{}' },
      })),
      {},
    )
    return names.map(() => loading)
  }

  async function take(step: Step, { recorded, failed }: Told): Promise<void> {
    switch (step.kind) {
      case 'record':
      case 'import': {
        const number = numbers++
        const names = Array.from(
          { length: step.events },
          (_, i) => `${step.hold && i === 0 ? 'held ' : `${i} of `}${number}`,
        )
        const work = async () => {
          const results = await Promise.allSettled(write(step, names))
          for (const [i, result] of results.entries()) {
            if (result.status === 'rejected' && !isUnavailable(result.reason)) throw result.reason
            ;(result.status === 'fulfilled' ? recorded : failed).push(names[i] as string)
          }
        }
        return step.hold ? holdCommit(number, step.hold, work) : work()
      }
      case 'clock': {
        const name = `ahead ${numbers++}`
        await pool.query(recordAhead(name))
        recorded.push(name)
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

  /** Follows the feed from a position on. Resolves to what it has when it is at the end, or finds nothing more before. */
  async function follow(
    { by, wait }: (typeof FOLLOWERS)[number],
    { start, limit, end }: { start: number; limit: number; end: Promise<number> },
  ): Promise<Seen[]> {
    const seen: Seen[] = []
    let position = start
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
    let place: { after: number } | { cursor: string | undefined } = { after: start }
    while (position < last) {
      const isOver = last < Number.POSITIVE_INFINITY
      const query = { limit, direction: 'ASC', wait, ...place } as const
      const page = await listProjectEvents({ ...request, query }, { db, followers, recorder: recorders[0] })
      const rows = page.rows as { custom_event_name?: string; position: number }[]
      for (const row of rows) {
        expect(row.position).toBeGreaterThan(position)
        position = row.position
        seen.push({ name: row.custom_event_name ?? null, position })
      }
      figures.pages += 1
      place = by === 'after' ? { after: position } : { cursor: page.continuationAfter(rows.length).cursor }
      if (rows.length > 0) continue
      if (isOver) break
      if (wait > 0) expect(await selectAfter(position), 'what a follower waited for in vain').toEqual([])
      // As often as a client may ask that does not wait.
      else await setTimeout(1)
    }
    return seen
  }

  async function check({ limit, clients }: History): Promise<void> {
    const { rows } = await pool.query("SELECT max(position) AS position FROM events WHERE project_id = 'demo'")
    const start = rows[0].position as number
    const told: Told = { recorded: [], failed: [] }
    const act = async (steps: Step[]) => {
      for (const step of steps) await take(step, told)
    }
    const { promise: end, resolve } = Promise.withResolvers<number>()
    const following = Promise.allSettled(FOLLOWERS.map((follower) => follow(follower, { start, limit, end })))
    const writing = [...(await Promise.allSettled(clients.map(act))), ...(await Promise.allSettled([act([LAST])]))]
    const stored = await selectAfter(start)
    resolve(stored.at(-1)?.position ?? start)
    // All have ended, also when one has failed, so that the next history begins alone.
    const results = await following
    for (const result of [...writing, ...results]) if (result.status === 'rejected') throw result.reason
    for (const result of results) expect(result).toEqual({ status: 'fulfilled', value: stored })

    const names = stored.map(({ name }) => name as string)
    const failed = new Set(told.failed)
    expect(names.filter((name) => !failed.has(name)).toSorted()).toEqual(told.recorded.toSorted())
    expect(new Set(names).size).toBe(names.length)
    figures.histories += 1
    figures.events += names.length
    figures.failed += failed.size
  }

  const close = async () => {
    await Promise.all([db.destroy(), ...[pool, importPool, ...writePools].map((one: pg.Pool) => one.end())])
    await database.drop()
  }
  return { check, figures, close }
}
