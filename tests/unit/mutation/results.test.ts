import { describe, expect, test } from 'vitest'
import { mutantsOf } from '../../mutation/mutants.ts'
import { digestOf, issuesOf, type Results, readResults, readSource, sourceFiles } from '../../mutation/results.ts'

const result = (mutants: number, survivors: Record<string, string>): Results => ({
  'src/domain/cursor.ts': { sha256: '', mutants, survivors },
})

describe('results.json', () => {
  const results = readResults()

  test('has no folder below the minimum, and a reason for every survivor', () => {
    expect(issuesOf(results)).toEqual([])
  })

  test.each(sourceFiles())('the survivors of %s are mutants of it, unless it has changed since the run', (file) => {
    const source = readSource(file)
    const { sha256, survivors } = results[file] ?? { sha256: '', survivors: {} }
    if (sha256 !== digestOf(source)) return
    const names = mutantsOf(file, source).map(({ name }) => name)
    expect(Object.keys(survivors).filter((name) => !names.includes(name))).toEqual([])
  })
})

test('a folder in which too many mutants survive is an issue, also when each has a reason', () => {
  expect(issuesOf(result(20, { a: 'a reason' }))).toEqual([])
  expect(issuesOf(result(19, { a: 'a reason' }))).toEqual([expect.stringMatching(/src\/domain: .* 18 of 19 mutants/)])
})

test('a survivor without a reason is an issue', () => {
  expect(issuesOf(result(20, { a: ' ' }))).toEqual([expect.stringMatching(/^src\/domain\/cursor.ts: a: /)])
})
