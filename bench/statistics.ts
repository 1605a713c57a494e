/** The middle one of the values, or what lies between the middle two. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length / 2
  const upper = sorted[Math.floor(middle)] ?? Number.NaN
  return Number.isInteger(middle) ? ((sorted[middle - 1] ?? Number.NaN) + upper) / 2 : upper
}

/** The median and the range of the rounds. */
export interface Spread {
  median: number
  least: number
  most: number
}

export const spreadOf = (values: readonly number[]): Spread => ({
  median: median(values),
  least: Math.min(...values),
  most: Math.max(...values),
})

/** The ratios of two measurements within the rounds. */
export const ratios = (ours: readonly number[], theirs: readonly number[]): Spread =>
  spreadOf(ours.map((one, round) => one / (theirs[round] ?? Number.NaN)))

/** Three significant digits, but no fraction above a hundred. */
export function figure(value: number): string {
  if (Number.isNaN(value)) return '–'
  if (value === 0 || value >= 100) return Math.round(value).toLocaleString('en-US')
  return value.toPrecision(value < 0.1 ? 2 : 3)
}

export const withSpread = ({ median, least, most }: Spread): string =>
  Object.is(least, most) ? figure(median) : `${figure(median)} (${figure(least)}–${figure(most)})`
