import { readFileSync } from 'node:fs'
import { describe, expect, it, test } from 'vitest'
import { OPTIMIZATIONS, patched } from '../../../bench/ablation/optimizations.ts'

describe('an optimisation of the ablation', () => {
  test.each(OPTIMIZATIONS.map((one) => [one.name, one] as const))('%s can be switched off', (_, optimization) => {
    const files = Object.entries(optimization.patches ?? {})
    for (const [file, replacements] of files) {
      const source = readFileSync(new URL(`../../../${file}`, import.meta.url), 'utf8')
      expect(patched(source, replacements)).not.toBe(source)
    }
    expect(files.length + (optimization.v8Flags?.length ?? 0)).toBeGreaterThan(0)
  })

  it('has a unique name', () => {
    expect(new Set(OPTIMIZATIONS.map(({ name }) => name)).size).toBe(OPTIMIZATIONS.length)
  })
})

describe('a patch', () => {
  it('replaces the text literally', () => {
    expect(patched('a b c', [['b', '$&']])).toBe('a $& c')
  })

  it.each([
    ['is not there', 'x', 0],
    ['occurs twice', 'a', 2],
  ])('is refused when its text %s', (_, from, times) => {
    expect(() => patched('a b a', [[from, '']])).toThrow(`found ${times} times instead of once: ${from}`)
  })
})
