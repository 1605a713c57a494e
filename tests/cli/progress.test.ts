import { Writable } from 'node:stream'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { Output } from '../../src/cli/context.ts'
import { backupProgress, exportProgress, importProgress } from '../../src/cli/progress.ts'

const MEGABYTE = 1024 * 1024

/** The final content of each line of the terminal, without escape sequences. */
let terminal: () => string[]
/** All that was written to it. */
let raw: () => string
let stderr: Output
const file: Output = new Writable()

beforeEach(() => {
  vi.useFakeTimers()
  let written = ''
  const stream = new Writable({
    write(chunk: Buffer, _, done) {
      written += chunk.toString()
      done()
    },
  })
  stderr = Object.assign(stream, { isTTY: true, columns: 80 })
  raw = () => written
  terminal = () =>
    written
      .split('\n')
      .map((line) => line.split('\u001b[1G').at(-1) ?? '')
      // biome-ignore lint/suspicious/noControlCharactersInRegex: terminal escape sequences start with one
      .map((line) => line.replace(/\u001b(\[\??\d*[a-zA-Z]|[78])/g, '').trimEnd())
      .filter((line) => line !== '')
})

afterEach(() => void vi.useRealTimers())

const seconds = (count: number) => vi.advanceTimersByTime(count * 1000)
const bar = (full: number) => '█'.repeat(full).padEnd(30, '░')

describe('of an import', () => {
  test('shows rate and time left while reading, then while merging', () => {
    const { update, stop } = importProgress(stderr, 40 * MEGABYTE)
    seconds(2)
    update({ phase: 'reading', bytes: 10 * MEGABYTE, lines: 25_000, merged_lines: 0 })
    expect(terminal()).toEqual([`reading ${bar(7)} 25% | 10.0 MiB | 12,500 lines/s | 6s left`])
    seconds(6)
    update({ phase: 'reading', bytes: 40 * MEGABYTE, lines: 100_000, merged_lines: 0 })
    const read = `reading ${bar(30)} 100% | 40.0 MiB | 12,500 lines/s | 8s`
    expect(terminal()).toEqual([read])

    const merging = { phase: 'merging', bytes: 40 * MEGABYTE, lines: 100_000 } as const
    update({ ...merging, merged_lines: 0, step: 'gathering' })
    seconds(10)
    expect(terminal()).toEqual([read, `merging ${bar(0)} 0% | gathering | 0 lines/s | 10s`])
    update({ ...merging, merged_lines: 10_000, step: 'module_versions' })
    expect(terminal()).toEqual([read, `merging ${bar(3)} 10% | module versions | 1,000 lines/s | 1m30s left`])
    update({ ...merging, merged_lines: 100_000, step: 'events' })
    stop()
    const merged = `merging ${bar(30)} 100% | events | 10,000 lines/s | 10s`
    expect(terminal()).toEqual([read, merged])

    // Nothing is written after it has stopped.
    seconds(5)
    expect(terminal()).toEqual([read, merged])
  })

  test.each([
    ['standard input', undefined],
    ['a pipe', 0],
  ])('of %s shows how much was read', (_, size) => {
    const { update, stop } = importProgress(stderr, size)
    seconds(2)
    update({ phase: 'reading', bytes: 3 * MEGABYTE, lines: 6_000, merged_lines: 0 })
    stop()
    expect(terminal()).toEqual(['reading | 3.0 MiB | 3,000 lines/s | 2s'])
  })
})

describe('of an export', () => {
  beforeEach(() => {
    vi.spyOn(process, 'stdout', 'get').mockReturnValue({ isTTY: false } as typeof process.stdout)
  })

  test('starts after a second', () => {
    const { update, stop } = exportProgress(file, stderr)
    update({ bytes: MEGABYTE, type: 'contact' })
    expect(terminal()).toEqual([])
    seconds(3)
    update({ bytes: 2 * MEGABYTE, type: 'module_version' })
    stop()
    expect(terminal()).toEqual(['writing | 2.0 MiB | module versions | 0s'])
  })

  test('is silent when the records go to the terminal', () => {
    const { update, stop } = exportProgress(stderr, stderr)
    seconds(3)
    update({ bytes: MEGABYTE, type: 'event' })
    stop()
    expect(terminal()).toEqual([])
  })
})

test('is silent when stderr is not a terminal', () => {
  Object.assign(stderr, { isTTY: false })
  for (const { update, stop } of [importProgress(stderr, MEGABYTE), exportProgress(file, stderr)]) {
    seconds(3)
    update({ phase: 'reading', bytes: MEGABYTE, lines: 1, merged_lines: 0, type: 'event' })
    stop()
  }
  expect(terminal()).toEqual([])
})

test.each<[string, (signal: AbortSignal) => { update: () => void; stop: () => void }]>([
  [
    'import',
    (signal) => {
      const { update, stop } = importProgress(stderr, undefined, signal)
      return { update: () => update({ phase: 'merging', bytes: 1, lines: 2, merged_lines: 1, step: 'events' }), stop }
    },
  ],
  [
    'export',
    (signal) => {
      const { update, stop } = exportProgress(file, stderr, signal)
      seconds(1)
      return { update: () => update({ bytes: 1, type: 'event' }), stop }
    },
  ],
  [
    'restore',
    (signal) => {
      const { update, stop } = backupProgress(stderr, 'restoring', signal)
      return { update: () => update({ table: 'events', bytes: 1 }), stop }
    },
  ],
])('an interrupted %s gives the cursor back, and writes no more', (_, start) => {
  const interruption = new AbortController()
  const { update, stop } = start(interruption.signal)
  update()
  interruption.abort()
  expect(raw()).toMatch(/\[\?25h.\[\?7h.8\n$/s)
  const written = raw()
  update()
  seconds(5)
  stop()
  expect(raw()).toBe(written)
})
