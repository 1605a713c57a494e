import { afterAll, beforeAll, expect, test } from 'vitest'
import { toIsoTimestamp } from '../../src/domain/timestamp.ts'
import { createTestApp, type TestApp } from '../support/app.ts'

let api: TestApp
beforeAll(async () => {
  api = await createTestApp()
})
afterAll(() => api.close())

test('listModules returns all modules, newest first', async () => {
  const response = await api.call({ path: '/projects/demo/modules' })
  expect(response.statusCode).toBe(200)
  expect(response.json().map((module: { module_id: string }) => module.module_id)).toEqual([
    'clinic-booking',
    'skin-quiz',
  ])
})

test('getModule returns the definition last published, not the one last saved', async () => {
  await api.db
    .insertInto('module_versions')
    .values({
      project_id: 'demo',
      module_id: 'skin-quiz',
      version_number: 3,
      saved_at: toIsoTimestamp(new Date('2026-02-01T00:00:00Z')),
      json_string: '{}',
    })
    .execute()
  const response = await api.call({ path: '/projects/demo/modules/skin-quiz' })
  expect(response.json().json_string_prod).toContain('Find your skin routine')
})
