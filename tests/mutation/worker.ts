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

/**
 * The first test file runs alone, since it most often fails. A failure counts if it repeats: on a busy machine, a test is late or
 * disturbed now and then without any mutant.
 */
async function runUntilFailure(tests: readonly TestFile[]): Promise<Verdict> {
  let group = tests.slice(0, 1)
  let rest = tests.slice(1)
  while (group.length > 0) {
    const { failure, killer } = await run(group)
    const suspects = group.filter(({ name }) => killer === undefined || name === killer)
    const again = failure === undefined ? {} : await run(suspects)
    if (again.failure !== undefined) return { killer: suspects[0]?.name, ...again }
    // Once one has failed, others do not run.
    group = [...(failure === undefined ? [] : group.filter((test) => !suspects.includes(test))), ...rest]
    rest = []
  }
  return {}
}

/** @returns the failure, if there is one, and the test file that it is of if that is known */
async function run(group: readonly TestFile[]): Promise<Verdict> {
  setTimeouts(Math.max(...group.map(({ timeout_ms }) => timeout_ms)))
  // It counts the failures of earlier runs, too.
  vitest.state.filesMap.clear()
  const { testModules, unhandledErrors } = await vitest.runTestSpecifications(
    group.map(({ name }) => specificationOf(name)),
  )
  const failed = testModules.find((module) => module.state() === 'failed')
  if (failed) return { killer: failed.relativeModuleId, failure: failureOf(failed) }
  const [unhandled] = unhandledErrors as Error[]
  return unhandled ? { failure: unhandled.message } : {}
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
