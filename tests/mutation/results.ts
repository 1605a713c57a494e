import { createHash } from 'node:crypto'
import { globSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { FOLDERS, ROOT } from './sandbox.ts'

/** What the last complete run found out about a source file. */
export interface FileResult {
  /** Of the source, to see whether it has changed since. */
  sha256: string
  /** How many mutants compile. */
  mutants: number
  /** Those that no test detects, by name, each with the reason why that is right. */
  survivors: Record<string, string>
}
export type Results = Record<string, FileResult>

/** The least share of its mutants that the tests of a folder must detect. */
export const MINIMUM_score = 0.95

const FILE = path.join(import.meta.dirname, 'results.json')

export const readResults = (): Results => JSON.parse(readFileSync(FILE, 'utf8'))

export function writeResults(results: Results): void {
  const sorted = Object.fromEntries(Object.entries(results).sort(([a], [b]) => (a < b ? -1 : 1)))
  writeFileSync(FILE, `${JSON.stringify(sorted, undefined, 2)}\n`)
}

/** The sources that are mutated, relative to the root of the checkout. */
export const sourceFiles = (): string[] =>
  FOLDERS.flatMap((folder) => globSync(`src/${folder}/**/*.ts`, { cwd: ROOT })).sort()

export const readSource = (file: string) => readFileSync(path.join(ROOT, file), 'utf8')
export const digestOf = (text: string) => createHash('sha256').update(text).digest('hex')

/** The mutants of each folder, and how many of them are detected. */
export function scores(results: Results): { folder: string; mutants: number; detected: number }[] {
  return FOLDERS.map((folder) => {
    const files = Object.entries(results).filter(([file]) => file.startsWith(`src/${folder}/`))
    const mutants = files.reduce((sum, [, file]) => sum + file.mutants, 0)
    const survivors = files.reduce((sum, [, file]) => sum + Object.keys(file.survivors).length, 0)
    return { folder, mutants, detected: mutants - survivors }
  })
}

/** The names of the survivors that nobody has given a reason. */
export const unexplained = ({ survivors }: FileResult): string[] =>
  Object.keys(survivors).filter((name) => survivors[name]?.trim() === '')

/** What is wrong with the results: folders below the minimum score, survivors without a reason. */
export function issuesOf(results: Results): string[] {
  const low = scores(results)
    .filter(({ mutants, detected }) => detected < mutants * MINIMUM_score)
    .map(
      ({ folder, mutants, detected }) =>
        `src/${folder}: the tests detect ${detected} of ${mutants} mutants, less than ${100 * MINIMUM_score} %`,
    )
  const withoutReason = Object.entries(results).flatMap(([file, result]) =>
    unexplained(result).map(
      (name) => `${file}: ${name}: no test detects this. Write one, or the reason in tests/mutation/results.json`,
    ),
  )
  return [...low, ...withoutReason]
}
