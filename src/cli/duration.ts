import { InvalidArgumentError } from 'commander'

const UNIT_ms: Record<string, number> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }
const MAX_days = 36_500

/**
 * Reads a duration such as `90d`, `24h`, `30m` or `45s` for commander.
 * @returns milliseconds
 */
export function parseDuration(text: string): number {
  const [, amount, unit] = /^(\d{1,9})([smhd])$/.exec(text) ?? []
  const duration_ms = Number(amount) * (UNIT_ms[unit ?? ''] ?? Number.NaN)
  if (!(duration_ms <= MAX_days * (UNIT_ms.d ?? 0))) {
    throw new InvalidArgumentError('write a number and a unit, such as 90d, 24h or 30m.')
  }
  return duration_ms
}
