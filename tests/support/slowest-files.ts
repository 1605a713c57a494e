import type { Reporter, TestModule } from 'vitest/node'

const ROWS = 10

/** A Vitest reporter: prints which test files took longest, at the end of a run of more than these. */
export default class SlowestFiles implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    if (modules.length <= ROWS) return
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
}

/** Its tests and hooks, and the import of what only it uses. */
function seconds(module: TestModule): number {
  const { collectDuration, duration, setupDuration } = module.diagnostic()
  return (collectDuration + duration + setupDuration) / 1000
}
