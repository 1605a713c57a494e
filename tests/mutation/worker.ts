import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { createVitest, type TestModule } from 'vitest/node'
import { vitestOptions } from './sandbox.ts'

/** A change of a source file, and the test files to run against it. */
export interface Task {
  file: string
  text: string
  /** Run one after another until one fails. */
  tests: string[]
}

/** The test file that failed, and its failure; undefined when all passed. */
export interface Verdict {
  killer?: string
  failure?: string
}

// A process of its own for each sandbox, its current directory, since a mutant may make it hang.
const sandbox = process.cwd()
const vitest = await createVitest(
  'test',
  { config: false, watch: false, root: sandbox, reporters: [{}] },
  { test: { ...vitestOptions(), globalSetup: ['tests/support/global-setup.ts'], maxWorkers: 1, bail: 1 } },
)
const specifications = new Map(
  (await vitest.globTestSpecifications()).map((one) => [path.relative(sandbox, one.moduleId), one]),
)

process.on('message', async (task: Task) => {
  const file = path.join(sandbox, task.file)
  const original = readFileSync(file, 'utf8')
  writeFileSync(file, task.text)
  vitest.invalidateFile(file)
  const verdict = await runUntilFailure(task.tests)
  writeFileSync(file, original)
  vitest.invalidateFile(file)
  process.send?.(verdict)
})
process.on('disconnect', () => void vitest.close().finally(() => process.exit()))
process.send?.('ready')

async function runUntilFailure(tests: readonly string[]): Promise<Verdict> {
  for (const test of tests) {
    const specification = specifications.get(test)
    if (!specification) throw new Error(`${test} is no test file`)
    // It counts the failures of earlier runs, too.
    vitest.state.filesMap.clear()
    const { testModules, unhandledErrors } = await vitest.runTestSpecifications([specification])
    const [unhandled] = unhandledErrors as Error[]
    const failure = testModules.map(failureOf).find((found) => found !== undefined) ?? unhandled?.message
    if (failure !== undefined) return { killer: test, failure }
  }
  return {}
}

function failureOf(module: TestModule): string | undefined {
  if (module.ok()) return undefined
  const [test] = module.children.allTests('failed')
  if (test) return `${test.fullName}: ${test.result().errors?.[0]?.message.split('\n')[0]}`
  const [error] = [module, ...module.children.allSuites()].flatMap((suite) => suite.errors())
  return error?.message.split('\n')[0] ?? 'failed'
}
