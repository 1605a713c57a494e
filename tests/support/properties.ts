import fc from 'fast-check'

/** So that every run of the suite tests the same; a run with another seed tests something new. */
const FIXED_SEED = 20_261_122

const { PROPERTY_SEED, PROPERTY_RUNS } = process.env

/**
 * fast-check's settings for a property. A failure prints seed and path, with which it can be repeated.
 * `PROPERTY_SEED` sets another seed, `PROPERTY_RUNS` multiplies the runs (CONTRIBUTING.md).
 */
export const runs = <T>(numRuns: number): fc.Parameters<T> => ({
  seed: PROPERTY_SEED ? Number(PROPERTY_SEED) : FIXED_SEED,
  numRuns: numRuns * Number(PROPERTY_RUNS || 1),
})

/** Makes a failure print the items as JSON lines. */
export const asJsonLines = <T>(items: fc.Arbitrary<T[]>): fc.Arbitrary<T[]> =>
  items.map((list) =>
    Object.defineProperty(list, fc.toStringMethod, {
      value: () => `\n${list.map((item) => JSON.stringify(item)).join('\n')}\n`,
    }),
  )
