import { Presets, SingleBar } from 'cli-progress'
import type { ImportProgress } from '../transfer/import.ts'

export interface ProgressBar {
  update: (progress: ImportProgress) => void
  stop: () => void
}

const MEGABYTE = 1024 * 1024

/**
 * A bar on stderr with the rate and the time left, when stderr is a terminal; else nothing is written.
 * @param total_bytes size of the input when it is known, as a file's is
 */
export function importProgressBar(total_bytes?: number): ProgressBar {
  if (!process.stderr.isTTY) return { update: () => {}, stop: () => {} }
  const known = total_bytes !== undefined
  const bar = new SingleBar(
    {
      format: known
        ? '{step} {bar} {percentage}% | {megabytes} MB | {rate} lines/s | {eta_formatted} left'
        : '{step} {megabytes} MB | {lines} lines | {rate} lines/s',
      hideCursor: true,
      stream: process.stderr,
      etaBuffer: 100,
    },
    Presets.shades_classic,
  )
  const started_ms = Date.now()
  bar.start(total_bytes ?? 1, 0, { step: 'reading', megabytes: '0.0', rate: 0, lines: 0 })
  return {
    update: ({ phase, bytes, lines, step }) => {
      const seconds = Math.max((Date.now() - started_ms) / 1000, 0.001)
      bar.update(Math.min(bytes, total_bytes ?? 0), {
        step: phase === 'reading' ? 'reading' : `merging ${step ?? ''}`.trim(),
        megabytes: (bytes / MEGABYTE).toFixed(1),
        rate: Math.round(lines / seconds),
        lines,
      })
    },
    stop: () => bar.stop(),
  }
}
