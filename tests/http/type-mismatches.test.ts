import { Writable } from 'node:stream'
import type { FastifyBaseLogger } from 'fastify'
import { Registry } from 'prom-client'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { reportTypeMismatches } from '../../src/http/type-mismatches.ts'
import { createTestApp, type TestApp } from '../support/app.ts'

// Whoever sends a number as text once and as a number once makes two contacts of one person: the operator is told.

const logged: Record<string, unknown>[] = []
const log = new Writable({
  write(line, _, done) {
    logged.push(JSON.parse(String(line)))
    done()
  },
})

let api: TestApp
beforeAll(async () => {
  api = await createTestApp({ logger: { level: 'warn', stream: log } })
})
afterAll(() => api.close())

const warnings = () => logged.filter(({ msg }) => String(msg).includes('same person twice'))

async function mismatches(): Promise<number> {
  const { body } = await api.app.inject('/metrics')
  return Number(/^flowtrail_identifier_type_mismatches_total (\d+)$/m.exec(body)?.[1])
}

async function record(...events: Record<string, string>[]): Promise<void> {
  const body = {
    events: events.map((identifiers) => ({
      module_id: 'skin-quiz',
      timestamp: '2026-03-01T10:00:00Z',
      custom_event_name: 'ordered',
      identifiers: Object.entries(identifiers).map(([key, value]) => ({ key, value })),
    })),
  }
  const response = await api.call({ method: 'POST', path: '/projects/demo/events/batch', body })
  expect(response.json().results.map(({ status }: { status: number }) => status)).toEqual(events.map(() => 200))
}

async function importContacts(...contacts: [id: string, identifiers: Record<string, string>][]): Promise<void> {
  const lines = contacts.map(([contact_id, identifiers]) =>
    JSON.stringify({
      ...{ type: 'contact', contact_id },
      identifiers: Object.entries(identifiers).map(([key, value]) => ({ key, value })),
    }),
  )
  const response = await api.call({
    ...{ method: 'POST', path: '/projects/demo/records', body: lines.join('\n') },
    headers: { 'content-type': 'application/x-ndjson' },
  })
  expect(response.statusCode).toBe(200)
}

/** How many mismatches an action adds. */
async function added(action: Promise<void>): Promise<number> {
  const before = await mismatches()
  await action
  return (await mismatches()) - before
}

test('a new identifier with the text of one of another contact is counted', async () => {
  expect(await added(record({ order: '12345' }))).toBe(0)
  expect(await added(record({ order: '"12345"' }))).toBe(1)
  // Known by now.
  expect(await added(record({ order: '"12345"' }, { order: '12345' }))).toBe(0)
  // One after another in a batch; and the contacts of both exist.
  expect(await added(record({ vip: '"true"' }, { vip: 'true' }))).toBe(1)
  expect(await added(record({ other: '12345' }, { order: '12346' }, { order: '"12345 "' }))).toBe(0)
})

test('that of the same contact is not', async () => {
  expect(await added(record({ email: '"a@example.com"', id: '7' }, { email: '"a@example.com"', id: '"7"' }))).toBe(0)
  expect(await added(importContacts(['seven', { id: '70' }], ['seven', { id: '"70"' }]))).toBe(0)
})

test('a contact is known by its own id, too', async () => {
  expect(await added(importContacts(['1795', {}], ['c9', { contact_id: '1795' }]))).toBe(1)
  expect(await added(record({ contact_id: '1795.5' }, { contact_id: '1795' }))).toBe(0)
  await importContacts(['1796', {}])
  expect(await added(record({ contact_id: '1796' }))).toBe(1)
  await importContacts(['1797', {}])
  expect(await added(importContacts(['c10', { contact_id: '1797' }]))).toBe(1)
  // The other contact comes on a later line, so it did not exist yet when the identifier was added.
  expect(await added(importContacts(['c11', { contact_id: '1798' }], ['1798', {}]))).toBe(0)
})

test('imports and recording know of each other', async () => {
  await record({ customer: '1' })
  expect(await added(importContacts(['c1', { customer: '"1"' }], ['c2', { customer: '"2"' }]))).toBe(1)
  expect(await added(importContacts(['c1', { customer: '"1"' }]))).toBe(0)
  expect(await added(record({ customer: '2' }))).toBe(1)
  // On the lines of one import, of which the second is the new one; and on several lines.
  const [text, number]: Parameters<typeof importContacts> = [
    ['c3', { customer: '"3"' }],
    ['c4', { customer: '3' }],
  ]
  expect(await added(importContacts(text as never, number as never, text as never, number as never))).toBe(1)
})

test('one of them is logged, with its project and key and without its value', () => {
  expect(warnings()).toEqual([expect.objectContaining({ level: 40, project_id: 'demo', key: 'order' })])
  expect(JSON.stringify(warnings())).not.toContain('12345')
})

test('one a minute is logged of each project', () => {
  const [registry, warn] = [new Registry(), vi.fn()]
  let now_ms = 5_000
  const report = reportTypeMismatches(registry, { warn } as unknown as FastifyBaseLogger, () => now_ms)
  const warned = [0, 59_999, 60_000, 60_001].map((elapsed_ms) => {
    now_ms = 5_000 + elapsed_ms
    report({ project_id: 'demo', key: 'email', count: 3 })
    return warn.mock.calls.length
  })
  expect(warned).toEqual([1, 1, 2, 2])
  for (const project_id of ['first', 'second', 'first']) report({ project_id, key: 'email', count: 1 })
  expect(warn.mock.calls).toHaveLength(4)
  for (let i = 0; i < 5_000; i += 1) report({ project_id: `p${i % 2_500}`, key: 'email', count: 1 })
  expect(warn.mock.calls.length).toBeGreaterThan(2_500)
  expect(warn.mock.calls[0]?.[0]).toEqual({ project_id: 'demo', key: 'email', count: 3 })
  // At the start of the clock, and of a thousand projects at most.
  now_ms = 0
  const [many, other] = [vi.fn(), new Registry()]
  const reportMany = reportTypeMismatches(other, { warn: many } as unknown as FastifyBaseLogger, () => now_ms)
  const report1 = (project: number) => reportMany({ project_id: String(project), key: 'email', count: 1 })
  for (let project = 0; project < 1_000; project += 1) report1(project)
  report1(0)
  expect(many).toHaveBeenCalledTimes(1_000)
  for (const project of [1_000, 0]) report1(project)
  expect(many).toHaveBeenCalledTimes(1_002)
  // Not a name, but perhaps somebody's.
  report({ project_id: 'own', key: 'jane@example.com', count: 1 })
  expect(warn.mock.lastCall?.[0]).toEqual({ project_id: 'own', count: 1 })
  for (const [key, shown] of [
    ['k'.repeat(40), { key: 'k'.repeat(40) }],
    ['k'.repeat(41), {}],
  ] as const) {
    report({ project_id: key, key, count: 1 })
    expect(warn.mock.lastCall?.[0]).toEqual({ project_id: key, ...shown, count: 1 })
  }
})
