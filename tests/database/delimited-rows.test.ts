import { type Kysely, sql } from 'kysely'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { delimitedRows, splitFields, textField, unescapeText } from '../../src/database/delimited-rows.ts'
import { connect } from '../../src/database/open.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'

let database: TestDatabase
let db: Kysely<never>
beforeAll(async () => {
  database = await createTestDatabase()
  db = connect(database.url, { max: 1 }) as unknown as Kysely<never>
})
afterAll(async () => {
  await db.destroy()
  await database.drop()
})

async function roundTrip(texts: string[]): Promise<string[]> {
  const select = delimitedRows([sql`number`, textField(sql`text`)], sql`number`)
  const table = sql`unnest(${texts}::text[]) WITH ORDINALITY AS given(text, number)`
  const { rows } = await sql<{ all: string }>`SELECT ${select} AS all FROM ${table}`.execute(db)
  const fields = splitFields(rows[0]?.all ?? 'no row')
  expect(fields.filter((_, i) => i % 2 === 0)).toEqual(texts.map((_, i) => String(i + 1)))
  return fields.filter((_, i) => i % 2 === 1).map(unescapeText)
}

test.each<[string, string[]]>([
  ['no rows', []],
  ['a row', ['p1']],
  ['rows in order', ['b', 'a', 'c']],
  ['an empty text, first, between and last', ['', 'a', '', 'b', '']],
  ['one empty text', ['']],
  ['the separator itself', ['\x1F', 'a\x1Fb\x1F', '\x1F\x1F']],
  [
    'the escape, also before what looks escaped',
    ['\x10', '\x10e', '\x10s', '\x10\x10s', '\x10\x1F', '\x10x', 'e\x10', '\x10es'],
  ],
  ['any other characters', ['"quoted", \\ and / and {}', "it's", '\n\t\r\x01', '日本語 🌸 ŷ', '%s $1']],
])('%s come back unchanged', async (_, texts) => {
  expect(await roundTrip(texts)).toEqual(texts)
})
