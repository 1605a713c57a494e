import type pg from 'pg'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { createPool } from '../../src/database/pool.ts'
import { LazyTransaction } from '../../src/transfer/client.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'

describe('a transaction that begins when it is needed', () => {
  let database: TestDatabase
  let pool: pg.Pool
  beforeEach(async () => {
    database = await createTestDatabase('template0')
    pool = createPool(database.url, { max: 1 })
    await pool.query('CREATE TABLE t (n integer)')
  })
  afterEach(async () => {
    await pool.end()
    await database.drop()
  })

  const begin = async (client: pg.PoolClient) => void (await client.query('BEGIN'))
  const transaction = (beginning = begin) => new LazyTransaction(() => pool.connect(), beginning)
  const stored = async () => (await pool.query('SELECT n FROM t ORDER BY n')).rows.map(({ n }) => n)
  test('keeps its connection after a COMMIT, and begins anew', async () => {
    const one = transaction()
    for (const n of [1, 2]) {
      const client = await one.client()
      expect(await one.client()).toBe(client)
      await client.query(`INSERT INTO t VALUES (${n})`)
      await one.commit()
    }
    await (await one.client()).query('INSERT INTO t VALUES (3)')
    await one.undo()
    expect(pool.totalCount).toBe(1)
    expect(await stored()).toEqual([1, 2])
  })

  test('ends without a connection when it was not needed', async () => {
    const one = transaction()
    await one.commit()
    await one.undo(['INSERT INTO t VALUES (0)'])
    await one.close(new Error('unused'))
    expect(pool.totalCount).toBe(1)
    expect(await stored()).toEqual([])
  })

  test('closes its connection at the end if it is to', async () => {
    const one = transaction()
    await (await one.client()).query('INSERT INTO t VALUES (1)')
    one.closeAtEnd()
    await one.commit()
    expect(pool.totalCount).toBe(0)
    expect(await stored()).toEqual([1])
  })

  test('is undone by its ROLLBACK, then cleaned up by statements of their own', async () => {
    const one = transaction()
    await (await one.client()).query('INSERT INTO t VALUES (1)')
    await one.undo(['INSERT INTO t VALUES (7)', 'UPDATE t SET n = n + 1'])
    expect(pool.totalCount).toBe(1)
    expect(await stored()).toEqual([8])
  })

  test('closes a connection on which it cannot begin, end or clean up', async () => {
    const failing = transaction(async (client) => void (await client.query('BEGIN NONSENSE')))
    await expect(failing.client()).rejects.toThrow('syntax error')
    expect(pool.totalCount).toBe(0)
    await failing.close(new Error('after the first'))

    const unclean = transaction()
    await unclean.client()
    await expect(unclean.undo(['NONSENSE'])).rejects.toThrow('syntax error')
    expect(pool.totalCount).toBe(0)
    expect(await stored()).toEqual([])
  })

  test('is undone by closing its connection, whatever state that is in', async () => {
    const one = transaction()
    await (await one.client()).query('INSERT INTO t VALUES (1)')
    await one.close(new Error('given up'))
    expect(pool.totalCount).toBe(0)
    expect(await stored()).toEqual([])
  })
})
