/**
 * Compares the document with the last released one: nothing may break its clients, `info.version` has to take the step
 * that the changes require, and CHANGELOG.md has to list them. `--write` generates the changelog's section. `--release`
 * closes it as well and makes the document the released one; with `--breaking`, even if it breaks clients.
 */
import path from 'node:path'
import { diff } from './diff/command.ts'

try {
  process.stdout.write(`${await diff(path.join(import.meta.dirname, '..'), process.argv.slice(2))}\n`)
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : error}\n`)
  process.exitCode = 1
}
