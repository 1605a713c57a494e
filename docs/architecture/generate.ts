/**
 * Writes the import rules of .dependency-cruiser.ts into ARCHITECTURE.md, between two comments, and into a picture. With
 * --check it changes nothing and fails when either is not what the rules say.
 */
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { ANYTHING, IMPORT_RULES, split } from '../../.dependency-cruiser.ts'
import { drawImports } from './picture.ts'

const ROOT = path.join(import.meta.dirname, '../..')
const PAGE = 'ARCHITECTURE.md'
const PICTURE = 'docs/architecture/imports.svg'
const [BEGIN, END] = ['<!-- imports: generated -->', '<!-- /imports -->']

function listOf(names: readonly string[]): string {
  const { values, types } = split(names)
  if (values.includes(ANYTHING)) return 'anything'
  const quoted = (all: string[]) => all.map((name) => `\`${name}\``).join(', ')
  return [quoted(values), types.length > 0 ? `types of ${quoted(types)}` : ''].filter(Boolean).join('; ')
}

const table = (): string =>
  [
    '| from | files | packages |',
    '|---|---|---|',
    ...Object.entries(IMPORT_RULES).map(([place, { imports, packages, shared }]) => {
      const own = shared && (shared.length > 0 ? `of its own ${listOf(shared)}` : 'none of its own')
      return `| \`${place}\` | ${[listOf(imports), own].filter(Boolean).join('; ') || '–'} | ${listOf(packages) || '–'} |`
    }),
  ].join('\n')

function withTable(page: string): string {
  const [before, after] = [page.split(BEGIN)[0], page.split(END)[1]]
  if (before === undefined || after === undefined) throw new Error(`${PAGE} lacks ${BEGIN} … ${END}`)
  return `${before}${BEGIN}\n${table()}\n${END}${after}`
}

const read = (file: string) => readFile(path.join(ROOT, file), 'utf8').catch(() => '')
const fresh = { [PAGE]: withTable(await read(PAGE)), [PICTURE]: drawImports(IMPORT_RULES) }
const stale = []
for (const [file, content] of Object.entries(fresh)) {
  if ((await read(file)) === content) continue
  if (process.argv.includes('--check')) stale.push(file)
  else await writeFile(path.join(ROOT, file), content)
}
if (stale.length > 0) {
  process.stderr.write(`${stale.join(' and ')} not up to date with the import rules. Run: make generate\n`)
  process.exitCode = 1
}
