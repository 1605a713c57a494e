import type { Reporter, TestModule } from 'vitest/node'

const ROWS = 10

/** A Vitest reporter: prints at the end which files took longest, if there are more than these, and which tests failed. */
export default class Summary implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    if (modules.length > ROWS) printSlowest(modules)
    // Last, where a reader of a long log looks first.
    for (const module of modules) printFailures(module)
  }
}

function printSlowest(modules: readonly TestModule[]): void {
  const rows = modules
    .map((module) => ({
      file: module.relativeModuleId,
      tests: [...module.children.allTests()].length,
      time_s: seconds(module),
    }))
    .toSorted((a, b) => b.time_s - a.time_s)
    .slice(0, ROWS)
  const width = Math.max(...rows.map(({ file }) => file.length))
  console.log(`\n ${'slowest files'.padEnd(width)}  tests  seconds`)
  for (const { file, tests, time_s } of rows) {
    console.log(` ${file.padEnd(width)}  ${String(tests).padStart(5)}  ${time_s.toFixed(1).padStart(7)}`)
  }
}

/** Its tests and hooks, and the import of what only it uses. */
function seconds(module: TestModule): number {
  const { collectDuration, duration, setupDuration } = module.diagnostic()
  return (collectDuration + duration + setupDuration) / 1000
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
