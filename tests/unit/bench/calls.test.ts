import { afterAll, beforeAll, expect, it } from 'vitest'
import { callsFor, chooseVisits, TASKS, type Task, type Visit } from '../../../bench/calls.ts'
import { DEMO } from '../../../src/demo/project.ts'
import type { TestApp } from '../../support/app.ts'
import { createDemoApp } from './demo-app.ts'

let app: TestApp
let visits: Visit[]

beforeAll(async () => {
  app = await createDemoApp()
  visits = await chooseVisits(app.databaseUrl, { projects: [DEMO.projectId], count: 5 })
})
afterAll(() => app.close())

it('chooses the same visits each time', async () => {
  expect(await chooseVisits(app.databaseUrl, { projects: [DEMO.projectId], count: 5 })).toEqual(visits)
  expect(new Set(visits.map(({ entry_id }) => entry_id)).size).toBe(5)
})

it.each(TASKS)('sends requests for %s that match the document and succeed', async (task) => {
  for (const { path, method, headers, body } of callsFor(task, visits, new Map([[DEMO.projectId, app.key]]), 100)) {
    const { 'x-api-key': key } = headers ?? {}
    expect((await app.call({ path, method, key, body })).statusCode).toBe(200)
  }
})

it('records for a known contact, and for a new one', async () => {
  const record = async (task: Task): Promise<{ contact_id: string; entry_id: string }> => {
    const [call] = callsFor(task, visits, new Map(), 100)
    return (await app.call({ method: 'POST', path: call?.path ?? '', body: call?.body })).json()
  }
  expect((await record('recordKnown')).entry_id).toBe(visits[0]?.entry_id)
  expect(visits.map(({ entry_id }) => entry_id)).not.toContain((await record('recordNew')).entry_id)
})
