import { Writable } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import type pg from 'pg'
import { expect, onTestFinished, test, vi } from 'vitest'
import { createPool } from '../../src/database/pool.ts'
import { exportContact, exportProject } from '../../src/transfer/export.ts'
import {
  at,
  BASE,
  contact,
  custom,
  dump,
  dumped,
  entry,
  group,
  load,
  module,
  openDatabase,
  project,
  version,
  view,
  watchQueries,
  written,
} from './fixture.ts'

/** Text that is easily corrupted by JSON or COPY, and ids that are easily sorted wrongly. */
const AWKWARD = 'tab\t line\n return\r "quoted" \\ \\n \\. \\N \u0001\u007f\u2028 é 🦉 %s $1 {}'
const AWKWARD_IDS = ['Z', 'a', 'A b', 'é', '🦉', 'z', '\\N', "o'clock", '"', '10', '9', '~', '\uffee']

test('import, export, import elsewhere, export: the same bytes', async () => {
  await using first = await openDatabase()
  await using second = await openDatabase()
  const unknown = { max_page_id: null, max_page_key: null, max_page_index: null, total_pages: null }
  const json = ` { "a" : ${JSON.stringify(AWKWARD)}, "b":"\\u0000\\ud800", "n":1.0e400, "n":2 }\n`
  await load(first.pool, [
    ...BASE,
    project({ name: AWKWARD }),
    ...AWKWARD_IDS.map((group_id) => group({ group_id, name: AWKWARD + group_id })),
    ...AWKWARD_IDS.flatMap((module_id) => [
      module({ module_id, group_id: module_id, title: AWKWARD, created_at: '0001-01-01T00:00:00.001Z' }),
      version(10, '2026-01-01T00:00:00.5Z', { module_id, json_string: json }),
      version(2, undefined, { module_id, saved_at: '9999-12-31T23:59:59.999Z' }),
    ]),
    ...AWKWARD_IDS.map((id) => contact(id, [{ key: AWKWARD, value: JSON.stringify(id) }], { created_at: at(1) })),
    contact('c1', [
      { key: 'b', value: '"x"' },
      { key: 'a', value: '"🦉"' },
      { key: 'a', value: '"\uffee"' },
      { key: 'a', value: 'true' },
      { key: 'a', value: '10' },
      { key: 'a', value: ' 9.0 ' },
      { key: 'a', value: '"\\u0061"' },
    ]),
    ...AWKWARD_IDS.map((entry_id) => entry({ entry_id, entry_data: json, created_at: '0001-01-01T00:00:00Z' })),
    ...AWKWARD_IDS.flatMap((id) => [
      view(`v-${id}`, 7, 3, { entry_id: id, page_id: AWKWARD, page_key: '' }),
      custom(id, 5, { entry_id: id, custom_event_name: id, custom_event_props: `{"a":${JSON.stringify(AWKWARD)}}` }),
      custom(`old-${id}`, 5, { entry_id: id, timestamp: '0001-01-01T00:00:00Z' }),
      custom(`unknown-${id}`, 9, { entry_id: id, ...unknown }),
      { ...custom(undefined, 6, { entry_id: id }), event_type: 'survey.answered', custom_event_name: undefined },
    ]),
  ])
  const exported = await dump(first.pool)
  await load(second.pool, [exported.trimEnd()])
  expect(await dump(second.pool)).toBe(exported)
  expect(exported).toContain(JSON.stringify(json))
  const again = await load(second.pool, [exported.trimEnd()])
  for (const { added, updated } of Object.values(again.records))
    expect({ added, updated }).toEqual({ added: 0, updated: 0 })
})

test('a contact with more identifiers than an import takes in a line has several lines', async () => {
  await using first = await openDatabase()
  await using second = await openDatabase()
  await load(first.pool, [...BASE, contact('c2', [{ key: 'email', value: '"unknown"' }])])
  // 20 MB.
  await first.pool.query(`INSERT INTO contact_identifiers (project_id, digest, contact_id, key, value)
    SELECT project_id, sha256(convert_to(value, 'UTF8')), 'c2', 'session', value
    FROM contacts, generate_series(1, 20000) i, concat('"', i, repeat('x', 1000), '"') AS value WHERE contact_id = 'c2'`)
  const exported = await dump(first.pool)
  const lines = exported.split('\n').filter((line) => line.includes('"contact_id":"c2"'))
  expect(lines.map((line) => JSON.parse(line).identifiers.length)).toEqual([...Array(66).fill(300), 201])
  const { identifiers_added } = await load(second.pool, [exported.trimEnd()])
  expect(identifiers_added).toBeGreaterThan(20_000)
  expect(await dump(second.pool)).toBe(exported)
})

