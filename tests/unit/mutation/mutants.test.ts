import { expect, test } from 'vitest'
import { mutantsOf, mutated } from '../../mutation/mutants.ts'

/** What becomes of a line of source. */
function mutations(line: string): string[] {
  return mutantsOf('source.ts', line).map((mutant) => mutated(line, mutant))
}

test.each([
  ['a comparison', 'f(a <= b)', 'f(a < b)'],
  ['an equality', 'f(a === b)', 'f(a !== b)'],
  ['a conjunction', 'f(a && b)', 'f(a || b)'],
  ['a fallback', 'f(a ?? b)', 'f(a)'],
  ['a condition', 'if (a) b()', 'if (!(a)) b()'],
  ['a negation', 'f(!a)', 'f(a)'],
  ['a number', 'f(7)', 'f(8)'],
  ['a boolean', 'f(true)', 'f(false)'],
  ['an order', "f('asc')", "f('desc')"],
  ['a statement', 'f()', ';'],
  ['a method call in a chain', "q.where('a', '=', b).limit(1)", 'q.limit(1)'],
  ['an await', 'x = await f()', 'x = f()'],
  ['a property', 'f({ a, b })', 'f({ b })'],
  ['an element', 'f([a, b])', 'f([a, ])'],
  ['arguments', 'f(a, b)', 'f(b, a)'],
  ['a method with a counterpart', 'f(Math.floor(a))', 'f(Math.ceil(a))'],
  ['an anchor', 'f(/^a/)', 'f(/a/)'],
  ['a quantifier', 'f(/a{1,128}/)', 'f(/a{1,129}/)'],
  ['a condition of SQL', 'f(`SELECT FROM a WHERE a.x = 1 AND a.p = b.p`)', 'f(`SELECT FROM a WHERE a.x = 1 `)'],
  ['an order of SQL', 'f(`SELECT FROM a ORDER BY x DESC`)', 'f(`SELECT FROM a ORDER BY x ASC`)'],
])('%s is mutated: %s', (_, line, wanted) => {
  expect(mutations(line)).toContain(wanted)
})

test.each([
  ['types', 'type A = { a: 1 } & B'],
  ['imports', "import { a } from 'b'"],
  ['text', "const a = 'hello'"],
])('%s are not mutated', (_, line) => {
  expect(mutations(line)).toEqual([])
})

test('the name of a mutant says where and what it changes, and is unique', () => {
  const source = 'class A {\n  b() {\n    return [f(1), f(1)]\n  }\n}\n'
  const names = mutantsOf('source.ts', source).map(({ name }) => name)
  expect(names).toContain('A.b: [f(1), f(1)] → [f(2), f(1)]')
  expect(new Set(names).size).toBe(names.length)
})
