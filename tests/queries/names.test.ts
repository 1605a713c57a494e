import { expect, test } from 'vitest'
import type { Database } from '../../src/database/pool.ts'
import type { NamedQuery } from '../../src/database/prepared.ts'
import { findEntry } from '../../src/queries/entries.ts'
import { findModule, findModuleVersion } from '../../src/queries/modules.ts'
import { UNLIMITED as lease } from '../support/lease.ts'
import { QUERIES } from './queries.ts'

test.each(QUERIES)('%s is called so, and is a %s', async (name, kind, run) => {
  const sent: NamedQuery[] = []
  const executeQuery = async (one: NamedQuery) => {
    sent.push(one)
    return { rows: [] }
  }
  await run({ executeQuery } as unknown as Database)
  expect(sent).toMatchObject([{ name: expect.stringMatching(new RegExp(`^${name}_\\d+$`)), kind }])
})

test.each([
  ['findEntry', findEntry],
  ['findModule', findModule],
  ['findModuleVersion', (db: Database, ...key: [typeof lease, string, string]) => findModuleVersion(db, ...key, 1)],
])('%s reads a large value by a query of its kind', async (name, find) => {
  const sent: NamedQuery[] = []
  for (const value_bytes of [100_000, 1_000_000]) {
    const executeQuery = async (one: NamedQuery) => {
      sent.push(one)
      return { rows: [{ ordinal: 1, value_bytes }] }
    }
    await find({ executeQuery } as unknown as Database, lease, 'p', 'id')
  }
  expect(sent.map(({ kind }) => kind)).toEqual(['look-up', 'list', 'look-up', 'large'])
  for (const one of sent) expect(one.name).toMatch(new RegExp(`^${name}_\\d+$`))
})
