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

test('of modules created at once the one with the greater id is listed first', async () => {
  const ids = ['b', 'a', 'c']
  await api.db
    .insertInto('modules')
    .values(
      ids.map((module_id) => ({
        project_id: 'demo',
        module_id,
        group_id: 'clinic',
        title: 't',
        created_at: toIsoTimestamp(new Date(0)),
      })),
    )
    .execute()
  const rows: { module_id: string }[] = (await api.call({ path: '/projects/demo/modules' })).json()
  expect(rows.map(({ module_id }) => module_id).slice(-3)).toEqual(['c', 'b', 'a'])
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

test('getModule returns the definition last published, not the one with the greatest number', async () => {
  const saved = { project_id: 'demo', module_id: 'clinic-booking', saved_at: toIsoTimestamp(new Date(0)) }
  const published = (version_number: number, at: string) => ({
    ...saved,
    version_number,
    published_at: toIsoTimestamp(new Date(at)),
    json_string: `{"version":${version_number}}`,
  })
  const productionAfter = async (...versions: ReturnType<typeof published>[]) => {
    await api.db.insertInto('module_versions').values(versions).execute()
    return (await api.call({ path: '/projects/demo/modules/clinic-booking' })).json().json_string_prod
  }
  const [early, late] = ['2025-11-20T10:00:00Z', '2026-02-01T00:00:00Z']
  expect(await productionAfter(published(4, early))).toContain('Book a skin consultation')
  expect(await productionAfter(published(2, late), published(5, early))).toBe('{"version":2}')
  // Of those published at once, the greatest number.
  expect(await productionAfter(published(3, late))).toBe('{"version":3}')
})
