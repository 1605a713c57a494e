import { writeFile } from 'node:fs/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createPool } from '../../src/database/pool.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { type Flowtrail, flowtrailWith, printed, temporaryDirectory } from './run.ts'

const NOW = '2026-03-01T09:30:00.000Z'
const linesOf = (project_id: string, records: object[]) =>
  records.map((record) => JSON.stringify({ ...record, project_id })).join('\n')
const contact = (contact_id: string, email: string) => ({
  ...{ type: 'contact', contact_id, created_at: NOW },
  identifiers: [
    { key: 'phone', value: '12' },
    { key: 'email', value: JSON.stringify(email) },
  ].slice(contact_id === 'c1' ? 0 : 1),
})
const entry = (entry_id: string, contact_id: string) => ({
  ...{ type: 'entry', entry_id, contact_id, module_id: 'm', created_at: NOW, updated_at: NOW, entry_data: '{"a":1}' },
})
const event = (entry_id: string, event_id: string) => ({
  ...{ type: 'event', entry_id, event_id, timestamp: NOW, event_type: 'custom.event', custom_event_name: event_id },
})

/** A project in which c1 has two entries with three events, and c2 one of each. */
const records = (name: string) => [
  { type: 'project', name },
  { type: 'group', group_id: 'g', name: 'G' },
  { type: 'module', module_id: 'm', group_id: 'g', title: 'M', created_at: NOW },
  { type: 'module_version', module_id: 'm', version_number: 1, saved_at: NOW, published_at: NOW, json_string: '{}' },
  ...[contact('c1', `a@${name}.example`), contact('c2', `b@${name}.example`)],
  ...[entry('e1', 'c1'), entry('e2', 'c1'), entry('e3', 'c2')],
  ...[event('e1', 'v1'), event('e1', 'v2'), event('e2', 'v3'), event('e3', 'v4')],
]

let database: TestDatabase
let flowtrail: Flowtrail
beforeAll(async () => {
  database = await createTestDatabase()
  flowtrail = flowtrailWith({ DATABASE_URL: database.url })
  await using directory = await temporaryDirectory()
  // Two projects with the same ids.
  for (const name of ['acme', 'twin']) {
    await writeFile(`${directory.path}/${name}`, linesOf(name, records(name)))
    await printed(flowtrail('import', `${directory.path}/${name}`))
  }
  const pool = createPool(database.url, { max: 1 })
  const insert = 'INSERT INTO idempotency_keys VALUES ($1, $2, $3, $4, $5)'
  for (const [project, key, id] of [
    ['acme', 'k1', 'v1'],
    ['acme', 'k4', 'v4'],
    ['twin', 'k1', 'v1'],
  ]) {
    await pool.query(insert, [project, key, id, Buffer.alloc(32), `{"of":"${project}","event_id":"${id}"}`])
  }
  await pool.end()
})
afterAll(() => database.drop())

describe('contacts find', () => {
  const find = (identifier: string, ...args: string[]) =>
    flowtrail('contacts', 'find', '--project', 'acme', '--identifier', identifier, ...args)

  test.each(['email="a@acme.example"', 'email="\\u0061@acme.example"', 'phone=12.0', 'contact_id="c1"'])(
    'finds a contact by %s',
    async (identifier) => {
      expect(JSON.parse(await printed(find(identifier, '--json')))).toEqual([
        { contact_id: 'c1', created_at: NOW, identifiers: 2, entries: 2, events: 3 },
      ])
    },
  )

  test('prints a table', async () => {
    expect(await printed(find('email="b@acme.example"'))).toBe(
      'contact_id  created_at                identifiers  entries  events\n' +
        'c2          2026-03-01T09:30:00.000Z            1        1       1',
    )
  })

  test.each([
    ['email="a@twin.example"', 1, 'No contact of project acme has this identifier'],
    ['contact_id="c9"', 1, 'No contact of project acme has this identifier'],
    ['phone="12"', 1, 'No contact of project acme has this identifier'],
    ['a="b"="c"', 1, 'No contact of project acme has this identifier'],
    ['email', 2, `Expected a key and JSON, such as 'email="a@example.com"'`],
    ['="a"', 2, 'Its key must be 1 to 128 characters long'],
    ['email=a@b.c', 2, 'must be JSON text; to send it as a string, quote it: "a@b.c". Quote it for the shell, too'],
  ])('%s exits with %i', async (identifier, status, message) => {
    const outcome = await find(identifier)
    expect(outcome).toMatchObject({ status, stdout: '' })
    expect(outcome.stderr).toContain(message)
    expect(outcome.stderr).toMatch(/^[^\n]+\n$/)
  })
})

