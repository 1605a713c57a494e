import { setImmediate } from 'node:timers/promises'
import type { Expression } from 'kysely'
import { isDistributed } from './distribution.ts'
import type { SizedRow } from './large-rows.ts'
import type { Database } from './pool.ts'
import { type Parameter, type Prepared, type PrepareOptions, prepare, type SelectQuery } from './prepared.ts'

// Batch loader, as in DataLoader (ADR 0006): the look-ups of one turn of the event loop become one statement over an
// input table. The trade: a lone look-up waits for the end of its turn, and those of a batch fail together.

type ArrayParameter = Parameter<string[]> | Parameter<number[]>
type KeyOf<Arrays extends readonly unknown[]> = {
  [I in keyof Arrays]: Arrays[I] extends Expression<readonly (infer T)[]> ? T : never
}

/** What is found of a row: `value_bytes` only if it leaves out large values. */
type Found<Row> = Omit<Row, 'ordinal' | 'value_bytes'> & SizedRow

/** The distinct keys that are loaded at once, on a distributed database those of one project, and their rows by ordinal. */
interface Batch<Row> {
  ordinals: Map<string, number>
  columns: unknown[][]
  rows: Promise<Row[]>
}

/** The batches of a database, by project where it is distributed. */
interface Batches<Row> {
  /** Those that take further keys. */
  open: Map<unknown, Batch<Row>>
  /** The statements under way, of a distributed database. */
  sent: Map<unknown, Promise<unknown>>
}

/**
 * Makes a query for a single row by its key, which loads all keys of one turn of the event loop at once. The statement
 * is sent after the last key came in, so that no caller gets what was true before it called. Equal keys are loaded once,
 * and their callers share one object, which must not be changed.
 *
 * On a distributed database a statement costs a round trip between nodes, however many keys it has, and the next one on its
 * connection waits for it anyway. So the keys of a project also wait for those that are being loaded.
 *
 * @param build selects rows from an `inputTable` of its parameters, each a column of the keys, with the row's `ordinal`, and
 * `value_bytes` if it leaves out large values
 * @param options whether the rows are few and small; by default they are
 */
export function batchLoader<const Arrays extends readonly ArrayParameter[], Row extends { ordinal: number } & SizedRow>(
  build: (db: Database, ...columns: Arrays) => SelectQuery<Row>,
  options: PrepareOptions = {},
): (db: Database, ...key: KeyOf<Arrays>) => Promise<Found<Row> | undefined> {
  const query = prepare(build, { kind: 'look-up', ...options }) as unknown as Prepared<unknown[][], Row>
  const batchesOf = new WeakMap<Database, Batches<Found<Row>>>()

  const openBatch = (db: Database, { open, sent }: Batches<Found<Row>>, project: unknown, keyLength: number) => {
    const columns: unknown[][] = Array.from({ length: keyLength }, () => [])
    const select = project === undefined ? query : query.ofOneShard
    const load = async () => {
      await setImmediate()
      await sent.get(project)
      open.delete(project)
      const selected = select(db, ...columns)
      if (project !== undefined) {
        const end = () => void sent.delete(project)
        sent.set(project, selected.then(end, end))
      }
      const found: Found<Row>[] = []
      for (const { ordinal, value_bytes, ...row } of await selected) {
        found[ordinal] = value_bytes ? { ...row, value_bytes } : row
      }
      return found
    }
    const batch = { ordinals: new Map<string, number>(), columns, rows: load() }
    open.set(project, batch)
    return batch
  }

  return async (db, ...key) => {
    let batches = batchesOf.get(db)
    if (batches === undefined) {
      batches = { open: new Map(), sent: new Map() }
      batchesOf.set(db, batches)
    }
    const project = isDistributed(db) ? key[0] : undefined
    const { ordinals, columns, rows } = batches.open.get(project) ?? openBatch(db, batches, project, key.length)
    const id = JSON.stringify(key)
    let ordinal = ordinals.get(id)
    if (ordinal === undefined) {
      ordinal = ordinals.size + 1
      ordinals.set(id, ordinal)
      columns.forEach((column, i) => void column.push(key[i]))
    }
    return (await rows)[ordinal]
  }
}
