/**
 * Compares the document with the last released one: nothing may break its clients, `info.version` has to take the step
 * that the changes require, and CHANGELOG.md has to list them. `--write` generates the changelog's section. `--release`
 * closes it as well and makes the document the released one; with `--breaking`, even if it breaks clients.
 */
import { existsSync } from 'node:fs'
import { copyFile, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { parse } from 'yaml'
import { closed, withUnreleased } from './diff/changelog.ts'
import { compareFiles } from './diff/compare.ts'
import type { ApiDocument } from './diff/document.ts'
import type { Change } from './diff/judge.ts'
import { ratingOf, versionsAfter } from './diff/version.ts'

const DOCUMENT = path.join(import.meta.dirname, 'openapi.yaml')
const RELEASED = path.join(import.meta.dirname, 'released.yaml')
const CHANGELOG = path.join(import.meta.dirname, '../CHANGELOG.md')

const HOW_TO_FIX = `Revert each of them, or add the new form beside the old one: an optional parameter or field, an operation. Mark what is
to be removed one day "deprecated: true" and keep it. If a change is harmless after all, list it in
openapi/diff/judge.ts. For an intended break see CONTRIBUTING.md, "To release the document".`

async function versionOf(file: string): Promise<string> {
  return (parse(await readFile(file, 'utf8')) as ApiDocument).info.version
}

const counted = (count: number, one: string, many: string) => `${count} ${count === 1 ? one : many}`

function breaks(changes: readonly Change[], last: string): string | undefined {
  const breaking = changes.filter(({ rating }) => rating === 'breaking')
  if (breaking.length === 0) return undefined
  const list = breaking.map(({ pointer, place, what }) => `  ${pointer}\n    ${place}: ${what}`)
  const title = `${counted(breaking.length, 'change breaks', 'changes break')} clients of ${last}:`
  return [title, ...list, HOW_TO_FIX].join('\n')
}

function wrongStep(changes: readonly Change[], last: string, present: string): string | undefined {
  const rating = ratingOf(changes)
  const versions = versionsAfter(last, rating)
  if (versions.includes(present)) return undefined
  const cause = changes.find((change) => change.rating === rating)
  const why = cause ? `for example ${cause.place}: ${cause.what}` : 'nothing differs'
  return `#/info/version is ${present} and ${last} is released. Set it to ${versions.join(' or ')} (${why}).`
}

async function release(changelog: string, version: string): Promise<string> {
  await writeFile(CHANGELOG, closed(changelog, version, new Date().toISOString().slice(0, 10)))
  await copyFile(DOCUMENT, RELEASED)
  return `${version} is released: commit openapi/released.yaml and CHANGELOG.md.`
}

interface Mode {
  write?: boolean
  release?: boolean
  breaking?: boolean
}

/** Runs in the given mode and returns a summary. @throws Error that says what to fix */
async function diff(mode: Mode): Promise<string> {
  const [present, changelog] = await Promise.all([versionOf(DOCUMENT), readFile(CHANGELOG, 'utf8')])
  if (!existsSync(RELEASED)) {
    if (!mode.release)
      throw new Error('openapi/released.yaml is missing. If no version was ever released: make contract-release')
    return release(changelog, present)
  }

  const last = await versionOf(RELEASED)
  const changes = await compareFiles(RELEASED, DOCUMENT)
  const error = (mode.release && mode.breaking ? undefined : breaks(changes, last)) ?? wrongStep(changes, last, present)
  if (error) throw new Error(error)

  const updated = withUnreleased(changelog, present, changes)
  if (mode.release && changes.length > 0) return release(updated, present)
  if (mode.write) await writeFile(CHANGELOG, updated)
  else if (updated !== changelog)
    throw new Error('CHANGELOG.md does not list the changes of the document. Run: make changelog')

  if (changes.length === 0) return `The document is ${last} as released.`
  const additions = changes.filter(({ rating }) => rating === 'minor').length
  const wording = changes.filter(({ rating }) => rating === 'patch').length
  return `${present} follows ${last}: ${counted(additions, 'addition', 'additions')}, ${wording} of wording, no break.`
}

const options = { write: { type: 'boolean' }, release: { type: 'boolean' }, breaking: { type: 'boolean' } } as const
try {
  process.stdout.write(`${await diff(parseArgs({ options }).values)}\n`)
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : error}\n`)
  process.exitCode = 1
}
