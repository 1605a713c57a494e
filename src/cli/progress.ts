import { type GenericFormatter, SingleBar } from 'cli-progress'
import type { BackupProgress } from '../backup/backup.ts'
import type { LiveCounts } from '../demo/live.ts'
import type { ExportProgress } from '../transfer/export.ts'
import type { ImportProgress } from '../transfer/import.ts'
import type { Output } from './context.ts'
import { mebibytes } from './output.ts'

/** Shows progress on stderr if that is a terminal. */
export interface Progress<P> {
  update: (progress: P) => void
  stop: () => void
}

const BAR_characters = 30

const SILENT = { update: () => {}, stop: () => {} }

/** Stops the progress when the signal aborts, since the process may end before its work does: a terminal gets its cursor back. */
function untilAborted<P>({ update, stop }: Progress<P>, signal?: AbortSignal): Progress<P> {
  signal?.addEventListener('abort', stop)
  return {
    update: (progress) => {
      if (!signal?.aborted) update(progress)
    },
    stop,
  }
}

/** @param total_bytes size of the input if it is known; some special files say 0 */
export function importProgress(stderr?: Output, total_bytes?: number, signal?: AbortSignal): Progress<ImportProgress> {
  if (!stderr?.isTTY) return SILENT
  let line = new ProgressLine(stderr, 'reading', total_bytes || undefined)
  let phase: ImportProgress['phase'] = 'reading'
  const update = (progress: ImportProgress) => {
    const { bytes, lines, merged_lines, step } = progress
    if (phase !== progress.phase) {
      line.stop()
      phase = progress.phase
      line = new ProgressLine(stderr, phase, lines)
    }
    if (phase === 'reading') line.update(bytes, mebibytes(bytes), perSecond(lines, 'lines', line.seconds))
    else line.update(merged_lines, (step ?? '').replaceAll('_', ' '), perSecond(merged_lines, 'lines', line.seconds))
  }
  return untilAborted({ update, stop: () => line.stop() }, signal)
}

/** Shown only after a second, and not when the records themselves go to the terminal. */
export function exportProgress(stdout: Output, stderr: Output, signal?: AbortSignal): Progress<ExportProgress> {
  if (!stderr.isTTY || stdout.isTTY) return SILENT
  const quietUntil_ms = Date.now() + 1000
  let line: ProgressLine | undefined
  const update = ({ bytes, type }: ExportProgress) => {
    if (Date.now() < quietUntil_ms) return
    line ??= new ProgressLine(stderr, 'writing')
    line.update(bytes, mebibytes(bytes), `${type.replaceAll('_', ' ')}s`)
  }
  return untilAborted({ update, stop: () => line?.stop() }, signal)
}

export function backupProgress(
  stderr: Output,
  name: 'writing' | 'checking' | 'restoring',
  signal: AbortSignal,
): Progress<BackupProgress> {
  if (!stderr.isTTY) return SILENT
  const line = new ProgressLine(stderr, name)
  const update = ({ table, bytes }: BackupProgress) => line.update(bytes, mebibytes(bytes), table.replaceAll('_', ' '))
  return untilAborted({ update, stop: () => line.stop() }, signal)
}

/** Can go on after it was stopped, on another line. */
export function liveProgress(stderr: Output): Progress<LiveCounts> {
  if (!stderr.isTTY) return SILENT
  let line: ProgressLine | undefined
  return {
    update: ({ visitors, active, records, events }) => {
      line ??= new ProgressLine(stderr, 'sending')
      line.update(records, `${visitors} visitors, ${active} active`, `${records} records`, `${events} custom events`)
    },
    stop: () => {
      line?.stop()
      line = undefined
    },
  }
}

/** A terminal line that is redrawn with the progress, including a bar if the total is known. */
class ProgressLine {
  readonly #bar: SingleBar
  readonly #total: number | undefined
  readonly #started_ms = Date.now()

  constructor(stream: Output, name: string, total?: number) {
    this.#total = total
    const format: GenericFormatter = (_, { progress, value }, { figures }: { figures: string[] }) => {
      const bar = `${'█'.repeat(progress * BAR_characters).padEnd(BAR_characters, '░')} ${Math.floor(progress * 100)}%`
      return [total === undefined ? name : `${name} ${bar}`, ...figures, this.#time(value)].join(' | ')
    }
    this.#bar = new SingleBar({ format, hideCursor: true, stream })
    this.#bar.start(total ?? Number.POSITIVE_INFINITY, 0, { figures: [] })
  }

  get seconds(): number {
    return (Date.now() - this.#started_ms) / 1000
  }

  update(done: number, ...figures: string[]): void {
    this.#bar.update(done, { figures })
  }

  stop(): void {
    this.#bar.stop()
  }

  /** The estimated remaining time, from the average rate so far; if unknown or done, the elapsed time. */
  #time(done: number): string {
    if (this.#total === undefined || done === 0 || done >= this.#total) return duration(this.seconds)
    return `${duration((this.seconds * (this.#total - done)) / done)} left`
  }
}

const perSecond = (amount: number, what: string, seconds: number) =>
  `${Math.round(amount / Math.max(seconds, 0.001)).toLocaleString('en')} ${what}/s`

function duration(seconds: number): string {
  const whole = Math.ceil(seconds)
  return whole < 60 ? `${whole}s` : `${Math.floor(whole / 60)}m${String(whole % 60).padStart(2, '0')}s`
}
