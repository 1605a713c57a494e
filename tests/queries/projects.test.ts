import { expect, test } from 'vitest'
import { connect } from '../../src/database/open.ts'
import { ping } from '../../src/queries/projects.ts'
import { createTestDatabase } from '../support/database.ts'

test('ping resolves when the database is available, and else rejects', async () => {
  const database = await createTestDatabase()
  const db = connect(database.url)
  await ping(db)
  await db.destroy()
  await database.drop()
  const gone = connect(database.url)
  await expect(ping(gone)).rejects.toThrow('does not exist')
  await gone.destroy()
})