test('types are sorted parents first, records bytewise, identifiers by canonical value', async () => {
  await using database = await openDatabase()
  const { pool } = database
  const values = ['"b"', '"\\u0061"', 'true', '10', '9', '"🦉"', '"\uffee"']
  await load(pool, [
    ...BASE,
    version(10, at(1)),
    version(9, at(1)),
    ...AWKWARD_IDS.map((id) => contact(id)),
    contact('c1', [{ key: 'b', value: '1' }, ...values.map((value) => ({ key: 'a', value }))]),
    entry({ entry_id: 'e0' }),
    custom('b', 5),
    custom('c', 4),
    custom('a', 5),
    custom('d', 9, { entry_id: 'e0' }),
  ])
  const records = await dumped(pool)
  expect([...new Set(records.map(({ type }) => type))]).toEqual([
    'project',
    'group',
    'module',
    'module_version',
    'contact',
    'entry',
    'event',
  ])
  const of = (type: string, field: string) => records.filter((r) => r.type === type).map((r) => r[field])
  expect(of('contact', 'contact_id')).toEqual(
    [...AWKWARD_IDS, 'c1'].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b))),
  )
  expect(of('module_version', 'version_number')).toEqual([1, 9, 10])
  expect(of('event', 'event_id')).toEqual(['d', 'c', 'a', 'b'])
  const owner = records.find((record) => record.contact_id === 'c1')
  expect(owner?.identifiers).toEqual([
    { key: 'a', value: 'true' },
    // 1e1 before 9e0: canonical values, not numbers
    { key: 'a', value: '10' },
    { key: 'a', value: '9' },
    { key: 'a', value: '"\\u0061"' },
    { key: 'a', value: '"b"' },
    { key: 'a', value: '"\uffee"' },
    { key: 'a', value: '"🦉"' },
    { key: 'b', value: '1' },
  ])
})

test('every line ends in LF and has its fields in a fixed order, without those that do not apply', async () => {
  await using database = await openDatabase()
  const { pool } = database
  await load(pool, [
    ...BASE,
    version(2),
    contact('c1', [{ key: 'email', value: '"a"' }]),
    custom('x', 1),
    view('y', 2, 0, { total_pages: 4 }),
  ])
  expect(await dump(pool)).toBe(
    [
      '{"type":"project","project_id":"acme","name":"acme"}',
      '{"type":"group","project_id":"acme","group_id":"g1","name":"g1"}',
      '{"type":"module","project_id":"acme","module_id":"quiz","group_id":"g1","title":"Quiz","created_at":"2026-03-01T09:30:00.000Z"}',
      '{"type":"module_version","project_id":"acme","module_id":"quiz","version_number":1,"saved_at":"2026-01-01T00:00:00.000Z","published_at":"2026-01-02T00:00:00.000Z","json_string":"{}"}',
      '{"type":"module_version","project_id":"acme","module_id":"quiz","version_number":2,"saved_at":"2026-01-01T00:00:00.000Z","json_string":"{}"}',
      '{"type":"contact","project_id":"acme","contact_id":"c1","created_at":"2026-03-01T09:30:00.000Z","identifiers":[{"key":"email","value":"\\"a\\""}]}',
      '{"type":"entry","project_id":"acme","entry_id":"e1","module_id":"quiz","contact_id":"c1","created_at":"2026-03-01T09:30:00.000Z","updated_at":"2026-02-01T00:00:00.000Z","entry_data":"{}"}',
      '{"type":"event","project_id":"acme","entry_id":"e1","event_id":"x","timestamp":"2026-02-01T00:00:01.000Z","event_type":"custom_event:triggered","custom_event_name":"clicked","custom_event_props":"{}","module_version_number":1,"max_page_id":null,"max_page_key":null,"max_page_index":null,"total_pages":null}',
      '{"type":"event","project_id":"acme","entry_id":"e1","event_id":"y","timestamp":"2026-02-01T00:00:02.000Z","event_type":"flowpage.viewed","view_type":"flowpage","page_id":"p0","page_key":"k0","page_index":0,"module_version_number":1,"max_page_id":"p0","max_page_key":"k0","max_page_index":0,"total_pages":4}',
      '',
    ].join('\n'),
  )
})

