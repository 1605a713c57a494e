import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, test } from 'vitest'

// Comments and documents refer to sections of docs/semantics.md, to architecture decisions and to files. Each must exist.

const ROOT = path.join(import.meta.dirname, '../..')
const read = (file: string) => readFileSync(path.join(ROOT, file), 'utf8')
const exists = (file: string) => existsSync(path.join(ROOT, file))

/** Paths that documents name and that runs create. */
const CREATED = /^bench\/(results|\.cache)\/?$/

const TEXT =
  /(\.(md|ts|mts|mjs|js|css|py|yaml|toml|sql|go|rs|java|kt|rb|php|xml|sh)|\/run|\/run-typescript|\/run-maven|Makefile|^bin\/.*|^\.ci\/.*)$/
const files = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], { cwd: ROOT })
  .toString()
  .split('\n')
  .filter((file) => TEXT.test(file) && !file.startsWith('generated/') && exists(file))
const documents = files.filter((file) => file.endsWith('.md'))

/** The prose of a Markdown file, or the comments of another. */
function proseOf(file: string): string {
  const text = read(file)
  if (file.endsWith('.md')) return text.replace(/^```[\s\S]*?^```/gm, '')
  const isSlashed = /\.(ts|mts|mjs|js|css|go|rs|java)$/.test(file)
  return [...text.matchAll(isSlashed ? /\/\*[\s\S]*?\*\/|\/\/.*/g : /(?<!\S)#.*|--.*/g)].join('\n')
}

/** The anchors that GitHub makes of a document's headings. */
function anchorsOf(file: string): string[] {
  const headings = [...proseOf(file).matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) =>
    heading
      .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
      .toLowerCase()
      .replace(/[^\p{L}\p{N}_ -]/gu, '')
      .replaceAll(' ', '-'),
  )
  return headings.map((anchor, i) => {
    const before = headings.slice(0, i).filter((other) => other === anchor).length
    return before === 0 ? anchor : `${anchor}-${before}`
  })
}

/** All matches of the first group, with the file of each. */
const matches = (among: readonly string[], pattern: RegExp) =>
  among.flatMap((file) => [...proseOf(file).matchAll(pattern)].map(([, match = '']) => ({ file, match })))

test('every cited section of docs/semantics.md exists', () => {
  const cited = matches(files, /docs\/semantics\.md#([\w-]+)/g)
  const anchors = [...anchorsOf('docs/semantics.md'), 'slug']
  expect(cited.filter(({ match }) => !anchors.includes(match))).toEqual([])
})

describe('architecture decisions', () => {
  const records = readdirSync(path.join(ROOT, 'docs/adr')).filter((file) => /^\d{4}-.*\.md$/.test(file))

  test('every cited one exists', () => {
    const numbers = records.map((file) => file.slice(0, 4))
    expect(matches(files, /\bADR (\d+)/g).filter(({ match }) => !numbers.includes(match))).toEqual([])
  })

  test('the index lists each by its title', () => {
    const rows = [...read('docs/adr/README.md').matchAll(/^\| \[(\d{4})\]\(([^)]+)\) \| (.+) \|$/gm)]
    const titled = records.map((file) => [read(`docs/adr/${file}`).split('\n')[0], file])
    expect(rows.map(([, number, file, title]) => [`# ${number} ${title}`, file])).toEqual(titled)
  })
})

test('every relative link of a document leads to a file, and to a heading of it', () => {
  const broken = matches(documents, /\]\(([^)\s]+)\)/g).filter(({ file, match }) => {
    if (/^\w+:/.test(match)) return false
    const [target = '', anchor] = match.split('#')
    const resolved = target === '' ? file : path.join(path.dirname(file), target)
    if (!exists(resolved)) return true
    return anchor !== undefined && resolved.endsWith('.md') && !anchorsOf(resolved).includes(anchor)
  })
  expect(broken).toEqual([])
})

test('every path that prose names exists', () => {
  const folders = 'src|db|tests|bench|openapi|docs|generated|bin|deploy|\\.ci'
  const named = [
    ...matches(files, new RegExp(`\`((?:${folders})/[\\w./-]*)\``, 'g')),
    ...matches(files, new RegExp(`(?<![\\w./-])((?:${folders})/[\\w./-]+\\.(?:ts|md|yaml|json|py|css|js))\\b`, 'g')),
  ]
  expect(
    named.filter(
      ({ file, match }) => !CREATED.test(match) && !exists(match) && !exists(path.join(path.dirname(file), match)),
    ),
  ).toEqual([])
})

test('nothing cites a document outside the repository', () => {
  expect(matches(files, /(\((?:decisions|brief)\b[^)]*\))/g)).toEqual([])
})

test('docs/reliability.md names a test for each promise, by its title', () => {
  const rows = [...read('docs/reliability.md').matchAll(/^\| (?!promise|---)(.+?) \| (.*) \|$/gm)]
  const missing = rows.filter(([, , held = '']) => {
    const [, file = '', title = ''] = /^`(tests\/[^`]+)`: (.+)$/.exec(held) ?? []
    return !exists(file) || !read(file).includes(`'${title}'`)
  })
  expect(rows.length).toBeGreaterThan(0)
  expect(missing.map(([row]) => row)).toEqual([])
})

test('docs/upgrading.md lists the schema of every migration', () => {
  const numbers = readdirSync(path.join(ROOT, 'db/migrations')).map((file) => file.slice(0, 4))
  const listed = [...read('docs/upgrading.md').matchAll(/^\| (\d{4}) \|/gm)].map(([, number]) => number)
  expect(listed).toEqual([...new Set(numbers)])
})

test('SECURITY.md names the tests against each risk of the OWASP API Security Top 10', () => {
  const rows = [...read('SECURITY.md').matchAll(/^\| (API\d+) .* \| (.*) \|$/gm)]
  expect(rows.map(([, risk]) => risk)).toEqual(Array.from({ length: 10 }, (_, i) => `API${i + 1}`))
  for (const [row, , tests = ''] of rows) expect(tests, row).toMatch(/^`tests\/[^`]+\.test\.ts`/)
})
