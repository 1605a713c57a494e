import { setImmediate } from 'node:timers/promises'
import { type Compilable, sql } from 'kysely'
import type { Database } from './pool.ts'
import { prepare } from './prepared.ts'

/** What an item of an array of a type of PostgreSQL's is here. */
interface Item {
  text: string
  integer: number
  bytea: Buffer
  timestamptz: string
}

type Columns = Record<string, keyof Item>
type Asked<C extends Columns> = { [Name in keyof C]: Item[C[Name]] } & { number: number }

/**
 * The table `asked`, a row for each item of the arrays, which `number` counts from 1.
 * @param columns with their types in PostgreSQL, in the order of the arrays
 */
export function asked<const C extends Columns>(columns: C, ...arrays: readonly (readonly unknown[])[]) {
  const typed = Object.values(columns).map((type, i) => sql`${arrays[i]}::${sql.raw(type)}[]`)
  const names = [...Object.keys(columns), 'number'].map((name) => sql.id(name))
  return sql<Asked<C>>`unnest(${sql.join(typed)}) with ordinality`.as<'asked'>(sql`asked(${sql.join(names)})`)
}

/** The keys that were asked for in a turn of the event loop. */
interface Turn<Found> {
  numbers: Map<string, number>
  columns: unknown[][]
  found: Promise<Found[]>
}

/**
 * Makes a query of single rows by their keys. All that is asked for in one turn of the event loop is one statement: it
 * leaves after the last has asked, so that nobody is told what was true before. A key stands in it once, and all who
 * asked for it get the very same object, which nobody may change.
 *
 * @param build of arrays, each a column of the keys; selects the rows with the `number` of the key
 */
export function lookUp<Arrays extends readonly (readonly unknown[])[], Row extends { number: number }>(
  build: (db: Database, ...arrays: Arrays) => Compilable<Row>,
): (db: Database, ...key: { [I in keyof Arrays]: Arrays[I][number] }) => Promise<Omit<Row, 'number'> | undefined> {
  type Found = Omit<Row, 'number'>
  const select = prepare(build, { isLookUp: true })
  const turns = new WeakMap<Database, Turn<Found>>()

  const begin = (db: Database, columns: unknown[][]): Turn<Found> => {
    const find = async () => {
      await setImmediate()
      turns.delete(db)
      const found: Found[] = []
      for (const { number, ...row } of await select(db, ...(columns as unknown as Arrays))) found[number] = row
      return found
    }
    const turn = { numbers: new Map(), columns, found: find() }
    turns.set(db, turn)
    return turn
  }

  return async (db, ...key) => {
    const { numbers, columns, found } =
      turns.get(db) ??
      begin(
        db,
        key.map(() => []),
      )
    const name = JSON.stringify(key)
    let number = numbers.get(name)
    if (number === undefined) {
      number = numbers.size + 1
      numbers.set(name, number)
      columns.forEach((column, i) => void column.push(key[i]))
    }
    return (await found)[number]
  }
}
