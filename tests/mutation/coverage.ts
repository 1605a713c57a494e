import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { startVitest } from 'vitest/node'
import { failureOf } from './failure.ts'
import { functionAt, reportingFunctions } from './functions.ts'
import { endKeptProcesses, keptProcesses } from './kept-processes.ts'
import type { Mutant } from './mutants.ts'
import { vitestOptions } from './sandbox.ts'

/** Which test files run which functions of the sources. */
export interface Coverage {
  /** The functions of each test file, as `file offset`. */
  functions: Map<string, Set<string>>
  /** How long each test file took, in milliseconds. */
  durations_ms: Map<string, number>
  /** How long the slowest test of each test file took. */
  slowestTests_ms: Map<string, number>
}

/**
 * Runs all tests in a sandbox and sees which functions each test file runs.
 *
 * @param files the sources, relative to the sandbox
 * @throws Error if a test fails
 */
export async function measureCoverage(sandbox: string, files: readonly string[]): Promise<Coverage> {
  const originals = new Map(files.map((file) => [file, readFileSync(path.join(sandbox, file), 'utf8')]))
  for (const [file, text] of originals) writeFileSync(path.join(sandbox, file), reportingFunctions(file, text))
  const directory = path.join(sandbox, 'coverage')
  mkdirSync(directory)
  process.env.COVERAGE_DIRECTORY = directory

  const vitest = await startVitest(
    [],
    {
      config: false,
      watch: false,
      root: sandbox,
      reporters: [{ onTestModuleEnd: () => void process.stderr.write('.') }],
    },
    {
      test: {
        ...vitestOptions(['tests/mutation/setup-coverage.ts']),
        pool: keptProcesses,
        testTimeout: 60_000,
        hookTimeout: 120_000,
        expect: { poll: { timeout: 30_000 } },
      },
    },
  )
  const modules = vitest.state.getTestModules()
  const failures = modules.filter((module) => !module.ok()).map((one) => `${one.relativeModuleId}: ${failureOf(one)}`)
  await vitest.close()
  await endKeptProcesses()
  process.exitCode = 0
  if (failures.length > 0) throw new Error(`tests fail without any mutant:\n${failures.join('\n')}`)
  for (const [file, text] of originals) writeFileSync(path.join(sandbox, file), text)

  const functions = readdirSync(directory).map(
    (name) =>
      [decodeURIComponent(name), new Set(readFileSync(path.join(directory, name), 'utf8').split('\n'))] as const,
  )
  return {
    functions: new Map(functions),
    durations_ms: new Map(modules.map((module) => [module.relativeModuleId, module.diagnostic().duration])),
    slowestTests_ms: new Map(
      modules.map((module) => [
        module.relativeModuleId,
        Math.max(...[...module.children.allTests()].map((test) => test.diagnostic()?.duration ?? 0)),
      ]),
    ),
  }
}

/**
 * Tests that take much time and detect little: those of crashes and outages in pure rules and in the text of queries, and in
 * imports all those that import only what they need.
 */
const USELESS: Record<string, RegExp> = {
  domain: /^tests\/faults\//,
  queries: /^tests\/faults\//,
  transfer: /^tests\/(?!transfer\/|unit\/|http\/(import|type-mismatches)|cli\/(contacts|import-export))/,
}

/** The folders of the tests that are most about a folder of the sources. */
const ABOUT: Record<string, RegExp> = {
  domain: /^tests\/unit\//,
  recording: /^tests\/recording\//,
  queries: /^tests\/(queries|recording|http)\//,
  transfer: /^tests\/(transfer\/|http\/(import|type-mismatches)|unit\/)/,
  database: /^tests\/(database|recording|http)\//,
  http: /^tests\/(http|contract)\//,
}

/** How long the fast tests of a mutant may take together, and all of them, in milliseconds of the coverage run. */
const FAST_ms = 10_000
const ALL_ms = 75_000

/**
 * The test files that run the function that a mutant changes: the one with the name of its file, those about its folder,
 * then others; the fastest first. Nearly all test files run what runs while a module is loaded: of all of them, in this
 * order, as many as took {@link ALL_ms} together in the coverage run.
 */
export function testsOf(
  { functions, durations_ms }: Coverage,
  { file, start }: Mutant,
  text: string,
): { fast: string[]; slow: string[] } {
  const changed = `${file} ${functionAt(text, start)}`
  const duration = (test: string) => durations_ms.get(test) ?? 0
  const covering = [...functions].filter(([, covered]) => covered.has(changed)).map(([test]) => test)
  const [, folder = ''] = file.split('/')
  const useful = covering.filter((test) => !USELESS[folder]?.test(test))
  const rank = (test: string) => {
    if (path.basename(test, '.test.ts') === path.basename(file, '.ts')) return 0
    return ABOUT[folder]?.test(test) ? 1 : 2
  }
  const sorted = useful.sort((a, b) => rank(a) - rank(b) || duration(a) - duration(b))
  let total_ms = 0
  const timed = sorted.map((test) => {
    total_ms += duration(test)
    return { test, end_ms: total_ms }
  })
  const between = (from_ms: number, to_ms: number) =>
    timed.filter(({ end_ms }) => end_ms > from_ms && end_ms <= to_ms).map(({ test }) => test)
  return { fast: between(-1, FAST_ms), slow: between(FAST_ms, ALL_ms) }
}
