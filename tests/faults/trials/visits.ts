import { randomUUID } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'
import { sql } from 'kysely'
import { createKey } from '../../../src/cli/keys.ts'
import type { Database } from '../../../src/database/pool.ts'

/** The project of the recording fixture that the visits go to. */
const PROJECT = 'demo'

const RETRY_ms = 100
const VIEWS = 5

export const createVisitsKey = (db: Database) =>
  createKey(db, PROJECT, { name: 'visits', scopes: ['import'], expires_at: null })

/** A flow runtime that imports visits, each again until it gets a 200, and writes down their entries. */
export class Visits {
  readonly acknowledged = new Set<string>()
  readonly #address: () => string
  readonly #key: string

  /** @param address the service's at the moment */
  constructor(address: () => string, key: string) {
    this.#address = address
    this.#key = key
  }

  /**
   * Sends visits from a few connections while the condition holds.
   * @throws Error at a response other than a 200 or a 503
   */
  async sendWhile(condition: () => boolean): Promise<void> {
    const send = async () => {
      while (condition()) await this.#sendVisit()
    }
    await Promise.all([send(), send(), send()])
  }

  async #sendVisit(): Promise<void> {
    const entry_id = randomUUID()
    const body = linesOf(entry_id)
    for (; ; await setTimeout(RETRY_ms)) {
      const response = await fetch(`${this.#address()}/projects/${PROJECT}/records`, {
        method: 'POST',
        headers: { 'x-api-key': this.#key, 'content-type': 'application/x-ndjson' },
        body,
      }).catch(() => undefined)
      const text = await response?.text().catch(() => undefined)
      if (text === undefined || response?.status === 503) continue
      if (response?.status !== 200) throw new Error(`a visit got ${response?.status}: ${text}`)
      this.acknowledged.add(entry_id)
      return
    }
  }

  /** The visits that are acknowledged and not stored, or of which only a part is stored. */
  async discrepancies(db: Database): Promise<string[]> {
    const { rows } = await sql<{ entry_id: string; views: number; page_views: number | null }>`
      SELECT n.entry_id, (SELECT count(*)::integer FROM events e WHERE e.project_id = n.project_id AND e.entry_id = n.entry_id) AS views,
        (SELECT json_array_length(p.page_views::json) FROM entry_page_views p
          WHERE p.project_id = n.project_id AND p.entry_id = n.entry_id) AS page_views
      FROM entries n WHERE n.project_id = ${PROJECT} AND n.contact_id LIKE 'visitor-%'`.execute(db)
    const whole = new Set(
      rows.filter(({ views, page_views }) => views === VIEWS && page_views === VIEWS).map(({ entry_id }) => entry_id),
    )
    const partial = rows.filter(({ entry_id }) => !whole.has(entry_id)).map(({ entry_id }) => entry_id)
    return [...partial, ...[...this.acknowledged].filter((entry_id) => !whole.has(entry_id))]
  }
}

function linesOf(entry_id: string): string {
  const contact_id = `visitor-${entry_id}`
  const [created_at, view_type] = ['2026-02-01T12:00:00.000Z', 'flowpage']
  const views = Array.from({ length: VIEWS }, (_, page_index) => ({
    ...{ type: 'event', entry_id, event_id: `${entry_id}-${page_index}`, timestamp: created_at, view_type, page_index },
    ...{ event_type: 'flowpage.viewed', page_id: `p${page_index}`, page_key: 'page' },
  }))
  const records = [
    { type: 'contact', contact_id, identifiers: [{ key: 'visitor', value: JSON.stringify(entry_id) }] },
    { type: 'entry', entry_id, contact_id, module_id: 'quiz', created_at, updated_at: created_at },
    ...views,
  ]
  return records.map((record) => JSON.stringify(record)).join('\n')
}
