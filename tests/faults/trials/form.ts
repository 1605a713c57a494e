import type fc from 'fast-check'
import { runs } from '../../support/properties.ts'

/** Whether the trials have their long form: `make faults LONG=yes`. */
export const isLong = process.env.LONG === 'yes'

/** A number of the short form, which CI runs, or of the long one. */
export const inForm = (short: number, long: number): number => (isLong ? long : short)

/** fast-check's settings, with a number of runs for each form and no limit of time. Prints the seed. */
export function runsInForm<T>(short: number, long: number): fc.Parameters<T> {
  const { plugins: _, ...settings } = runs<T>(inForm(short, long))
  console.log(`seed ${settings.seed}`)
  return settings
}