test('only the requested project is exported, with a summary', async () => {
  await using database = await openDatabase()
  const { pool } = database
  const others = BASE.map((line) => ({ ...line, project_id: "o'ther \\" }))
  await load(pool, [...BASE, ...others])
  const seen: number[] = []
  let written = 0
  const output = new Writable({
    write(chunk: Buffer, _, done) {
      written += chunk.length
      done()
    },
  })
  const summary = await exportProject(pool, "o'ther \\", output, { onProgress: ({ bytes }) => seen.push(bytes) })
  expect(summary).toEqual({
    bytes: written,
    records: { project: 1, group: 1, module: 1, module_version: 1, contact: 1, entry: 1, event: 0 },
  })
  expect(seen.at(-1)).toBe(written)
  expect(output.writableEnded).toBe(false)
  expect((await dumped(pool)).every(({ project_id }) => project_id === 'acme')).toBe(true)
  await expect(dump(pool, 'nobody')).rejects.toThrow('project "nobody" does not exist')
})

test('an export is one snapshot, whatever is written meanwhile, however slow the reader', async () => {
  await using database = await openDatabase()
  const { pool } = database
  await load(pool, BASE)
  const before = await dump(pool)
  const chunks: Buffer[] = []
  let meanwhile: Promise<unknown> | undefined
  const output = new Writable({
    highWaterMark: 1,
    async write(chunk: Buffer, _, done) {
      chunks.push(chunk)
      meanwhile ??= load(pool, [contact('c2'), entry({ entry_id: 'e2' }), custom('x', 1)])
      await meanwhile
      await setImmediate()
      done()
    },
  })
  await exportProject(pool, 'acme', output)
  expect(Buffer.concat(chunks).toString()).toBe(before)
  expect(await dumped(pool)).toHaveLength(9)
})

test('a failing output fails the export and leaves the pool usable', async () => {
  await using database = await openDatabase()
  const { pool } = database
  await load(pool, [...BASE, ...Array.from({ length: 5000 }, (_, i) => custom(`x${i}`, i))])
  let room = 3
  const output = new Writable({
    write(_chunk, _encoding, done) {
      room -= 1
      done(room > 0 ? null : new Error('the reader has closed'))
    },
  })
  await expect(exportProject(pool, 'acme', output)).rejects.toThrow('the reader has closed')
  expect(await dumped(pool, 'event')).toHaveLength(5000)
})

/** The only connection of a pool with `max: 1`, idle again. */
async function connectionOf(pool: pg.Pool): Promise<pg.PoolClient> {
  const client = await pool.connect()
  client.release()
  return client
}

test('the export of a contact holds it alone, and ends its transaction', async () => {
  await using database = await openDatabase()
  const both = (id: string) => [contact(id), entry({ entry_id: id, contact_id: id }), custom(id, 1, { entry_id: id })]
  await load(database.pool, [...BASE, ...both('c2'), ...both('c3')])
  const pool = createPool(database.url, { max: 1 })
  onTestFinished(() => pool.end())
  onTestFinished(() => void vi.restoreAllMocks())
  const watched = watchQueries(await connectionOf(pool))
  const exported = await written(async (output) => {
    await exportContact(pool, 'acme', 'c2', output)
    expect(output.writableEnded).toBe(false)
  })
  const all = await dump(database.pool)
  const own = all.split('\n').filter((line) => line.includes('"c2"'))
  expect(own).toHaveLength(3)
  expect(exported).toBe(`${own.join('\n')}\n`)
  expect(watched).toMatchObject({ underWay: 0, mostAtOnce: 1 })
  // The same connection: the pool has no other.
  const { rows } = await pool.query("SELECT current_setting('transaction_isolation') AS isolation")
  expect(rows).toEqual([{ isolation: 'read committed' }])
})

test('the export of a contact that does not exist fails', async () => {
  await using database = await openDatabase()
  await load(database.pool, BASE)
  const exported = written((output) => exportContact(database.pool, 'acme', 'c"9', output))
  await expect(exported).rejects.toThrow('contact "c\\"9" does not exist any more')
})
