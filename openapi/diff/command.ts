import { existsSync } from 'node:fs'
import { copyFile, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { parse } from 'yaml'
import { closed, withUnreleased } from './changelog.ts'
import { compare, type Redocly, reportedChanges } from './compare.ts'
import type { ApiDocument } from './document.ts'
import type { Change } from './judge.ts'
import { ratingOf, versionsAfter } from './version.ts'

const HOW_TO_FIX = `Revert each of them, or add the new form beside the old one: an optional parameter or field, an operation. Mark what is
to be removed one day "deprecated: true" and keep it. If a change is harmless after all, list it in
openapi/diff/judge.ts. For an intended break see CONTRIBUTING.md, "To release the document".`

const documentOf = async (file: string) => parse(await readFile(file, 'utf8')) as ApiDocument

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

const options = { write: { type: 'boolean' }, release: { type: 'boolean' }, breaking: { type: 'boolean' } } as const

/**
 * Runs the command in a directory laid out as the checkout. Returns a summary.
 * @throws Error that says what to fix
 */
export async function diff(root: string, args: string[], redocly?: Redocly): Promise<string> {
  const mode = parseArgs({ args, options }).values
  const [document, releasedDocument] = ['openapi/openapi.yaml', 'openapi/released.yaml'].map((file) =>
    path.join(root, file),
  ) as [string, string]
  const changelogFile = path.join(root, 'CHANGELOG.md')
  const release = async (changelog: string, version: string) => {
    await writeFile(changelogFile, closed(changelog, version, new Date().toISOString().slice(0, 10)))
    await copyFile(document, releasedDocument)
    return `${version} is released: commit openapi/released.yaml and CHANGELOG.md.`
  }

  const [newer, changelog] = await Promise.all([documentOf(document), readFile(changelogFile, 'utf8')])
  const present = newer.info.version
  if (!existsSync(releasedDocument)) {
    if (!mode.release)
      throw new Error('openapi/released.yaml is missing. If no version was ever released: make contract-release')
    return release(changelog, present)
  }

  const older = await documentOf(releasedDocument)
  const last = older.info.version
  const changes = compare(older, newer, await reportedChanges(releasedDocument, document, redocly))
  const error = (mode.release && mode.breaking ? undefined : breaks(changes, last)) ?? wrongStep(changes, last, present)
  if (error) throw new Error(error)

  const updated = withUnreleased(changelog, present, changes)
  if (mode.release && changes.length > 0) return release(updated, present)
  if (mode.write) await writeFile(changelogFile, updated)
  else if (updated !== changelog)
    throw new Error('CHANGELOG.md does not list the changes of the document. Run: make changelog')

  if (changes.length === 0) return `The document is ${last} as released.`
  const additions = changes.filter(({ rating }) => rating === 'minor').length
  const wording = changes.filter(({ rating }) => rating === 'patch').length
  return `${present} follows ${last}: ${counted(additions, 'addition', 'additions')}, ${wording} of wording, no break.`
}
