import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { gunzipSync } from 'node:zlib'
import { sql } from 'kysely'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { openProject, type Project } from './project.ts'
import { CONNECTOR_NAMES, type Row, Warehouse } from './warehouse.ts'

/** What a compressed file begins with. */
const GZIP = 0x1f8b

let project: Project
beforeAll(async () => {
  project = await openProject()
})
afterAll(() => project.api.close())

describe.each(CONNECTOR_NAMES)('the source for %s', (name) => {
  let warehouse: Warehouse
  beforeAll(() => {
    warehouse = new Warehouse(name, project)
  })

  test('erases who is erased, and a later copy has who came back', { timeout: 180_000 }, async () => {
    const [folder, contactId] = [await warehouse.newFolder(), `${name}-erased`]
    await project.addContact(contactId, 3)
    await project.addEvents(1)
    await warehouse.sync(folder)
    await project.eraseContact(contactId)
    await warehouse.sync(folder)
    await warehouse.expectComplete(folder)

    await sql`UPDATE erasures SET erased_at = erased_at - interval '2 days'`.execute(project.api.db)
    await project.addContact(contactId, 2)
    const later = await warehouse.newFolder()
    await warehouse.sync(later)
    const { entries = [], events = [] } = await warehouse.expectComplete(later)
    const ofContact = (rows: Row[]) => rows.filter(({ contact_id }) => contact_id === contactId).length
    expect([ofContact(entries), ofContact(events)]).toEqual([1, 2])
  })

  test('erases who is erased when it is killed in the middle', { timeout: 180_000 }, async () => {
    const folder = await warehouse.newFolder()
    for (const count of [4, 8, 12]) {
      const contactId = `${name}-killed-${count}`
      await project.addContact(contactId, 3)
      const { received, release } = project.holdAfter(count)
      await warehouse.killWhen(folder, async () => {
        await received
        await project.eraseContact(contactId)
      })
      release()
    }
    await warehouse.sync(folder)
    await warehouse.expectComplete(folder)
  })

  test.runIf(name === 'dlt')(
    'keeps who comes back at once, and no file of what it has read',
    { timeout: 180_000 },
    async () => {
      const [folder, contactId] = [await warehouse.newFolder(), `${name}-back`]
      await project.addContact(contactId, 3)
      await warehouse.sync(folder)
      await project.eraseContact(contactId)
      await project.addContact(contactId, 2)
      await warehouse.sync(folder)
      await warehouse.expectComplete(folder)
      await warehouse.sync(folder)
      await warehouse.expectComplete(folder)
      const work = path.join(folder, 'dlt_pipelines')
      const files = await readdir(work, { recursive: true, withFileTypes: true })
      const texts = await Promise.all(
        files
          .filter((file) => file.isFile())
          .map(async (file) => {
            const bytes = await readFile(path.join(file.parentPath, file.name))
            return bytes.length > 1 && bytes.readUInt16BE() === GZIP ? gunzipSync(bytes) : bytes
          }),
      )
      expect(texts.length).toBeGreaterThan(0)
      expect(texts.filter((text) => text.includes(contactId))).toEqual([])
      const staged = await warehouse.staged(folder)
      expect(staged).not.toContain(contactId)
      // In a copy by Airbyte its entry would be missing for a day.
      await project.eraseContact(contactId)
    },
  )

  test.runIf(name === 'dlt')('keeps who came back before the project was moved', { timeout: 180_000 }, async () => {
    const [folder, contactId] = [await warehouse.newFolder(), `${name}-moved`]
    await project.addContact(contactId, 3)
    await project.eraseContact(contactId)
    await project.addContact(contactId, 2)
    await warehouse.sync(folder)
    // An export has none.
    await sql`DELETE FROM erasures WHERE project_id = 'demo'`.execute(project.api.db)
    await warehouse.sync(folder, ['--all-entries'])
    const { entries = [] } = await warehouse.copied(folder)
    expect(entries.filter(({ contact_id }) => contact_id === contactId)).toHaveLength(1)
    await project.eraseContact(contactId)
  })
})
