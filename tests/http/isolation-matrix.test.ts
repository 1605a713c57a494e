import type { LightMyRequestResponse } from 'fastify'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { formatKey, generateKey, parseKey, SCOPES, type Scope } from '../../src/domain/api-key.ts'
import { type IsoTimestamp, toIsoTimestamp } from '../../src/domain/timestamp.ts'
import type { OperationId } from '../../src/http/operations.ts'
import { updateKeyRevoked } from '../../src/queries/api-keys.ts'
import { createTestApp, type TestApp, withExamples } from '../support/app.ts'
import { type DocumentedOperation, operations } from '../support/contract.ts'
import { exampleCall, operationIds, type Variation } from '../support/example-call.ts'
import { rowCounts } from './requests.ts'

// Every operation of the document × every kind of key × ids of the project itself, of another one, and of none. An id that
// the document gets is not forgotten: a test fails until FOREIGN has it. References between the lines of an import are tested
// in tests/transfer/isolation.test.ts.

const instant = '2026-02-01T00:00:00.000Z'
const OTHER = 'other'
const ABSENT_PROJECT = 'absent'

/** By the name of each id that a request holds besides that of the project: one that only the other project has. */
const FOREIGN: Record<string, string> = {
  moduleId: 'foreign-module',
  versionNumber: '42',
  entryId: 'foreign-entry',
  module_id: 'foreign-module',
}
/** Ids that nobody has. */
const ABSENT: Record<string, string> = {
  moduleId: 'absent-module',
  versionNumber: '43',
  entryId: 'absent-entry',
  module_id: 'absent-module',
}

function* records(): Generator<object> {
  const of = { project_id: OTHER }
  yield { type: 'group', ...of, group_id: 'g' }
  for (const module_id of ['skin-quiz', 'foreign-module']) {
    const module = { ...of, module_id }
    yield { type: 'module', ...module, group_id: 'g', title: 'Foreign' }
    for (const version_number of [1, 2, 42]) {
      const saved = { saved_at: instant, published_at: instant, json_string: '{}' }
      yield { type: 'module_version', ...module, version_number, ...saved }
    }
  }
  yield { type: 'contact', ...of, contact_id: 'c', identifiers: [] }
  const entry = { module_id: 'foreign-module', contact_id: 'c', created_at: instant, updated_at: instant }
  yield { type: 'entry', ...of, entry_id: 'foreign-entry', ...entry }
}

let api: TestApp
beforeAll(async () => {
  api = await createTestApp({ fill: withExamples(records()), config: { trustProxy: true } })
})
afterAll(() => api.close())

const operation = (operationId: OperationId) => operations[operationId] as DocumentedOperation
const scopeOf = (operationId: OperationId) => operation(operationId)['x-required-scope']
const newKey = (project: string, scopes: readonly Scope[] = SCOPES, expires_at: IsoTimestamp | null = null) =>
  createKey(api.db, project, { name: '', scopes, expires_at })

/** Every key that is no good for project demo, by what is wrong with it. */
const REFUSED: Record<string, () => Promise<string | null>> = {
  missing: async () => null,
  malformed: async () => `${api.key.slice(0, -1)}${api.key.endsWith('0') ? '1' : '0'}`,
  unknown: async () => formatKey(generateKey()),
  expired: () => newKey('demo', SCOPES, toIsoTimestamp(new Date(instant))),
  revoked: async () => {
    const key = await newKey('demo')
    await updateKeyRevoked(api.db, 'demo', parseKey(key)?.key_id ?? '', toIsoTimestamp(new Date()))
    return key
  },
  'of another project': () => newKey(OTHER),
}

/** Operations on all that a project has. */
const WITHOUT_IDS = ['listEntries', 'listEntryPageViews', 'listErasures', 'listModules', 'listProjectEvents']
/** What an import brings itself. */
const IMPORTED = ['contact_id', 'entry_id', 'event_id', 'page_id']
/** The status of an operation that finds nothing by an id in its body, if that is not 404. */
const STATUS: Partial<Record<OperationId, number>> = { recordCustomEvents: 200, importRecords: 409 }

/** The operation's example body as text, without idempotency keys, which would refuse another body. */
function bodyOf(operationId: OperationId): string {
  const { body = '' } = exampleCall(operationId)
  return (typeof body === 'string' ? body : JSON.stringify(body)).replace(/,"idempotency_key":"[^"]*"/g, '')
}

/** The ids that a request of the operation holds besides that of the project, by their names. */
function idsOf(operationId: OperationId): string[] {
  const inPath = operation(operationId)
    .parameters.filter((parameter) => parameter.in === 'path')
    .map(({ name }) => name)
  const inBody = [...bodyOf(operationId).matchAll(/"(\w+_id)":/g)].map(([, name = '']) => name)
  const own = operationId === 'importRecords' ? IMPORTED : []
  return [...new Set([...inPath, ...inBody])].filter((name) => name !== 'projectId' && !own.includes(name))
}

