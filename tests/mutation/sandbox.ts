import { execFileSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, symlinkSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import path from 'node:path'
import type { TestSequencer, TestSpecification } from 'vitest/node'

export const ROOT = path.join(import.meta.dirname, '../..')

/** The source folders whose code is mutated. */
export const FOLDERS = ['domain', 'recording', 'queries', 'transfer', 'database', 'http'] as const

/** Tests about documents, tools and processes, which check none of these folders or only repeat what others check. */
const EXCLUDED = [
  'tests/{browser,citus,connectors,deploy,unit/bench,unit/mutation}/**',
  'tests/cli/{readme,serve,tuning}.test.ts',
  'tests/unit/{imports,packages,references}.test.ts',
  'tests/faults/trials/**',
  'tests/contract/{diff,release,checks-bite}.test.ts',
  'tests/contract/{proxy,sdks}/**',
  'tests/database/{catalog,upgrade}.test.ts',
]

class AsGiven implements TestSequencer {
  shard = (files: TestSpecification[]) => files
  sort = (files: TestSpecification[]) => files
}

/** Options of Vitest for the runs in a sandbox. */
export const vitestOptions = (setupFiles: string[] = []) => ({
  include: ['tests/**/*.test.ts'],
  exclude: ['**/node_modules/**', ...EXCLUDED],
  env: { PROPERTY_SHRINK: 'no' },
  // In the order in which they are named, the most promising first; Vitest would begin with the slowest.
  sequence: { sequencer: AsGiven },
  globalSetup: ['tests/support/global-setup.ts'],
  setupFiles: [...setupFiles, 'tests/support/restore-globals.ts'],
  unstubEnvs: true,
  maxWorkers: availableParallelism() + 1,
  // A failing assertion may print a whole response, about which light-my-request warns.
  execArgv: ['--disable-warning=FST_LIGHTMYREQUEST_DEP01'],
})

/** Copies the checkout, whose files may then be changed. Processes that tests start run the copy's code, too. */
export function createSandbox(directory: string): void {
  const files = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: ROOT,
    encoding: 'utf8',
  })
  for (const file of files.split('\0').filter((name) => name !== '' && existsSync(path.join(ROOT, name)))) {
    const target = path.join(directory, file)
    mkdirSync(path.dirname(target), { recursive: true })
    cpSync(path.join(ROOT, file), target, { force: true })
  }
  symlinkSync(path.join(ROOT, 'node_modules'), path.join(directory, 'node_modules'))
}
