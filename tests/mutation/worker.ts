import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { createVitest, type TestSpecification } from 'vitest/node'
import { failureOf } from './failure.ts'
import { endKeptProcesses, keptProcesses } from './kept-processes.ts'
import { vitestOptions } from './sandbox.ts'

/** A change of a source file, and the test files to run against it. */
export interface Task {
  file: string
  text: string
  /** Run one after another until one fails. */
  tests: readonly TestFile[]
}

export interface TestFile {
  name: string
  /** Far more than any of its tests takes; a mutant may make one wait for ever. */
  timeout_ms: number
}

/** The test file that failed, and its failure; undefined when all passed. */
export interface Verdict {
  killer?: string
  failure?: string
  /** Of the runner, not of a test. */
  error?: string
}

// A process of its own for each sandbox, its current directory, since a mutant may make it hang.
const sandbox = process.cwd()
const vitest = await createVitest(
  'test',
  { config: false, watch: false, root: sandbox, reporters: [{}] },
  {
    test: {
      ...vitestOptions(),
      teardownTimeout: 2_000,
      pool: keptProcesses,
      // See keptProcesses.
      fsModuleCache: false,
      maxWorkers: 1,
      bail: 1,
    },
  },
)
const specifications = new Map(
  (await vitest.globTestSpecifications()).map((one) => [path.relative(sandbox, one.moduleId), one]),
)

process.on('message', async (task: Task) => {
  const file = path.join(sandbox, task.file)
  const original = readFileSync(file, 'utf8')
  writeFileSync(file, task.text)
  vitest.invalidateFile(file)
  vitest.provide('mutatedFile', file)
  const verdict = await runUntilFailure(task.tests).catch((error): Verdict => ({ error: `${error.stack}` }))
  writeFileSync(file, original)
  vitest.invalidateFile(file)
  process.send?.(verdict)
})
process.on('disconnect', () => {
  void vitest
    .close()
    .finally(endKeptProcesses)
    .finally(() => process.exit())
})
process.send?.('ready')

/** The first test file runs alone, since it most often fails. */
async function runUntilFailure(tests: readonly TestFile[]): Promise<Verdict> {
  const groups = [tests.slice(0, 1), tests.slice(1)]
  for (const group of groups.filter(({ length }) => length > 0)) {
    setTimeouts(Math.max(...group.map(({ timeout_ms }) => timeout_ms)))
    // It counts the failures of earlier runs, too.
    vitest.state.filesMap.clear()
    const { testModules, unhandledErrors } = await vitest.runTestSpecifications(
      group.map(({ name }) => specificationOf(name)),
    )
    const failed = testModules.find((module) => module.state() === 'failed')
    if (failed) return { killer: failed.relativeModuleId, failure: failureOf(failed) }
    const [unhandled] = unhandledErrors as Error[]
    if (unhandled) return { killer: group[0]?.name, failure: unhandled.message }
  }
  return {}
}

/** Of the runs that follow. */
function setTimeouts(timeout_ms: number): void {
  const timeouts = { testTimeout: timeout_ms, hookTimeout: timeout_ms, expect: { poll: { timeout: timeout_ms / 2 } } }
  for (const { config } of vitest.projects) Object.assign(config, timeouts)
}

function specificationOf(test: string): TestSpecification {
  const specification = specifications.get(test)
  if (!specification) throw new Error(`${test} is no test file`)
  return specification
}
