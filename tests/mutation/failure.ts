import type { TestModule } from 'vitest/node'

/** The first failure of a test file, in a line. */
export function failureOf(module: TestModule): string {
  const [test] = module.children.allTests('failed')
  if (test) return `${test.fullName}: ${firstLine(test.result().errors?.[0])}`
  const [error] = [module, ...module.children.allSuites()].flatMap((suite) => suite.errors())
  return firstLine(error)
}

/** What was thrown may be no error. */
const firstLine = (error: { message?: string } | undefined) => error?.message?.split('\n')[0] ?? 'failed'
