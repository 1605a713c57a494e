import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { MAX_FILES } from '../../mutation/kept-processes.ts'
import type { Task, Verdict } from '../../mutation/worker.ts'

// The process that runs tests against mutants, in a sandbox with two sources and a test of each.

const ROOT = path.join(import.meta.dirname, '../../..')
const FILES = {
  'tests/support/global-setup.ts': 'export default () => {}',
  'tests/support/restore-globals.ts': '',
  'src/domain/one.ts': 'export const one = () => 1',
  'src/domain/two.ts': "import { one } from './one.ts'\nexport const two = one() + 1",
  'tests/unit/one.test.ts':
    "import { expect, test } from 'vitest'\nimport { one } from '../../src/domain/one.ts'\ntest('one', () => expect(one()).toBe(1))",
  'tests/unit/two.test.ts':
    "import { expect, test } from 'vitest'\nimport { two } from '../../src/domain/two.ts'\ntest('two', () => expect(two).toBe(2))",
  // Fails once, as a test does that is late.
  'tests/unit/late.test.ts':
    "import { existsSync, writeFileSync } from 'node:fs'\nimport { expect, test } from 'vitest'\ntest('late', () => {\n  const ran = existsSync('ran')\n  writeFileSync('ran', '')\n  expect(ran).toBe(true)\n})",
}

let sandbox: string
let worker: ChildProcess
beforeAll(async () => {
  sandbox = realpathSync(mkdtempSync(path.join(tmpdir(), 'flowtrail-worker-')))
  for (const [name, text] of Object.entries(FILES)) {
    mkdirSync(path.dirname(path.join(sandbox, name)), { recursive: true })
    writeFileSync(path.join(sandbox, name), text)
  }
  symlinkSync(path.join(ROOT, 'node_modules'), path.join(sandbox, 'node_modules'))
  worker = fork(path.join(ROOT, 'tests/mutation/worker.ts'), {
    cwd: sandbox,
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  })
  await once(worker, 'message')
})
afterAll(async () => {
  worker.disconnect()
  await once(worker, 'exit')
  rmSync(sandbox, { recursive: true })
})

async function killerOf(file: keyof typeof FILES, text: string, ...tests: string[]): Promise<string | undefined> {
  const task: Task = { file, text, tests: tests.map((name) => ({ name, timeout_ms: 10_000 })) }
  const verdict = once(worker, 'message')
  worker.send(task)
  const [{ killer, error }] = (await verdict) as [Verdict]
  expect(error).toBeUndefined()
  return killer
}

test('each mutant is tested as it is, and the next one without it', async () => {
  const [ONE, TWO] = ['tests/unit/one.test.ts', 'tests/unit/two.test.ts']
  const [one, two] = [FILES['src/domain/one.ts'], FILES['src/domain/two.ts']]
  // What a process loads first is not what a later mutant is tested with, also when it takes the place of another one.
  for (let files = 0; files <= MAX_FILES; files += 2) {
    expect(await killerOf('src/domain/two.ts', two, ONE, TWO)).toBeUndefined()
  }
  expect(await killerOf('src/domain/one.ts', one.replace('1', '2'), ONE, TWO)).toBe(ONE)
  expect(await killerOf('src/domain/one.ts', one.replace('1', '3'), TWO, ONE)).toBe(TWO)
  expect(await killerOf('src/domain/two.ts', two, ONE, TWO)).toBeUndefined()
  expect(await killerOf('src/domain/two.ts', two.replace('+ 1', '- 1'), ONE, TWO)).toBe(TWO)
  expect(await killerOf('src/domain/one.ts', one.replace('1', '1.0'), TWO, ONE)).toBeUndefined()
})

test('a test that fails once detects no mutant, and those after it are run', async () => {
  const [LATE, ONE, TWO] = ['tests/unit/late.test.ts', 'tests/unit/one.test.ts', 'tests/unit/two.test.ts']
  const two = FILES['src/domain/two.ts']
  const failOnce = () => rmSync(path.join(sandbox, 'ran'), { force: true })
  for (const tests of [
    [LATE, ONE, TWO],
    [ONE, LATE, TWO],
  ]) {
    failOnce()
    expect(await killerOf('src/domain/two.ts', two, ...tests)).toBeUndefined()
    failOnce()
    expect(await killerOf('src/domain/two.ts', two.replace('+ 1', '- 1'), ...tests)).toBe(TWO)
  }
})
