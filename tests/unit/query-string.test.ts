import { expect, test } from 'vitest'
import { parseQueryString } from '../../src/http/query-string.ts'

test.each<[string, Record<string, string[]>]>([
  ['', {}],
  ['a=1', { a: ['1'] }],
  ['a=1=2==', { a: ['1=2=='] }],
  ['a=2&b=3&a=1', { a: ['2', '1'], b: ['3'] }],
])('the query "%s"', (text, query) => {
  expect({ ...parseQueryString(text) }).toEqual(query)
})
