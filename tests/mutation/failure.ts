import type { TestModule } from 'vitest/node'

/** The first failure of a test file, in a line. */
export function failureOf(module: TestModule): string {
  const [test] = module.children.allTests('failed')
  if (test) return `${test.fullName}: ${test.result().errors?.[0]?.message.split('\n')[0]}`
  const [error] = [module, ...module.children.allSuites()].flatMap((suite) => suite.errors())
  return error?.message.split('\n')[0] ?? 'failed'
}
