import type { Writable } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import { adviceFor, isConnecting } from '../database/advice.ts'

/** A failure with a one-line message; the command exits with status 1. */
export class CommandError extends Error {}

/** What was given cannot be used; nothing was done. The command exits with status 2. */
export class InputError extends CommandError {}

/** An error in one line, with what can be done about it. */
export function describeError(error: unknown): string {
  const errors = error instanceof AggregateError ? error.errors : [error]
  const messages = errors.map((one) => (one instanceof Error ? one.message || one.name : String(one)))
  const message = [...new Set(messages)].join('; ').replace(/\s*\n\s*/g, ' ')
  const advice = adviceFor(error)
  const described = errors.some(isConnecting) ? `Cannot connect to the database: ${message}` : message
  return advice === undefined ? described : `${described}. ${advice}`
}

export type Row = Record<string, string | number | boolean | null | readonly string[]>

/** @throws the error of the write, such as EPIPE when the reader has closed it */
export function print(stdout: Writable, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    stdout.write(text, (error) => (error ? reject(error) : resolve()))
  })
}

/**
 * Waits until everything is written.
 * @throws the error of a write that nobody has waited for, such as the last one of an export
 */
export async function flush(stdout: Writable): Promise<void> {
  if (stdout.errored) throw stdout.errored
  await print(stdout, '')
}

/**
 * Reports what a command has done, which must not be hidden by a failure to print it.
 * @param done as a sentence without its full stop
 * @throws the error of the write, which says so
 */
export async function report(done: string, print: () => Promise<void>): Promise<void> {
  try {
    await print()
  } catch (error) {
    if (error instanceof Error) error.message = `${done}, but the report cannot be printed: ${error.message}`
    throw error
  }
}

/**
 * Watches an output. @returns whether an error is that its reader has closed it, as `head` does: a connection to the
 * database that breaks may have the same code
 */
export function watchOutput(stdout: Writable): (error: unknown) => Promise<boolean> {
  const errors = new Set<unknown>()
  stdout.on('error', (error) => errors.add(error))
  return async (error) => {
    // The event may come after the callback of the write.
    await setImmediate()
    return errors.has(error) && (error as NodeJS.ErrnoException).code === 'EPIPE'
  }
}

/** Prints rows as a table or, with `json`, as a JSON array. */
export async function printRows(
  stdout: Writable,
  rows: readonly Row[],
  columns: readonly string[],
  json = false,
): Promise<void> {
  await print(stdout, json ? `${JSON.stringify(rows, null, 2)}\n` : table(rows, columns))
}

/** Formats rows under their column names, numbers right-aligned. */
export function table(rows: readonly Row[], columns: readonly string[]): string {
  const aligned = columns.map((column) => {
    const cells = [column, ...rows.map((row) => cell(row[column]))]
    const width = cells.reduce((most, text) => Math.max(most, text.length), 0)
    const isNumeric = rows.some((row) => typeof row[column] === 'number')
    return cells.map((text) => (isNumeric ? text.padStart(width) : text.padEnd(width)))
  })
  const lines = [columns, ...rows].map((_, line) => aligned.map((cells) => cells[line]).join('  '))
  return lines.map((line) => `${line.trimEnd()}\n`).join('')
}

/** Formats a value on one line; missing and empty ones as a dash. */
function cell(value: Row[string] | undefined): string {
  const text = Array.isArray(value) ? value.join(' ') : String(value ?? '')
  return printable(text) || '-'
}

/** Text on one line. What was imported can contain line breaks and terminal escapes. */
export const printable = (text: string): string => text.replace(/[\p{Cc}\p{Cf}\u2028\u2029]+/gu, ' ')

export const mebibytes = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`
