import { afterAll, beforeAll, expect, test } from 'vitest'
import { connect, withPool } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { selectContacts, selectIdentifierOwners } from '../../src/queries/contacts.ts'
import { insertIdempotencyKeys, selectIdempotencyKeys } from '../../src/queries/idempotency.ts'
import { findModuleId } from '../../src/queries/modules.ts'
import { EXAMPLES, importFile } from '../support/app.ts'
import { createTestDatabase, type Rows, rowsOf, type TestDatabase } from '../support/database.ts'
import { addTwins, copiesOf } from '../support/twins.ts'

// The queries of a batch find the rows that they are asked for and no others. Their caller would not notice more of them,
// but pay for each.

const TWIN = copiesOf('demo').before

let database: TestDatabase
let db: Database
let original: Rows
let twin: Rows
beforeAll(async () => {
  database = await createTestDatabase()
  await importFile(database.url, EXAMPLES)
  db = connect(database.url)
  await addTwins(db)
  original = await rowsOf(db, 'demo')
  twin = await rowsOf(db, TWIN)
})
afterAll(async () => {
  await db.destroy()
  await database.drop()
})

/** The first row of the original and the second of its twin, whose keys occur in the other project, too. */
const asked = <Row>(ofOriginal: Row[], ofTwin: Row[]): Row[] => [ofOriginal[0] as Row, ofTwin[1] as Row]

test('owners of identifiers', async () => {
  const rows = asked(original.contact_identifiers, twin.contact_identifiers)
  const digests = rows.map(({ digest }) => digest)
  const found = await selectIdentifierOwners(db, ['demo', TWIN], digests)
  expect(found).toEqual(rows.map(({ project_id, digest, contact_id }) => ({ project_id, digest, contact_id })))
})

test('contacts', async () => {
  const rows = asked(original.contacts, twin.contacts)
  const contactIds = rows.map(({ contact_id }) => contact_id)
  const found = await selectContacts(db, ['demo', TWIN], contactIds)
  expect(found).toEqual(rows.map(({ project_id, contact_id }) => ({ project_id, contact_id })))
})

test('used Idempotency-Keys', async () => {
  const usedKeys = ({ events }: Rows) =>
    events.slice(0, 2).map(({ project_id, event_id }, i) => ({
      project_id,
      idempotency_key: `key ${i}`,
      event_id,
      request_digest: Buffer.alloc(32, i),
      response: `"${project_id}"`,
    }))
  const keys = [usedKeys(original), usedKeys(twin)] as const
  await withPool(database.url, (pool) => pool.query(insertIdempotencyKeys(keys.flat())))
  const rows = asked(...keys)
  const found = await selectIdempotencyKeys(db, ['demo', TWIN], ['key 0', 'key 1'])
  expect(found).toEqual(rows.map(({ event_id: _, ...row }) => row))
})

test('the id of a module that exists', async () => {
  const [{ module_id }] = original.modules as [Rows['modules'][number]]
  expect(await findModuleId(db, 'demo', module_id)).toEqual({ module_id })
  expect(await findModuleId(db, 'demo', 'absent')).toBeUndefined()
})
