import { stripTypeScriptTypes } from 'node:module'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import { functionAt, reportingFunctions } from '../../mutation/functions.ts'

const SOURCE = `class A { constructor(a = 1) { this.a = a } get b() { return this.a } }
const curry = (a: number) => (b: number) => ({ sum: a + b })
function* list() { yield 1 }
function never() { return 'never' }
const text = String(() => 'removed')
new A().b
result = [curry(1)(2).sum, ...list()]
`

test('each function that runs reports itself, and the code does as before', () => {
  const seen = new Set<number>()
  const context = { result: [], onFunction: (_: string, offset: number) => seen.add(offset) }
  runInNewContext(stripTypeScriptTypes(reportingFunctions('source.ts', SOURCE)), context)
  expect(context.result).toEqual([3, 1])
  const covered = (text: string) => seen.has(functionAt(SOURCE, SOURCE.indexOf(text)))
  const texts = [
    'this.a = a',
    'return this.a',
    '=> (b',
    '({ sum',
    'yield',
    "() => 'r",
    "'removed'",
    "'never'",
    'result',
  ]
  // String() reads the function without calling it.
  const neverRun = ["'removed'", "'never'"]
  expect(texts.filter(covered)).toEqual(texts.filter((text) => !neverRun.includes(text)))
})