/** Requests of the operation with one id at a time replaced, wherever it is. */
function withIds(operationId: OperationId, ids: Record<string, string>): Variation[] {
  return idsOf(operationId).map((name): Variation => {
    const id = ids[name] ?? ''
    const body = bodyOf(operationId)
    const replaced = body.replace(new RegExp(`(?<="${name}":)"[^"]*"`, 'g'), () => JSON.stringify(id))
    if (replaced === body) return { path: { [name]: id } }
    if (operationId !== 'importRecords') return { body: JSON.parse(replaced) }
    // An entry of its own: that of the example may be stored, with its module.
    return { body: replaced.replace(/(?<="(entry|event)_id":")/g, `${id}-`) }
  })
}

let clients = 0
/** Each request from an address of its own: refusals are counted by address. */
function send(operationId: OperationId, { path, ...variation }: Variation, project = 'demo') {
  clients += 1
  const address = `192.0.${clients >> 8}.${clients & 255}`
  const call = exampleCall(operationId, {
    ...variation,
    path: { projectId: project, ...path },
    headers: { 'x-forwarded-for': address },
  })
  return api.call(call)
}

const outcomeOf = ({ statusCode, body }: LightMyRequestResponse) => `${statusCode} ${body}`

test('each operation has ids whose foreign and absent values are known', () => {
  expect(operationIds.filter((operationId) => idsOf(operationId).length === 0).sort()).toEqual(WITHOUT_IDS)
  const names = [...new Set(operationIds.flatMap(idsOf))].sort()
  expect(names).toEqual(Object.keys(FOREIGN).sort())
  expect(names).toEqual(Object.keys(ABSENT).sort())
})

test.each(operationIds)('%s: the ids that count as foreign exist in the other project', async (operationId) => {
  const key = await newKey(OTHER)
  for (const variation of withIds(operationId, FOREIGN)) {
    const outcome = outcomeOf(await send(operationId, { ...variation, key }, OTHER))
    expect(outcome).toMatch(/^200 /)
    expect(outcome).not.toContain('"error"')
  }
})

test.each(operationIds)('%s: no key but one of the project gives access, whatever the ids', async (operationId) => {
  const before = await rowCounts(api.db)
  const ids = [{}, ...withIds(operationId, FOREIGN), ...withIds(operationId, ABSENT)]
  for (const [kind, make] of Object.entries(REFUSED)) {
    const key = await make()
    // Another project's key is good there.
    for (const project of kind === 'of another project' ? ['demo', ABSENT_PROJECT] : ['demo', OTHER, ABSENT_PROJECT]) {
      for (const variation of ids) {
        const response = await send(operationId, { ...variation, key }, project)
        expect(outcomeOf(response), `${kind}, ${JSON.stringify(variation)}`).toBe(
          `401 {"error":{"code":"unauthorized","message":"Access to the project with the given key is not authorized."},"projectId":"${project}"}`,
        )
      }
    }
  }
  expect(await rowCounts(api.db)).toEqual(before)
})

test.each(operationIds)('%s: a key without the scope gives no access, whatever the ids', async (operationId) => {
  const before = await rowCounts(api.db)
  const scope = scopeOf(operationId)
  const lacking = SCOPES.filter((other) => other !== scope)
  for (const key of [await newKey('demo', lacking), await newKey('demo', [])]) {
    const outcomes = []
    for (const ids of [{}, ...withIds(operationId, FOREIGN), ...withIds(operationId, ABSENT)]) {
      const response = await send(operationId, { ...ids, key })
      expect([response.statusCode, response.json().error.code]).toEqual([403, 'insufficient_scope'])
      expect(response.json().error.message).toContain(`"${scope}"`)
      outcomes.push(outcomeOf(response))
    }
    expect(new Set(outcomes).size).toBe(1)
  }
  expect(await rowCounts(api.db)).toEqual(before)
})

test.each(operationIds)('%s: what only another project has is like what nobody has', async (operationId) => {
  const key = await newKey('demo', [scopeOf(operationId)])
  expect((await send(operationId, { key })).statusCode).toBe(200)
  const before = await rowCounts(api.db)
  const absent = withIds(operationId, ABSENT)
  for (const [i, variation] of withIds(operationId, FOREIGN).entries()) {
    const name = idsOf(operationId)[i] ?? ''
    const response = await send(operationId, { ...variation, key })
    expect(response.statusCode, JSON.stringify(variation)).toBe(STATUS[operationId] ?? 404)
    const { results = [] } = response.json() as { results?: { status: number }[] }
    for (const { status } of results) expect(status).toBe(404)
    const like = await send(operationId, { ...absent[i], key })
    expect(outcomeOf(response)).toBe(outcomeOf(like).replaceAll(ABSENT[name] ?? '', FOREIGN[name] ?? ''))
  }
  for (const project of [OTHER, ABSENT_PROJECT]) {
    expect((await send(operationId, { key }, project)).statusCode).toBe(401)
  }
  expect(await rowCounts(api.db)).toEqual(before)
})
