import { InvalidArgumentError } from 'commander'

const UNIT_ms: Record<string, number> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/**
 * Makes a reader of durations such as `90d`, `24h`, `30m` or `45s` for commander.
 * @param least the shortest that is allowed, as one writes it
 * @param most the longest
 * @returns a function from text to milliseconds
 */
export function durationBetween(least: string, most: string): (text: string) => number {
  return (text) => {
    const duration_ms = parse(text)
    if (duration_ms >= parse(least) && duration_ms <= parse(most)) return duration_ms
    throw new InvalidArgumentError(`Write a number and a unit out of s, m, h and d, from ${least} to ${most}.`)
  }
}

function parse(text: string): number {
  const [, amount, unit] = /^(\d{1,9})([smhd])$/.exec(text) ?? []
  return Number(amount) * (UNIT_ms[unit ?? ''] ?? Number.NaN)
}
