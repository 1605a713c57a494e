import type { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { finished } from 'node:stream/promises'
import { setImmediate } from 'node:timers/promises'
import { gunzipSync } from 'node:zlib'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { sql } from 'kysely'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { Page, WholeList } from '../../src/domain/cursor.ts'
import { serviceUnavailable } from '../../src/domain/errors.ts'
import { type IsoTimestamp, toIsoTimestamp } from '../../src/domain/timestamp.ts'
import { type Lease, ReadGate } from '../../src/http/read-gate.ts'
import { wholeBody } from '../../src/http/reads.ts'
import { type Call, createTestApp, type TestApp } from '../support/app.ts'
import { outliveKeyCache } from './requests.ts'

// The list of all modules has no pages, but is read and sent as its client takes it.

const ROWS_AT_A_TIME = 128
/** Three are created at once, and one of a hundred has a large title. */
const MODULES = Array.from({ length: 1_000 }, (_, i) => ({
  project_id: 'demo',
  module_id: `m${String(i).padStart(4, '0')}`,
  group_id: 'g',
  title: i % 100 === 50 ? `"${i}"\n`.repeat(1_000) : `Module ${i}`,
  created_at: toIsoTimestamp(new Date(Date.UTC(2026, 0, 1) + Math.floor(i / 3) * 1_000)),
}))
const NEWEST_FIRST = MODULES.toReversed().map(({ created_at: _, ...module }) => module)

let api: TestApp
let address: string
const lines: Record<string, unknown>[] = []
beforeAll(async () => {
  const stream = { write: (line: string) => void lines.push(JSON.parse(line)) }
  api = await createTestApp({
    twins: false,
    logger: { level: 'info', stream },
    fill: async (_, db) => {
      await db.insertInto('projects').values({ project_id: 'demo', name: 'n' }).execute()
      await db.insertInto('groups').values({ project_id: 'demo', group_id: 'g', name: 'g' }).execute()
      await db.insertInto('modules').values(MODULES).execute()
    },
  })
  address = await api.listen()
})
afterAll(() => api.close())

const list = (options: Partial<Call> = {}) => api.call({ path: '/projects/demo/modules', ...options })

const underWay = async () => {
  const { body } = await api.app.inject('/metrics')
  return Number(/^flowtrail_reads_under_way (\d+)$/m.exec(body)?.[1])
}

/** Spies on a method of the gate until the test ends. */
function spyOnGate(method: 'enter' | 'changeUnsent') {
  const spy = vi.spyOn(ReadGate.prototype, method)
  onTestFinished(() => spy.mockRestore())
  return () => spy.mock.calls.map(([, bytes]) => bytes)
}

test('a list of more modules than are read at once is complete and in order', async () => {
  const response = await list()
  expect(response.json()).toEqual(NEWEST_FIRST)
  expect(response.headers).toMatchObject({
    'content-type': 'application/json; charset=utf-8',
    'cache-control': 'private, no-cache',
    vary: 'X-Api-Key, accept-encoding',
  })
  expect(response.headers).not.toHaveProperty('content-length')
})

test('it is compressed for a client that accepts gzip', async () => {
  const response = await list({ headers: { 'accept-encoding': 'gzip' } })
  expect(response.headers['content-encoding']).toBe('gzip')
  expect(JSON.parse(gunzipSync(response.rawPayload).toString())).toEqual(NEWEST_FIRST)
})

test('HEAD has the same headers, and reads no more than it needs for them', async () => {
  const entered = spyOnGate('enter')
  const head = await list({ method: 'HEAD' })
  expect(entered()).toHaveLength(1)
  await expect.poll(underWay).toBe(0)
  const whole = await list()
  expect([head.statusCode, head.body]).toEqual([200, ''])
  for (const name of ['content-type', 'content-length', 'cache-control', 'vary']) {
    expect(head.headers[name]).toBe(whole.headers[name])
  }
})

test('it begins as a small read, goes on as a large one, and holds nothing once it is sent', async () => {
  const [entered, unsent] = [spyOnGate('enter'), spyOnGate('changeUnsent')]
  await list()
  await expect.poll(() => unsent().reduce((sum, bytes) => sum + bytes, 0)).toBe(0)
  const others = Array(Math.ceil(MODULES.length / ROWS_AT_A_TIME) - 1).fill(8 * 1024 * 1024)
  expect(entered()).toEqual([512 * 1024, ...others])
  expect(Math.max(...unsent())).toBeLessThan(512 * 1024)
})

test('it ends with the part before one that has become empty', async () => {
  const { enter } = ReadGate.prototype
  const last = MODULES.length % ROWS_AT_A_TIME
  const oldest = MODULES.slice(0, last).map(({ module_id }) => module_id)
  const setCreated = (created_at: string) =>
    sql`UPDATE modules SET created_at = ${created_at}::timestamptz WHERE module_id = ANY (${oldest})`.execute(api.db)
  const spy = vi.spyOn(ReadGate.prototype, 'enter').mockImplementation(async function (this: ReadGate, ...args) {
    if (spy.mock.calls.length === Math.ceil(MODULES.length / ROWS_AT_A_TIME)) await setCreated('2027-01-01')
    return enter.apply(this, args)
  })
  onTestFinished(async () => {
    spy.mockRestore()
    for (const { module_id, created_at } of MODULES.slice(0, last)) {
      await sql`UPDATE modules SET created_at = ${created_at} WHERE module_id = ${module_id}`.execute(api.db)
    }
  })
  expect((await list()).json()).toEqual(NEWEST_FIRST.slice(0, -last))
})

describe('a response breaks off when the rest cannot be read,', () => {
  test.each<[string, string | undefined, () => Promise<unknown>]>([
    ['since it is not admitted', 'service_unavailable', () => Promise.reject(serviceUnavailable())],
    [
      'since the database fails',
      undefined,
      () => sql`ALTER TABLE modules RENAME COLUMN title TO other`.execute(api.db),
    ],
    ['since its key has been revoked', 'unauthorized', () => revoke()],
  ])('%s, says so in the log, and holds nothing any more', async (_, error_code, fail) => {
    const { enter } = ReadGate.prototype
    const spy = vi.spyOn(ReadGate.prototype, 'enter').mockImplementation(async function (this: ReadGate, ...args) {
      if (spy.mock.calls.length === 3) await fail()
      return enter.apply(this, args)
    })
    onTestFinished(async () => {
      spy.mockRestore()
      await sql`DO $$ BEGIN ALTER TABLE modules RENAME COLUMN other TO title; EXCEPTION WHEN undefined_column THEN END $$`.execute(
        api.db,
      )
    })
    lines.splice(0)
    const response = await fetch(`${address}/projects/demo/modules`, { headers: { 'x-api-key': api.key } })
    expect(response.status).toBe(200)
    expect(await response.text().catch(({ message }) => message)).toBe('terminated')
    await expect.poll(underWay).toBe(0)
    const line = { operation: 'listModules', status: 200, msg: 'request cut off' }
    expect(lines).toContainEqual(expect.objectContaining(error_code ? { ...line, error_code } : line))
  })

  /** Until the test ends. */
  async function revoke(): Promise<void> {
    const set = (revoked_at: IsoTimestamp | null) => api.db.updateTable('api_keys').set({ revoked_at }).execute()
    await set(toIsoTimestamp(new Date(0)))
    outliveKeyCache()
    onTestFinished(async () => {
      await set(null)
    })
  }
})

/** The body of a list whose parts have these rows, with the lease and the log of its request. */
async function bodyOf(parts: object[][]) {
  const [lease, log] = [{ send: vi.fn<Lease['send']>(), sent: vi.fn<Lease['sent']>() }, { error: vi.fn() }]
  const request = { lease, log, server: {}, facts: {} } as unknown as FastifyRequest
  const reply = { raw: { destroyed: false }, type: () => reply } as unknown as FastifyReply
  const list = new WholeList(async (cursor = '0') => {
    const next = Number(cursor) + 1
    const rows = parts[next - 1] as object[]
    return new Page(rows, undefined, () => ({
      cursor: next < parts.length ? String(next) : undefined,
      more: next < parts.length,
    }))
  })
  const body = (await wholeBody(request, reply, list)) as Readable
  return { body, lease, log }
}

test('its lease has what of each part is not known to be sent, until the end', async () => {
  const parts = [[{ id: 'first' }, { id: 2 }], [{ id: 'another' }], [{ id: 'the last' }]]
  const { body, lease } = await bodyOf(parts)
  expect(await text(body)).toBe(JSON.stringify(parts.flat()))
  const [first, second, last] = ['[{"id":"first"},{"id":2}', ',{"id":"another"}', ',{"id":"the last"}'].map(
    ({ length }) => length,
  ) as [number, number, number]
  expect(lease.send.mock.calls).toEqual([[first], [first + second], [second + last], [last]])
})

test('it breaks off, with a log line and nothing held, when a part has no JSON', async () => {
  const { body, lease, log } = await bodyOf([[{ id: 1 }], [{ id: 2n }]])
  await expect(text(body)).rejects.toThrow('BigInt')
  expect(log.error).toHaveBeenCalledOnce()
  expect(lease.send.mock.lastCall).toEqual([0])
})

test('a client that hangs up while the list is sent is no failure of the service', async () => {
  const { body, log } = await bodyOf([[{ module_id: 'm' }], [{ module_id: 'm' }]])
  for await (const _ of body.iterator({ destroyOnReturn: false })) break
  // As @fastify/compress does it.
  body.destroy(new Error('Premature close'))
  await expect(finished(body)).rejects.toThrow('Premature close')
  await setImmediate()
  expect(log.error).not.toHaveBeenCalled()
})
