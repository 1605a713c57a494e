import { type RawBuilder, sql } from 'kysely'
import type { IsoTimestamp } from '../domain/timestamp.ts'
import type { ColumnType, Parameter } from './prepared.ts'

/** A column of an input table: an array parameter with its type in PostgreSQL. */
type InputColumn<T> = RawBuilder<readonly T[]>

const column =
  <T extends string | number | Buffer>(type: ColumnType) =>
  (parameter: Parameter<T[]>): InputColumn<T> =>
    sql`${parameter}::${sql.raw(type)}[]`

export const text = column<string>('text')
export const integer = column<number>('integer')
export const bytea = column<Buffer>('bytea')
export const timestamptz = column<IsoTimestamp>('timestamptz')

type InputRow<Columns> = {
  [Name in keyof Columns]: Columns[Name] extends InputColumn<infer T> ? T : never
} & { ordinal: number }

/**
 * The table `input`, whose columns are arrays of the same length: one row for each item, numbered from 1 by `ordinal`.
 * A query over it finds the rows of many keys at once.
 */
export function inputTable<const Columns extends Record<string, InputColumn<unknown>>>(columns: Columns) {
  const names = [...Object.keys(columns), 'ordinal'].map((name) => sql.id(name))
  return sql<InputRow<Columns>>`unnest(${sql.join(Object.values(columns))}) with ordinality`.as<'input'>(
    sql`input(${sql.join(names)})`,
  )
}
