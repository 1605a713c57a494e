import type { Reporter, TestModule } from 'vitest/node'

const ROWS = 10

/**
 * A Vitest reporter: prints at the end which files took longest, if there are more than these, and how long the files of each
 * folder took; then which tests passed only when they were repeated, and which failed.
 */
export default class Summary implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    if (modules.length > ROWS) printTimes(modules)
    for (const module of modules) printRepeated(module)
    // Last, where a reader of a long log looks first.
    for (const module of modules) printFailures(module)
  }
}

interface Times {
  name: string
  tests: number
  time_s: number
}

function printTimes(modules: readonly TestModule[]): void {
  const files = modules.map((module) => ({
    name: module.relativeModuleId,
    tests: [...module.children.allTests()].length,
    time_s: seconds(module),
  }))
  printTable('slowest files', files, ROWS)
  const folders = Map.groupBy(files, ({ name }) => name.split('/').slice(0, -1).join('/'))
  printTable(
    'files of each folder',
    [...folders].map(([name, within]) => ({
      name,
      tests: sum(within.map(({ tests }) => tests)),
      time_s: sum(within.map(({ time_s }) => time_s)),
    })),
  )
}

const sum = (numbers: number[]) => numbers.reduce((total, number) => total + number, 0)

/** Prints the slowest first. */
function printTable(heading: string, unsorted: readonly Times[], count = unsorted.length): void {
  const rows = unsorted.toSorted((a, b) => b.time_s - a.time_s).slice(0, count)
  const width = Math.max(heading.length, ...rows.map(({ name }) => name.length))
  console.log(`\n ${heading.padEnd(width)}  tests  seconds`)
  for (const { name, tests, time_s } of rows) {
    console.log(` ${name.padEnd(width)}  ${String(tests).padStart(5)}  ${time_s.toFixed(1).padStart(7)}`)
  }
}

/** Its tests and hooks, and the import of what only it uses. */
function seconds(module: TestModule): number {
  const { collectDuration, duration, setupDuration } = module.diagnostic()
  return (collectDuration + duration + setupDuration) / 1000
}

function printRepeated(module: TestModule): void {
  for (const test of module.children.allTests('passed')) {
    if (test.diagnostic()?.flaky) console.log(` PASSED WHEN REPEATED ${module.relativeModuleId} > ${test.fullName}`)
  }
}

function printFailures(module: TestModule): void {
  const print = (path: string[], errors: readonly { message: string }[]) => {
    const [message = ''] = errors.map((error) => error.message.split('\n', 1)[0])
    console.log(` FAILED ${[module.relativeModuleId, ...path].join(' > ')}: ${message}`)
  }
  if (module.errors().length > 0) print([], module.errors())
  for (const suite of module.children.allSuites())
    if (suite.errors().length > 0) print([suite.fullName], suite.errors())
  for (const test of module.children.allTests('failed')) print([test.fullName], test.result().errors ?? [])
}
