import { spawn } from 'node:child_process'
import path from 'node:path'
import { json } from 'node:stream/consumers'
import type { OperationId } from '../../../src/http/operations.ts'
import { startDemoService } from '../../support/demo-service.ts'
import { exampleCall, operationIds, type Variation } from '../../support/example-call.ts'
import { type Answer, examples, planted } from './planted.ts'

/**
 * `make validators`: lets third-party validators judge, by the strict document, the document's examples and the responses of
 * a running service, which must all be right, and the planted wrong ones, of which each must find nearly all. Each is shown
 * in docs/contract-testing.md. For comparison, it prints what they find by openapi.yaml.
 */
const VALIDATORS = ['ajv', 'jsonschema', 'kin-openapi']
const GENERATED = path.join(import.meta.dirname, '../../../generated')

/** How many planted responses a validator may accept. */
const MAX_MISSED = 2

/** What a validator finds wrong with each response; empty texts for those that it accepts. */
async function judge(validator: string, document: string, answers: Answer[]): Promise<string[]> {
  const child = spawn(path.join(import.meta.dirname, validator, 'run'), {
    env: { ...process.env, FLOWTRAIL_DOCUMENT: path.join(GENERATED, document) },
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  child.stdin.end(JSON.stringify(answers))
  return (await json(child.stdout)) as string[]
}

/** Responses of a running service: each operation's example request, pages of many rows, and errors of all kinds. */
async function record(): Promise<Answer[]> {
  const service = await startDemoService()
  const call = async (operationId: OperationId, change: Variation = {}, address = service.address): Promise<Answer> => {
    const { method, path: url, body, key = service.key, headers } = exampleCall(operationId, change)
    const response = await fetch(address + url, {
      method: method ?? 'GET',
      headers: { 'x-api-key': String(key), 'content-type': 'application/json', ...headers },
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    })
    return { operationId, status: response.status, body: await response.json() }
  }
  const event = exampleCall('recordCustomEvent').body as { identifiers: object[] }
  const identified = (...keys: string[]) => ({
    ...event,
    identifiers: keys.map((key) => ({ key, value: `"of ${key}"` })),
  })
  try {
    const answers: Answer[] = []
    for (const operationId of operationIds) {
      for (const key of [service.key, service.readKey, service.writeKey, service.otherKey]) {
        answers.push(await call(operationId, { key }))
      }
      answers.push(await call(operationId, { query: { no: '1' } }))
      answers.push(await call(operationId, { path: { moduleId: 'nothing', entryId: 'nothing' } }))
      for (let i = 0; i < 2; i += 1) answers.push(await call(operationId, {}, service.limitedAddress))
    }
    for (const operationId of ['listModuleVersions', 'listEntryEvents', 'listEntryPageViews'] as const) {
      answers.push(await call(operationId, { query: { limit: '1000' } }))
    }
    answers.push(await call('getModuleVersion', { path: { versionNumber: '99' } }))
    const bodies = [identified('a'), identified('b'), identified('a', 'b'), { ...event, padding: ' '.repeat(2 ** 18) }]
    for (const body of bodies) answers.push(await call('recordCustomEvent', { body }))
    for (const body of [identified('a'), identified('b')]) {
      answers.push(await call('recordCustomEvent', { body, headers: { 'idempotency-key': 'once' } }))
    }
    answers.push(await call('recordCustomEvent', { headers: { 'content-type': 'text/plain' } }))
    const undecodable = await fetch(`${service.address}/projects/demo/modules/%zz`)
    answers.push({ operationId: 'getModule', status: undecodable.status, body: await undecodable.json() })
    return answers
  } finally {
    await service.stop()
  }
}

const recorded = await record()
const right = [...examples, ...recorded]
const statuses = new Set(recorded.map(({ status }) => status))
console.log(`${examples.length} examples, ${recorded.length} recorded responses (${[...statuses].sort().join(', ')})`)
for (const validator of VALIDATORS) {
  const issues = await judge(validator, 'openapi.strict.json', [...right, ...planted])
  const loosely = await judge(validator, 'openapi.json', planted)
  const refused = right.flatMap(({ operationId, status }, i) =>
    issues[i] ? [`${operationId} ${status}: ${issues[i]}`] : [],
  )
  const missed = planted.filter((_, i) => !issues[right.length + i]).map(({ kind }) => kind)
  const found = planted.length - missed.length
  console.log(
    `${validator}: finds ${found} of ${planted.length} wrong responses by the strict document, ` +
      `${loosely.filter(Boolean).length} by openapi.yaml${missed.length > 0 ? `; not ${missed.join(', ')}` : ''}`,
  )
  for (const refusal of refused) console.log(`  refuses a right response: ${refusal}`)
  if (refused.length > 0 || missed.length > MAX_MISSED) process.exitCode = 1
}
