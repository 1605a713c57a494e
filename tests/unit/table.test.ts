import { expect, test } from 'vitest'
import { table } from '../../src/cli/output.ts'

test('a table may have any number of rows', () => {
  const rows = Array.from({ length: 300_000 }, (_, i) => ({ project: `p${i}` }))
  const lines = table(rows, ['project']).split('\n')
  expect(lines).toHaveLength(rows.length + 2)
  expect(lines.slice(0, 2)).toEqual(['project', 'p0'])
})
