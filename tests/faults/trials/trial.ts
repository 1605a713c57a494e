/** What the trials have in common: their length, chance that can be repeated, and how they print figures. */
import type fc from 'fast-check'
import { expect } from 'vitest'
import { runs } from '../../support/properties.ts'

const { LONG, SEED: CHOSEN_SEED } = process.env

/** Whether the trials have their long form: `make faults LONG=yes`. */
export const isLong = LONG === 'yes'

/** The figure of a trial as CI runs it, or of its long form. */
export const size = (short: number, long: number): number => (isLong ? long : short)

/** fast-check's settings, with a number of runs for each form and no limit of time. Prints the seed. */
export function runsInForm<T>(short: number, long: number): fc.Parameters<T> {
  const { plugins: _, ...settings } = runs<T>(size(short, long))
  console.log(`seed ${settings.seed}`)
  return settings
}

/** How long a trial may run: many times what it takes on a quiet machine. */
export const TRIAL_OPTIONS = { timeout: size(300_000, 7_200_000) }

/** Numbers from 0 to 1, always the same for one seed: mulberry32. */
export function randomNumbers(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** What chance the trials have: differs between runs, so that they try other moments. `SEED=7 make faults` sets it. */
export const SEED = Number(CHOSEN_SEED || Math.floor(Math.random() * 1e9))

/** Prints figures under the name of the running test, fractions rounded. */
export function report(figures: Record<string, unknown>): void {
  const round = (_: string, value: unknown) => (typeof value === 'number' ? Math.round(value) : value)
  const text = Object.entries(figures).map(([name, value]) => `${name} ${JSON.stringify(value, round)}`)
  console.log(`${expect.getState().currentTestName}: ${text.join(', ')}`)
}
