/** A failure to be told in one line; the command ends with status 1. */
export class CommandError extends Error {}

export type Row = Record<string, string | number | boolean | null | readonly string[]>

const cell = (value: Row[string] | undefined): string =>
  value === null || value === undefined ? '-' : Array.isArray(value) ? value.join(' ') : String(value)

/** Prints rows on stdout: as a table for people, or as a JSON array with `json`. */
export function printRows(rows: readonly Row[], columns: readonly string[], json: boolean): void {
  if (json) {
    process.stdout.write(`${JSON.stringify(rows, null, 2)}\n`)
    return
  }
  const lines = [columns, ...rows.map((row) => columns.map((column) => cell(row[column])))]
  const widths = columns.map((_, i) => Math.max(...lines.map((line) => line[i]?.length ?? 0)))
  for (const line of lines) {
    process.stdout.write(
      `${line
        .map((text, i) => text.padEnd(widths[i] ?? 0))
        .join('  ')
        .trimEnd()}\n`,
    )
  }
}
