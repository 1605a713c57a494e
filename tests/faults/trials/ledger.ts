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
const EVENTS_OF_BATCH = 8

interface LedgerResponse {
  status: number
  retryAfter: string | null
  body: string
  /** Of each event, with the text of the recorded one. */
  results: { status: number; event: string; isReplay: boolean }[]
}

interface LedgerOptions {
  /** The service's address at the moment. */
  address: () => string
  /** A key of the project. */
  key: string
  /** How many requests are under way at a time. */
  concurrency?: number
  /** How long each of these rests after a 200. */
  rest_ms?: number
  /** Whether some of the connections send batches, as by default. */
  batches?: boolean
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
export const createLedgerKey = (db: Database, name = 'ledger') =>
  createKey(db, LEDGER_PROJECT, { name, scopes: SCOPES, expires_at: null })

/**
 * A client that sends each event with an idempotency key, and again until it gets a 200, and writes down what it was told. A
 * quarter of its connections send batches. It sends two events of each contact, so that two requests at once may create it.
 */
export class Ledger {
  /** How many events got each status, and how many no complete response. */
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
    this.#options = { concurrency: 64, rest_ms: 0, patience_ms: 60_000, batches: true, ...options }
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
    const send = async (count: number) => {
      while (condition()) {
        const events = Array.from({ length: count }, (_, i) => this.#sent + i)
        this.#sent += count
        await this.#untilAcknowledged(events)
        if (this.#options.rest_ms > 0) await setTimeout(this.#options.rest_ms)
      }
    }
    try {
      const { batches, concurrency } = this.#options
      const counts = Array.from({ length: concurrency }, (_, i) => (batches && i % 4 === 3 ? EVENTS_OF_BATCH : 1))
      await Promise.all(counts.map(send))
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
        const { results } = await this.#request([i])
        if (results[0]?.event !== acknowledged || !results[0].isReplay) different += 1
      }
    }
    await Promise.all(Array.from({ length: this.#options.concurrency }, replay))
    return different
  }

  async #untilAcknowledged(events: readonly number[]): Promise<void> {
    for (let remaining = events; ; await setTimeout(RETRY_ms)) {
      const response = await this.#request(remaining).catch(() => undefined)
      const status = response?.status ?? 'no response'
      for (const of of response?.results.map((result) => result.status) ?? remaining.map(() => status)) {
        this.responses[of] = (this.responses[of] ?? 0) + 1
      }
      for (const [n, result] of response?.results.entries() ?? []) {
        if (result.status === 200) this.#acknowledged.set(remaining[n] as number, result.event)
      }
      this.#wake()
      const statuses = new Set(response?.results.map((result) => result.status) ?? [503])
      const mayRetry = response === undefined || /^[1-9]\d*$/.test(response.retryAfter ?? '')
      const hasAll = response === undefined || response.results.length === remaining.length
      const isDue = hasAll && [...statuses].every((one) => one === 200 || (one === 503 && mayRetry))
      if (!isDue) throw new Error(`the events ${remaining} got ${status}: ${response?.body}`)
      remaining = remaining.filter((i) => !this.#acknowledged.has(i))
      if (remaining.length === 0) return
    }
  }

  /** Sends one event alone, and several as a batch. */
  async #request(events: readonly number[]): Promise<LedgerResponse> {
    const { address, key, patience_ms } = this.#options
    const keyed = events.map((i) => ({ ...eventOf(i, this.#name), idempotency_key: `${this.#name}${i}` }))
    const [{ idempotency_key, ...event }, ...others] = keyed as [(typeof keyed)[number]]
    const isBatch = others.length > 0
    const response = await fetch(`${address()}/projects/${LEDGER_PROJECT}/events${isBatch ? '/batch' : ''}`, {
      method: 'POST',
      headers: {
        ...{ 'x-api-key': key, 'content-type': 'application/json' },
        ...(!isBatch && { 'idempotency-key': idempotency_key }),
      },
      body: JSON.stringify(isBatch ? { events: keyed } : event),
      signal: AbortSignal.timeout(patience_ms),
    })
    const { status, headers } = response
    const body = await response.text()
    return { status, retryAfter: headers.get('retry-after'), body, results: resultsOf() }

    function resultsOf(): LedgerResponse['results'] {
      if (!isBatch) return [{ status, event: body, isReplay: headers.get('idempotent-replayed') === 'true' }]
      if (status !== 200) return events.map(() => ({ status, event: '', isReplay: false }))
      const { results }: { results: { status: number; event?: object; replayed?: boolean }[] } = JSON.parse(body)
      return results.map(({ status, event, replayed }) => {
        return { status, event: JSON.stringify(event), isReplay: replayed === true }
      })
    }
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
