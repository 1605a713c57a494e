import { createHash } from 'node:crypto'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createGunzip } from 'node:zlib'

/**
 * A backup is gzip of lines (ADR 0024): a {@link BackupHeader}, then for each table a {@link TableHeader}, its rows in COPY's
 * text format and `\.`, and at last an {@link End}.
 */
export const FORMAT = 1

/** The first line: what the rest is. */
export interface BackupHeader {
  /** The version of the format. */
  flowtrail_backup: number
  /** When the snapshot was taken, by the database's clock. */
  taken_at: string
  /** Of the release that made it. */
  version: string
  /** Of the server that it was made from. */
  postgresql: string
  /** Those that had made the schema. */
  migrations: string[]
}

/** The line before the rows of a table. */
export interface TableHeader {
  table: string
  columns: string[]
}

/** The last line. */
export interface End {
  /** How many rows each table has. */
  rows: Record<string, number>
  /** Of all bytes before this line. */
  sha256: string
}

/** The line after the rows of a table. In COPY's text format no row can be it, and a line break is always the end of a row. */
export const END_OF_ROWS = '\\.\n'

const LINE_BREAK = 0x0a
/** Longer than any line but those of rows. */
const MAX_LINE_bytes = 1024 * 1024

/** What was given is no backup that can be restored. Its message goes on after the name of the file. */
export class BackupError extends Error {}

const damaged = (what: string, cause?: unknown) => new BackupError(`is damaged or incomplete: ${what}`, { cause })

const CHUNK_bytes = 256 * 1024

/**
 * Reads a backup as it comes. @param work gets its first line, and reads the rest
 * @throws BackupError when it is none; what the work throws
 */
export async function readBackup<T>(
  input: Readable,
  work: (header: BackupHeader, reader: BackupReader) => Promise<T>,
): Promise<T> {
  const chunks = createGunzip({ chunkSize: CHUNK_bytes })
  // What the input throws, reading the chunks throws.
  const feeding = pipeline(input, chunks).catch(() => {})
  try {
    const reader = new BackupReader(chunks)
    return await work(await reader.header(), reader)
  } finally {
    chunks.destroy()
    await feeding
  }
}

/** Reads a backup from its start to its end, one table after the other, and checks that it is whole. */
export class BackupReader {
  readonly #chunks: AsyncIterator<Buffer>
  readonly #hash = createHash('sha256')
  #buffer: Buffer = Buffer.alloc(0)
  #header: BackupHeader | undefined
  #hasMoreRows = false
  /** How many bytes were read. */
  bytes = 0

  /** @param chunks the uncompressed bytes */
  constructor(chunks: AsyncIterable<Buffer>) {
    this.#chunks = chunks[Symbol.asyncIterator]()
  }

  /** Reads the first line. @throws BackupError when this release cannot read the rest; what the input throws */
  async header(): Promise<BackupHeader> {
    try {
      this.#header = JSON.parse(await this.#line())
    } catch (error) {
      if (error instanceof SyntaxError || error instanceof BackupError || isZlibError(error)) throw notABackup(error)
      throw error
    }
    const { flowtrail_backup: format, version, migrations } = this.#header ?? {}
    if (!Number.isInteger(format) || !isTexts(migrations)) throw notABackup()
    if (format !== FORMAT) throw new BackupError(`was made by another release: restore it with Flowtrail ${version}`)
    return this.#header as BackupHeader
  }

  /**
   * The next table, whose rows must then be read.
   * @returns what the last line says when there is none, and the backup is whole
   * @throws BackupError when it is not; what the input throws
   */
  async next(): Promise<TableHeader | End> {
    const sha256 = this.#hash.copy().digest('hex')
    const line = await this.#line()
    let read: Partial<TableHeader & End>
    try {
      // What is no object is not what the checksum was taken of.
      read = JSON.parse(line) ?? {}
    } catch (cause) {
      throw damaged('a line is not JSON', cause)
    }
    this.#hasMoreRows = isTexts(read.columns)
    if (this.#hasMoreRows) return read as TableHeader
    if (read.sha256 !== sha256) throw damaged('its checksum does not match')
    // Reading to the end lets zlib compare its own checksum.
    while (this.#buffer.length === 0 && (await this.#fill()));
    if (this.#buffer.length > 0) throw damaged('more follows after its end')
    return read as End
  }

  /** Whether the table has rows that were not read. */
  get hasMoreRows(): boolean {
    return this.#hasMoreRows
  }

  /**
   * The next rows of the table, in parts that need not end with a row.
   * @param bytes after how many to end with a row, while more follow
   * @throws BackupError when the backup ends before; what the input throws
   */
  async *rows(bytes = Number.POSITIVE_INFINITY): AsyncGenerator<Buffer> {
    for (let read_bytes = 0; ; ) {
      const isEnd = read_bytes === 0 && this.#buffer.indexOf(END_OF_ROWS) === 0
      const end = isEnd ? 0 : after(this.#buffer.indexOf(`\n${END_OF_ROWS}`))
      const last = end === undefined && read_bytes >= bytes ? after(this.#buffer.lastIndexOf(LINE_BREAK)) : end
      // What is left may be the beginning of the end.
      const size = last ?? this.#buffer.length - END_OF_ROWS.length
      if (size > 0) {
        read_bytes += size
        yield this.#take(size)
      }
      if (last !== undefined) {
        this.#hasMoreRows = end === undefined
        if (!this.#hasMoreRows) this.#take(END_OF_ROWS.length)
        return
      }
      await this.#require()
    }
  }

  /** Reads a line. */
  async #line(): Promise<string> {
    for (;;) {
      const end = after(this.#buffer.indexOf(LINE_BREAK))
      if (end !== undefined) return this.#take(end).toString()
      if (this.#buffer.length > MAX_LINE_bytes) throw damaged('a line is too long')
      await this.#require()
    }
  }

  #take(size: number): Buffer {
    const taken = this.#buffer.subarray(0, size)
    this.#buffer = this.#buffer.subarray(size)
    this.#hash.update(taken)
    this.bytes += size
    return taken
  }

  async #require(): Promise<void> {
    if (!(await this.#fill())) throw damaged('it ends too early')
  }

  /** @returns whether there was more */
  async #fill(): Promise<boolean> {
    try {
      const { done, value } = await this.#chunks.next()
      if (!done) this.#buffer = Buffer.concat([this.#buffer, value])
      return !done
    } catch (error) {
      throw this.#header && isZlibError(error) ? damaged((error as Error).message, error) : error
    }
  }
}

/** The place after a line break. @param at where it is, or -1 */
const after = (at: number) => (at === -1 ? undefined : at + 1)

const notABackup = (cause?: unknown) => new BackupError('is not a backup of Flowtrail', { cause })

const isTexts = (value: unknown): value is string[] =>
  Array.isArray(value) && value.every((one) => typeof one === 'string')

const isZlibError = (error: unknown) => String((error as NodeJS.ErrnoException).code).startsWith('Z_')
