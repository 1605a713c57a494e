import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { expect, test } from 'vitest'
import { BackupReader, FORMAT } from '../../src/backup/format.ts'

const ROWS = ['', 'a', '\\\\.', '\\\\.\\\\n', 'a longer row', '\\\\']
const TABLES: Record<string, string[]> = { none: [], one: ['\\\\.'], some: [...ROWS, ...ROWS], last: ['z', ''] }

function backupOf(tables: Record<string, string[]>): Buffer {
  const parts = [JSON.stringify({ flowtrail_backup: FORMAT, migrations: [] })]
  for (const [table, rows] of Object.entries(tables)) {
    parts.push(JSON.stringify({ table, columns: ['text'] }), ...rows, '\\.')
  }
  const text = `${parts.join('\n')}\n`
  return Buffer.from(`${text}${JSON.stringify({ sha256: createHash('sha256').update(text).digest('hex') })}\n`)
}

test.each([1, 2, 3, 5, 64, 10_000])(
  'rows are read as they were written, in chunks of %i bytes and parts of any size',
  async (size) => {
    const bytes = backupOf(TABLES)
    const chunks = Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) =>
      bytes.subarray(i * size, (i + 1) * size),
    )
    for (const limit of [1, 2, 8, 20, Number.POSITIVE_INFINITY]) {
      const reader = new BackupReader(Readable.from(chunks))
      await reader.header()
      const read: typeof TABLES = {}
      let parts = 0
      for (let next = await reader.next(); 'table' in next; next = await reader.next()) {
        const texts: string[] = []
        while (reader.hasMoreRows) texts.push((await buffer(reader.rows(limit))).toString())
        for (const text of texts) expect(text).toMatch(/(^|\n)$/)
        read[next.table] = texts.join('').split('\n').slice(0, -1)
        parts += texts.length
      }
      expect(read).toEqual(TABLES)
      if (size < 64 && limit === 1) expect(parts).toBeGreaterThan(Object.keys(TABLES).length)
      if (limit === Number.POSITIVE_INFINITY) expect(parts).toBe(Object.keys(TABLES).length)
      expect(reader.bytes).toBe(bytes.length)
    }
  },
)
