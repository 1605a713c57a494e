import { randomUUID } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'
import { sql } from 'kysely'
import { createKey } from '../../../src/cli/keys.ts'
import type { Database } from '../../../src/database/pool.ts'
import { SCOPES } from '../../../src/domain/api-key.ts'
import { type CustomEventInput, type CustomEventResult, customEvent } from '../../recording/fixture.ts'

/** The project of the recording fixture that the events go to; the fixture has no contacts in it. */
export const LEDGER_PROJECT = 'other'

const RETRY_ms = 100

interface LedgerOptions {
  /** The service's address at the moment. */
  address: () => string
  /** A key of the project. */
  key: string
  /** How many requests are under way at a time. */
  concurrency?: number
  /** How long each of these rests after a 200. */
  rest_ms?: number
  /** How long a response may take before the request is repeated. */
  patience_ms?: number
}

/** How what is stored differs from what was acknowledged: all 0 if it does not. */
interface Discrepancies {
  /** Acknowledged events that are not stored as the response says. */
  lost: number
  /** Events stored more than once, and contacts with more than one entry. */
  doubled: number
  /** Stored events that nobody was told of. */
  unacknowledged: number
  /** Entries without events, contacts without entries or identifiers, events without their Idempotency-Key. */
  orphans: number
  /** Requests that, sent again, are not replayed byte for byte. */
  replayedDifferently: number
}

export const NO_DISCREPANCIES: Discrepancies = {
  lost: 0,
  doubled: 0,
  unacknowledged: 0,
  orphans: 0,
  replayedDifferently: 0,
}

/** A key for the project of the ledger. */
export const createLedgerKey = (db: Database) =>
  createKey(db, LEDGER_PROJECT, { name: 'ledger', scopes: SCOPES, expires_at: null })

/**
 * A client that sends each event with an Idempotency-Key, and again until it gets a 200, and writes down what it was told.
 * It sends two events of each contact, so that two requests at once may create it.
 */
export class Ledger {
  /** How many requests got each status, and how many no complete response. */
  readonly responses: Record<string, number> = {}
  readonly #options: Required<LedgerOptions>
  /** Distinguishes its events from those of other ledgers on the database. */
  readonly #name = `${randomUUID()}-`
  /** The body of each event's 200. */
  readonly #acknowledged = new Map<number, string>()
  #sent = 0
  #failure: unknown
  #next = Promise.withResolvers<void>()

  constructor(options: LedgerOptions) {
    this.#options = { concurrency: 64, rest_ms: 0, patience_ms: 60_000, ...options }
  }

  /** How many events were sent, however often. */
  get sent(): number {
    return this.#sent
  }

  get acknowledged(): number {
    return this.#acknowledged.size
  }

