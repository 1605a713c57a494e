/** A failure to be told in one line; the command ends with status 1. */
export class CommandError extends Error {}

export type Row = Record<string, string | number | boolean | null | readonly string[]>

/** Writes on stdout. @throws what went wrong: EPIPE when the reader has had enough */
export function print(text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(text, (error) => (error ? reject(error) : resolve()))
  })
}

/** Prints rows on stdout: as a table for people, or as a JSON array with `json`. */
export async function printRows(rows: readonly Row[], columns: readonly string[], json = false): Promise<void> {
  await print(json ? `${JSON.stringify(rows, null, 2)}\n` : table(rows, columns))
}

/** Columns side by side under their names, numbers flush right. */
function table(rows: readonly Row[], columns: readonly string[]): string {
  const aligned = columns.map((column) => {
    const cells = [column, ...rows.map((row) => cell(row[column]))]
    const width = Math.max(...cells.map((text) => text.length))
    const isNumeric = rows.some((row) => typeof row[column] === 'number')
    return cells.map((text) => (isNumeric ? text.padStart(width) : text.padEnd(width)))
  })
  const lines = [columns, ...rows].map((_, line) => aligned.map((cells) => cells[line]).join('  '))
  return lines.map((line) => `${line.trimEnd()}\n`).join('')
}

/** A value on one line; what is missing or empty is a dash. */
function cell(value: Row[string] | undefined): string {
  const text = Array.isArray(value) ? value.join(' ') : String(value ?? '')
  // Names come from imports too and hold what they like.
  return text.replace(/\p{Cc}+/gu, ' ') || '-'
}
