import { expect, test } from 'vitest'
import type { TestModule } from 'vitest/node'
import { failureOf } from '../../mutation/failure.ts'

const moduleWith = (errors: object[], ofModule: object[] = []) =>
  ({
    children: {
      allTests: () => (errors.length > 0 ? [{ fullName: 'a > b', result: () => ({ errors }) }] : []),
      allSuites: () => [{ errors: () => [] }],
    },
    errors: () => ofModule,
  }) as unknown as TestModule

test.each([
  [moduleWith([{ message: 'expected 1\nto be 2' }]), 'a > b: expected 1'],
  [moduleWith([{}]), 'a > b: failed'],
  [moduleWith([], [{ message: 'cannot import\nat' }]), 'cannot import'],
  [moduleWith([]), 'failed'],
])('the first failure is one line, whatever was thrown (%#)', (module, line) => {
  expect(failureOf(module)).toBe(line)
})
