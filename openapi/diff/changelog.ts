/** The sections of CHANGELOG.md that are generated from the document's changes. */
import type { Change, Rating } from './judge.ts'

const BEGIN = '<!-- wire: `make changelog` writes this list; write anything else above it -->'
const END = '<!-- /wire -->'
const BLOCK = new RegExp(`${BEGIN}[^]*?${END}\n*`)
const UNRELEASED = /^## \S+ \(unreleased\)\n*/

/** One line for each break and addition, and one for all changes of wording. */
function wireLines(changes: readonly Change[]): string[] {
  const linesOf = (rating: Rating, prefix: string) =>
    changes.filter((change) => change.rating === rating).map(({ place, what }) => `- ${prefix}\`${place}\`: ${what}`)
  const wording = new Set(changes.filter(({ rating }) => rating === 'patch').map(({ place }) => `\`${place}\``))
  const lines = [...linesOf('breaking', '**Breaking.** '), ...linesOf('minor', '')]
  return wording.size === 0 ? lines : [...lines, `- Wording, examples and links: ${[...wording].sort().join(', ')}`]
}

/**
 * The changelog with the section of the next version generated from the changes. Text written by hand above the list is
 * kept; without changes there is no such section.
 */
export function withUnreleased(changelog: string, version: string, changes: readonly Change[]): string {
  const [head = '', ...sections] = changelog.split(/^(?=## )/m)
  const [first = '', ...rest] = sections
  const isOpen = UNRELEASED.test(first)
  const prose = isOpen ? first.replace(UNRELEASED, '').replace(BLOCK, '').trim() : ''
  const list = [BEGIN, ...wireLines(changes), END].join('\n')
  const section = [`## ${version} (unreleased)`, prose, list].filter(Boolean).join('\n\n')
  return [head, ...(changes.length > 0 ? [`${section}\n\n`] : []), ...(isOpen ? rest : sections)].join('')
}

/** The changelog with the version's section closed: dated, and no longer generated. */
export function closed(changelog: string, version: string, date: string): string {
  const heading = new RegExp(`^## ${version.replaceAll('.', '\\.')}(?: \\(.*\\))?$`, 'm')
  if (!heading.test(changelog))
    throw new Error(`CHANGELOG.md has no section "## ${version}": describe the version there.`)
  return changelog.replace(heading, `## ${version} (${date})`).replace(`${BEGIN}\n`, '').replace(`${END}\n`, '')
}
