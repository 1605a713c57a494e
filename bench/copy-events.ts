import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { from as copyFrom } from 'pg-copy-streams'
import { v7 as uuidv7 } from 'uuid'
import { createPool } from '../src/database/pool.ts'
import { CUSTOM_EVENT } from '../src/domain/event.ts'
import { selectNextPositions } from '../src/queries/events.ts'
import { lockProjects } from '../src/queries/projects.ts'

const COLUMNS = [
  ...['project_id', 'event_id', 'entry_id', '"timestamp"', 'module_version_number', 'max_page_id', 'max_page_key'],
  ...[
    'max_page_index',
    'total_pages',
    'event_type',
    'custom_event_name',
    'custom_event_props',
    'recorded_at',
    'position',
  ],
]

export interface CopyEventsOptions {
  projectId: string
  /** How many events each COPY has, which is committed by itself. */
  rows: number
  duration_s: number
}

/**
 * Stores custom events of existing entries by COPY, which is the least that recording them in batches can cost.
 * @returns events a second
 */
export async function copyEvents(url: string, { projectId, rows, duration_s }: CopyEventsOptions): Promise<number> {
  const pool = createPool(url, { max: 1 })
  const client = await pool.connect()
  try {
    const { rows: entries } = await client.query(
      'SELECT entry_id, created_at FROM entries WHERE project_id = $1 ORDER BY entry_id LIMIT $2',
      [projectId, rows],
    )
    const rowOf = ({ entry_id, created_at }: { entry_id: string; created_at: string }, position: number) => {
      const event = [projectId, uuidv7(), entry_id, created_at, 2, 'p7', 'result', 6, 7, CUSTOM_EVENT, 'coupon_shown']
      return `${[...event, '{"coupon":"SPRING-10","value":10}', created_at, position].join('\t')}\n`
    }
    const [start_ms, end_ms] = [performance.now(), performance.now() + duration_s * 1_000]
    let copied = 0
    for (; performance.now() < end_ms; copied += rows) {
      await client.query('BEGIN')
      // The service may still record what it was sent last.
      await client.query(lockProjects.statement([projectId]))
      const [next] = (await client.query(selectNextPositions.statement([projectId]))).rows
      const lines = Array.from({ length: rows }, (_, i) => rowOf(entries[i % entries.length], next.position + i))
      await pipeline(Readable.from([lines.join('')]), client.query(copyFrom(`COPY events (${COLUMNS}) FROM STDIN`)))
      await client.query('COMMIT')
    }
    return (copied * 1_000) / (performance.now() - start_ms)
  } finally {
    client.release()
    await pool.end()
  }
}
