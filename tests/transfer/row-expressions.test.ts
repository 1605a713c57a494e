import { expect, test } from 'vitest'
import { RowExpressions } from '../../src/transfer/row-expressions.ts'
import { STAGED_KINDS, type StagedRows, stagedTable } from '../../src/transfer/stage.ts'

// How the text of a statement is made; tests/transfer/small.test.ts compares what the statements do.

const rowExpressions = () =>
  new RowExpressions({
    ...(Object.fromEntries(STAGED_KINDS.map((kind) => [kind, []])) as unknown as StagedRows),
    project: [{ line: 1, row: { project_id: 'p', name: null } }] as unknown as StagedRows['project'],
  })
const namesIn = (text: string) => [...text.matchAll(/(\w+) AS MATERIALIZED/g)].map(([, name]) => name)

test('SQL that reads no rows of the import stays as it is', () => {
  expect(rowExpressions().statement('  SELECT $1', [1])).toEqual({ text: '  SELECT $1', values: [1] })
})

test('a statement has the expressions that it reads, with their rows as parameters after its own', () => {
  const [project, group] = [stagedTable('project'), stagedTable('group')]
  const { text, values } = rowExpressions().statement(`SELECT $1 FROM ${group}, ${project}`, ['own'])
  expect(namesIn(text)).toEqual([project, group])
  expect(text).toMatch(/json_to_recordset\(\$2\).*json_to_recordset\(\$3\).* SELECT \$1 FROM/)
  expect(values).toEqual(['own', '[{"line":1,"project_id":"p","name":null}]', '[]'])
})

test('expressions come before those of the statement itself, whose queries keep theirs', () => {
  const project = stagedTable('project')
  const own = `WITH own AS (SELECT FROM ${project}) SELECT FROM own WHERE EXISTS (WITH one AS (SELECT) SELECT FROM one)`
  const { text } = rowExpressions().statement(`\n${own}`, [])
  expect(text).toMatch(/^WITH \w+ AS MATERIALIZED .*\) , own AS /)
  expect(text).toContain('EXISTS (WITH one AS (SELECT) SELECT FROM one)')
  const inner = `SELECT FROM ${project} WHERE EXISTS (WITH one AS (SELECT) SELECT FROM one)`
  expect(rowExpressions().statement(inner, []).text).toMatch(
    /^WITH \w+ AS MATERIALIZED .* SELECT FROM .*EXISTS \(WITH one/,
  )
})
