import fc from 'fast-check'

/** So that every run of the suite tests the same; a run with another seed tests something new. */
const FIXED_SEED = 20_261_122

const { PROPERTY_SEED, PROPERTY_RUNS, PROPERTY_SHRINK } = process.env
const times = Number(PROPERTY_RUNS || 1)

/** How long a property may run and, once it failed, look for a smaller case, in milliseconds. */
const LIMIT_ms = 90_000 * times

/** For the test of a property, which then reports the smallest case so far instead of being cut off. */
export const TEST_OPTIONS = { timeout: LIMIT_ms + 30_000 }

/**
 * fast-check's settings for a property. A failure prints seed and path, with which it can be repeated.
 * `PROPERTY_SEED` sets another seed, `PROPERTY_RUNS` multiplies the runs (CONTRIBUTING.md); `PROPERTY_SHRINK=no` reports
 * the first failure at once, without looking for a smaller case.
 */
export const runs = <T>(numRuns: number): fc.Parameters<T> => ({
  seed: PROPERTY_SEED ? Number(PROPERTY_SEED) : FIXED_SEED,
  numRuns: numRuns * times,
  endOnFailure: PROPERTY_SHRINK === 'no',
  plugins: [fc.interruptAfterTimeLimit(LIMIT_ms, { failOnInterrupt: true }) as fc.Plugin<T>],
})

/** Makes a failure print the items as JSON lines. */
export const asJsonLines = <T>(items: fc.Arbitrary<T[]>): fc.Arbitrary<T[]> =>
  items.map((list) =>
    Object.defineProperty(list, fc.toStringMethod, {
      value: () => `\n${list.map((item) => JSON.stringify(item)).join('\n')}\n`,
    }),
  )
