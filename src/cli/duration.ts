import { InvalidArgumentError } from 'commander'

const UNIT_ms: Record<string, number> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/**
 * Makes a parser of durations such as `90d`, `24h`, `30m` or `45s`, for commander.
 * @param min the shortest duration allowed, in the same format
 * @param max the longest
 * @returns a function that parses to milliseconds
 */
export function durationBetween(min: string, max: string): (text: string) => number {
  return (text) => {
    const duration_ms = parse(text)
    if (duration_ms >= parse(min) && duration_ms <= parse(max)) return duration_ms
    throw new InvalidArgumentError(`Expected a duration from ${min} to ${max}, with the unit s, m, h or d.`)
  }
}

function parse(text: string): number {
  const [, amount, unit] = /^(\d{1,9})([smhd])$/.exec(text) ?? []
  return Number(amount) * (UNIT_ms[unit ?? ''] ?? Number.NaN)
}
