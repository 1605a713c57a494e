import { extendTestApps } from '../../support/extensions.ts'

// A Vitest setup file: makes every service of the tests wrong in the way that FLOWTRAIL_MUTANT names, if it is set.
const { FLOWTRAIL_MUTANT } = process.env
if (FLOWTRAIL_MUTANT) {
  const { mutationOf } = await import('./mutants.ts')
  const mutation = mutationOf(FLOWTRAIL_MUTANT)
  if (mutation) extendTestApps(mutation, { violatesDocument: true })
}