  /** What it was told of the acknowledged events. */
  get results(): CustomEventResult[] {
    return [...this.#acknowledged.values()].map((body) => JSON.parse(body))
  }

  /**
   * Sends events while the condition holds. Resolves once all of them are acknowledged.
   * @throws Error at a response other than a 200 or a 503 with Retry-After
   */
  async sendWhile(condition: () => boolean): Promise<void> {
    const send = async () => {
      while (condition()) {
        const i = this.#sent++
        this.#acknowledged.set(i, await this.#untilAcknowledged(i))
        this.#wake()
        if (this.#options.rest_ms > 0) await setTimeout(this.#options.rest_ms)
      }
    }
    try {
      await Promise.all(Array.from({ length: this.#options.concurrency }, send))
    } catch (error) {
      this.#failure = error
      throw error
    } finally {
      this.#wake()
    }
  }

  /** Resolves once the condition, which is checked after each response, holds. Rejects as `sendWhile` does. */
  async until(condition: () => boolean): Promise<void> {
    while (!condition()) {
      if (this.#failure) throw this.#failure
      await this.#next.promise
    }
  }

  /** Compares what is stored with what was acknowledged, and sends every event once more. */
  async discrepancies(db: Database): Promise<Discrepancies> {
    const name = this.#name
    const rows = await storedEvents(db, name)
    const stored = Map.groupBy(rows, ({ custom_event_name }) => custom_event_name ?? '')
    const { results } = this
    const names = new Set(results.map(({ custom_event_name }) => custom_event_name))
    const isStored = (result: CustomEventResult) => {
      const [row] = stored.get(result.custom_event_name) ?? []
      return row && Object.entries(row).every(([column, value]) => result[column as keyof typeof result] === value)
    }
    const entries = new Set(rows.map(({ entry_id }) => entry_id)).size
    const contacts = new Set(
      rows.map(({ custom_event_name }) => contactOf(Number(custom_event_name?.slice(name.length)))),
    ).size
    return {
      lost: results.filter((result) => !isStored(result)).length,
      doubled: rows.length - stored.size + Math.abs(entries - contacts),
      unacknowledged: [...stored.keys()].filter((name) => !names.has(name)).length,
      orphans: await countOrphans(db),
      replayedDifferently: await this.#countReplayedDifferently(),
    }
  }

  async #countReplayedDifferently(): Promise<number> {
    const all = this.#acknowledged.entries()
    let different = 0
    const replay = async () => {
      for (const [i, acknowledged] of all) {
        const { body, isReplay } = await this.#request(i)
        if (body !== acknowledged || !isReplay) different += 1
      }
    }
    await Promise.all(Array.from({ length: this.#options.concurrency }, replay))
    return different
  }

  async #untilAcknowledged(i: number): Promise<string> {
    for (;;) {
      const response = await this.#request(i).catch(() => undefined)
      const status = response?.status ?? 'no response'
      this.responses[status] = (this.responses[status] ?? 0) + 1
      this.#wake()
      if (response?.status === 200) return response.body
      const isDue = response === undefined || (response.status === 503 && /^[1-9]\d*$/.test(response.retryAfter ?? ''))
      if (!isDue) throw new Error(`event ${i} got ${response.status}: ${response.body}`)
      await setTimeout(RETRY_ms)
    }
  }

  async #request(i: number) {
    const { address, key, patience_ms } = this.#options
    const response = await fetch(`${address()}/projects/${LEDGER_PROJECT}/events`, {
      method: 'POST',
      headers: { 'x-api-key': key, 'content-type': 'application/json', 'idempotency-key': `${this.#name}${i}` },
      body: JSON.stringify(eventOf(i, this.#name)),
      signal: AbortSignal.timeout(patience_ms),
    })
    const { status, headers } = response
    const isReplay = headers.get('idempotent-replayed') === 'true'
    return { status, isReplay, retryAfter: headers.get('retry-after'), body: await response.text() }
  }

  /** Lets those who wait check their conditions. */
  #wake(): void {
    this.#next.resolve()
    this.#next = Promise.withResolvers()
  }
}

const contactOf = (i: number) => Math.floor(i / 2)

function eventOf(i: number, name: string): Partial<CustomEventInput> {
  const email = { key: 'email', value: `"${name}${contactOf(i)}@example.com"` }
  return customEvent({
    custom_event_name: `${name}${i}`,
    custom_event_props: `{ "i": ${i}.0, "text": "\\u00e9é" }`,
    identifiers: i % 2 === 0 ? [email] : [email, { key: 'order', value: `"${name}${i}"` }],
  })
}

const storedEvents = (db: Database, name: string) =>
  db
    .selectFrom('events as e')
    .innerJoin('entries as n', (join) =>
      join.onRef('n.project_id', '=', 'e.project_id').onRef('n.entry_id', '=', 'e.entry_id'),
    )
    .where('e.project_id', '=', LEDGER_PROJECT)
    .where('e.custom_event_name', 'like', `${name}%`)
    .select(['e.custom_event_name', 'e.custom_event_props', 'e.timestamp', 'e.entry_id', 'n.contact_id'])
    .execute()

async function countOrphans(db: Database): Promise<number> {
  const without = (table: string, other: string, ...columns: string[]) =>
    sql`SELECT count(*)::integer AS count FROM ${sql.table(table)} AS one
      WHERE project_id = ${LEDGER_PROJECT} AND NOT EXISTS (SELECT FROM ${sql.table(other)} AS other
        WHERE ${sql.join(
          ['project_id', ...columns].map((column) => sql`one.${sql.id(column)} = other.${sql.id(column)}`),
          sql` AND `,
        )})`
  const orphans = [
    without('entries', 'events', 'entry_id'),
    without('contacts', 'entries', 'contact_id'),
    without('contacts', 'contact_identifiers', 'contact_id'),
    without('events', 'idempotency_keys', 'event_id'),
  ]
  const counts = await Promise.all(orphans.map((query) => query.execute(db)))
  return counts.reduce((sum, { rows }) => sum + (rows[0] as { count: number }).count, 0)
}
