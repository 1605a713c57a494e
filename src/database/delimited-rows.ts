import { type RawBuilder, sql } from 'kysely'

/** ASCII's own separator of fields. In a text the two are written as ESCAPE and a letter. */
const SEPARATOR = '\x1F'
const ESCAPE = '\x10'
const ESCAPED_SEPARATOR = `${ESCAPE}s`
const ESCAPED_ESCAPE = `${ESCAPE}e`

/** In SQL, a text of any characters as a field. */
export const packText = (text: RawBuilder<string>): RawBuilder<string> => {
  const escaped = sql`replace(${text}, ${sql.lit(ESCAPE)}, ${sql.lit(ESCAPED_ESCAPE)})`
  return sql`replace(${escaped}, ${sql.lit(SEPARATOR)}, ${sql.lit(ESCAPED_SEPARATOR)})`
}

/**
 * In SQL, an aggregate that packs rows into one text, which takes PostgreSQL half as long as JSON does.
 * @param fields of a row, at least two and none null: numbers, instants or what `packText` made
 */
export const pack = (fields: readonly RawBuilder<unknown>[], order: RawBuilder<unknown>) => sql<string>`coalesce(
  string_agg(concat_ws(${sql.lit(SEPARATOR)}, ${sql.join(fields)}), ${sql.lit(SEPARATOR)} ORDER BY ${order}), '')`

/** The fields of all rows that were packed, one row's after the other's. */
export const unpack = (packed: string): string[] => (packed === '' ? [] : packed.split(SEPARATOR))

/** The text that was packed as a field. */
export const unpackText = (field: string): string =>
  field.includes(ESCAPE) ? field.replaceAll(ESCAPED_SEPARATOR, SEPARATOR).replaceAll(ESCAPED_ESCAPE, ESCAPE) : field
