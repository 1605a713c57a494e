import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ROOT, temporaryDirectory } from '../cli/run.ts'

// The unit of deploy/systemd, judged by systemd's own tools. There is no systemd to run it.

const run = promisify(execFile)
const UNIT = path.join(ROOT, 'deploy/systemd/flowtrail.service')
const PROGRAM = '/opt/flowtrail/node_modules/.bin/flowtrail'
/** In tenths: systemd calls less than 2 OK, and a unit without hardening has more than 9. */
const MAX_EXPOSURE = '15'

let folder: Awaited<ReturnType<typeof temporaryDirectory>>
let unit: string
/** For several servers. */
let template: string
beforeAll(async () => {
  folder = await temporaryDirectory()
  unit = `${folder.path}/flowtrail.service`
  template = `${folder.path}/flowtrail@.service`
  const text = await readFile(UNIT, 'utf8')
  expect(text).toContain(`ExecStart=${PROGRAM} serve`)
  for (const file of [unit, template]) await writeFile(file, text.replace(PROGRAM, path.join(ROOT, 'bin/flowtrail')))
})
afterAll(() => folder[Symbol.asyncDispose]())

test('the unit is valid, also as a template', async () => {
  expect(await run('systemd-analyze', ['verify', unit, template])).toEqual({ stdout: '', stderr: '' })
})

test('the unit can do little harm', async () => {
  const { stdout } = await run('systemd-analyze', ['security', '--offline=true', `--threshold=${MAX_EXPOSURE}`, unit])
  expect(stdout).toContain('OK')
})