describe('contacts export', () => {
  test('writes all that is stored of a contact, and nothing of others', async () => {
    const lines = (await printed(flowtrail('contacts', 'export', 'c1', '--project', 'acme'))).split('\n')
    const written = lines.map((line) => JSON.parse(line) as Record<string, unknown>)
    expect(written).toMatchObject([
      { type: 'contact', contact_id: 'c1', identifiers: [{ value: '"a@acme.example"' }, { value: '12' }] },
      { type: 'entry', entry_id: 'e1', entry_data: '{"a":1}' },
      { type: 'entry', entry_id: 'e2' },
      { type: 'event', entry_id: 'e1', event_id: 'v1' },
      { type: 'event', entry_id: 'e1', event_id: 'v2' },
      { type: 'event', entry_id: 'e2', event_id: 'v3' },
      { type: 'idempotency_key', idempotency_key: 'k1', event_id: 'v1', response: '{"of":"acme","event_id":"v1"}' },
    ])
    expect(new Set(written.map(({ project_id }) => project_id))).toEqual(new Set(['acme']))
  })

  test('writes its records as the export of the project does', async () => {
    const all = (await printed(flowtrail('export', '--project', 'acme'))).split('\n')
    const own = (await printed(flowtrail('contacts', 'export', 'c2', '--project', 'acme'))).split('\n')
    expect(own.slice(0, -1)).toEqual(all.filter((line) => /"(c2|e3)"/.test(line)))
    expect(own.at(-1)).toContain('"k4"')
    expect(own).toEqual(own.map((line) => JSON.stringify(JSON.parse(line))))
  })

  test.each([
    [
      ['c9', '--project', 'acme'],
      'Project acme has no contact c9. Run: npm run -s flowtrail -- contacts find --project acme --identifier KEY=JSON',
    ],
    [['c1', '--project', 'none'], 'Project none does not exist. Run: npm run -s flowtrail -- projects list'],
  ])('%j fails', async (args, message) => {
    expect(await flowtrail('contacts', 'export', ...args)).toEqual({
      ...{ status: 1, stdout: '' },
      stderr: `flowtrail: ${message}\n`,
    })
  })
})

describe('projects', () => {
  test('rename changes the name alone', async () => {
    expect(await printed(flowtrail('projects', 'rename', 'twin', 'Twin & Co'))).toBe('')
    expect(JSON.parse(await printed(flowtrail('projects', 'list', '--json')))).toEqual([
      { project_id: 'acme', name: 'acme' },
      { project_id: 'twin', name: 'Twin & Co' },
    ])
    expect(await flowtrail('projects', 'rename', 'none', 'None')).toEqual({
      ...{ status: 1, stdout: '' },
      stderr: 'flowtrail: Project none does not exist. Run: npm run -s flowtrail -- projects list\n',
    })
  })

  test('stats counts what each has', async () => {
    await printed(flowtrail('projects', 'create', 'void'))
    const counts = { modules: 1, module_versions: 1, contacts: 2, entries: 3, events: 4 }
    const none = { modules: 0, module_versions: 0, contacts: 0, entries: 0, events: 0 }
    const stats = JSON.parse(await printed(flowtrail('projects', 'stats', '--json')))
    const last_event_at = expect.stringMatching(/^20\d\d-\d\d-\d\dT[\d:.]+Z$/)
    expect(stats).toEqual([
      { project_id: 'acme', ...counts, bytes: expect.any(Number), last_event_at },
      { project_id: 'twin', ...counts, bytes: expect.any(Number), last_event_at },
      { project_id: 'void', ...none, bytes: 0, last_event_at: null },
    ])
    expect(stats[0].bytes).toBeGreaterThan(1_000)
    expect(stats[0].bytes).toBeLessThan(20_000)
    const [one] = JSON.parse(await printed(flowtrail('projects', 'stats', 'acme', '--json')))
    expect(one).toEqual(stats[0])
    expect(await printed(flowtrail('projects', 'stats', 'void'))).toMatch(/^project_id +modules .*\nvoid +0 .* -$/)
    expect((await flowtrail('projects', 'stats', 'none')).stderr).toContain('Project none does not exist')
  })
})
