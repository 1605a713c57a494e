/** Of several bad lines, whatever is wrong with each, the first one is reported. */
import fc from 'fast-check'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import type { ImportError, ImportSizes } from '../../src/transfer/import.ts'
import { runs, TEST_OPTIONS } from '../support/properties.ts'
import {
  at,
  BASE,
  contact,
  custom,
  dump,
  entry,
  group,
  load,
  module,
  NOW,
  openDatabase,
  version,
  view,
} from './fixture.ts'

const email = (value: string) => ({ key: 'email', value: JSON.stringify(value) })
const claim = (value: string) => ({ key: 'contact_id', value: JSON.stringify(value) })
const STORED = [...BASE, contact('c2', [email('a'), claim('c9')]), view('v1', 1, 1)]

type Database = Awaited<ReturnType<typeof openDatabase>>
let plain: Database
let distributed: Database
let before: string
beforeAll(async () => {
  plain = await openDatabase()
  distributed = await openDatabase(undefined, { isDistributed: true })
  for (const { pool } of [plain, distributed]) await load(pool, STORED)
  before = await dump(plain.pool)
})
afterAll(async () => {
  await plain[Symbol.asyncDispose]()
  await distributed[Symbol.asyncDispose]()
})
afterEach(async () => {
  for (const { pool } of [plain, distributed]) expect(await dump(pool)).toBe(before)
})

/** Lines that contradict what is stored, each with the pointer that is reported. */
const CONFLICTS: [line: object, field: string][] = [
  [group({ project_id: 'absent' }), '/project_id'],
  [contact('c3', [], { project_id: 'absent' }), '/project_id'],
  [module({ module_id: 'm2', group_id: 'absent' }), '/group_id'],
  [module({ module_id: 'm3' }), '/module_id'],
  [version(1, undefined, { saved_at: at(1) }), '/saved_at'],
  [version(1, undefined, { json_string: '[]' }), '/json_string'],
  [version(7, undefined, { module_id: 'absent' }), '/module_id'],
  [contact('c4', [email('b'), email('a')]), '/identifiers/1'],
  [contact('c5', [claim('c1')]), '/identifiers/0/value'],
  [contact('c9'), '/contact_id'],
  [entry({ entry_id: 'e2', module_id: 'absent' }), '/module_id'],
  [entry({ entry_id: 'e3', contact_id: 'absent' }), '/contact_id'],
  [entry({ contact_id: 'c2' }), '/contact_id'],
  [view('v2', 1, 1, { entry_id: 'absent' }), '/entry_id'],
  [view('v3', 1, 1, { module_version_number: 5 }), '/module_version_number'],
  [view('v1', 2, 1), '/timestamp'],
  [custom('v1', 1), '/event_type'],
  // A line with two: that of its identifiers counts.
  [contact('c9', [email('a')]), '/identifiers/0'],
  // A second line for the checks above that find one.
  [group({ project_id: 'absent too' }), '/project_id'],
  [module({ module_id: 'm4' }), '/module_id'],
  [contact('c7', [email('a')]), '/identifiers/0'],
  [contact('c8', [claim('c2')]), '/identifiers/0/value'],
  [entry({ entry_id: 'e4', module_id: 'absent' }), '/module_id'],
  [view('v5', 1, 1, { entry_id: 'absent too' }), '/entry_id'],
  [view('v6', 1, 1, { module_version_number: 6 }), '/module_version_number'],
  // Lines that refer to their project by a parent alone.
  [version(8, undefined, { project_id: 'absent' }), '/project_id'],
  [entry({ project_id: 'absent too' }), '/project_id'],
  [view('v7', 1, 1, { project_id: 'absent' }), '/project_id'],
]
/** Lines that are bad by themselves, which are reported while the input is read. */
const INVALID: [line: object | string, field: string][] = [
  ['', ''],
  ['{', ''],
  ['\ufeff{}', ''],
  ['[]', ''],
  ['{"type":"user"}', '/type'],
  ['{"type":"project"}', '/project_id'],
  [{ ...group(), title: 'x' }, '/title'],
  [version(2, '9999-01-01T00:00:00Z'), '/published_at'],
  [contact('c6', [{ key: 'n', value: 'x' }]), '/identifiers/0/value'],
  [{ ...view('v4', 1, 1), page_id: undefined }, '/page_id'],
]

/** Bad lines in any order, each behind some good ones. */
const fileOf = (bad: [object | string, string][], from: number) =>
  fc
    .shuffledSubarray(bad, { minLength: Math.min(from, bad.length), maxLength: 6 })
    .chain((lines) =>
      fc.tuple(fc.constant(lines), fc.array(fc.nat(3), { minLength: lines.length, maxLength: lines.length })),
    )
    .map(([lines, gaps]) =>
      lines.flatMap(([line, field], i) => [
        ...Array.from({ length: gaps[i] ?? 0 }, () => ({ line: group() as object | string, field: undefined })),
        { line, field },
      ]),
    )

/** Into either database, rows sent in batches or at once, merged with statistics or by prepared statements. */
const how = fc.record({
  isDistributed: fc.boolean(),
  batch_characters: fc.constantFrom(200, 100_000),
  chunk_pages: fc.constant(1),
  small_rows: fc.constantFrom(0, 1_000),
})

type How = Partial<ImportSizes> & { isDistributed: boolean }

/** The number and the pointer of the line that is reported, for which nothing was imported. */
async function reported(
  lines: (object | string)[],
  { isDistributed, ...sizes }: How,
): Promise<{ line: number; field: string }> {
  const { issue } = await load((isDistributed ? distributed : plain).pool, lines, { now: NOW, sizes }).then(
    () => expect.unreachable('the import should have failed'),
    (error: ImportError) => error,
  )
  return { line: issue.line, field: issue.field }
}

test('of lines that contradict what is stored', TEST_OPTIONS, async () => {
  await fc.assert(
    fc.asyncProperty(fileOf(CONFLICTS, 2), how, async (file, how) => {
      const first = file.findIndex(({ field }) => field !== undefined)
      expect(
        await reported(
          file.map(({ line }) => line),
          how,
        ),
      ).toEqual({ line: first + 1, field: file[first]?.field })
    }),
    runs(40),
  )
})

test('of lines that are bad by themselves, even behind one that contradicts what is stored', TEST_OPTIONS, async () => {
  await fc.assert(
    fc.asyncProperty(fileOf(CONFLICTS, 0), fileOf(INVALID, 2), how, async (conflicts, invalid, how) => {
      const first = invalid.findIndex(({ field }) => field !== undefined)
      const lines = [...conflicts, ...invalid].map(({ line }) => line)
      expect(await reported(lines, how)).toEqual({ line: conflicts.length + first + 1, field: invalid[first]?.field })
    }),
    runs(20),
  )
})
