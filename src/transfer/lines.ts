import { isUtf8 } from 'node:buffer'

/** The longest line of an import, in bytes without the line break (decisions, "Operator's command line"). */
export const MAX_LINE_bytes = 16 * 1024 * 1024

const LF = 0x0a

/** A line of an import that cannot be taken. The message is one line: number, field and reason. */
export class ImportError extends Error {
  /** Counts from 1. */
  readonly line: number
  /** A JSON pointer into the record; empty for the whole line. */
  readonly field: string
  readonly reason: string

  constructor(line: number, field: string, reason: string) {
    super(field ? `line ${line}: ${field}: ${reason}` : `line ${line}: ${reason}`)
    this.name = 'ImportError'
    this.line = line
    this.field = field
    this.reason = reason
  }
}

/** Cuts chunks of bytes into lines of text. It holds no more than one unfinished line. */
export class LineSplitter {
  /** How many lines were given out. */
  lines = 0
  #parts: Buffer[] = []
  #length = 0

  /** The last line, where the input does not end in a line break. */
  end(): string[] {
    return this.#length > 0 ? [this.#take()] : []
  }

  /**
   * The lines that this chunk completes, without their LF.
   * @throws ImportError for a line that is too long or no UTF-8
   */
  *push(chunk: Buffer): Generator<string> {
    let start = 0
    for (let end = chunk.indexOf(LF); end !== -1; end = chunk.indexOf(LF, start)) {
      this.#add(chunk.subarray(start, end))
      yield this.#take()
      start = end + 1
    }
    if (start < chunk.length) this.#add(chunk.subarray(start))
  }

  #add(part: Buffer): void {
    this.#length += part.length
    if (this.#length > MAX_LINE_bytes) {
      throw new ImportError(this.lines + 1, '', `must be at most ${MAX_LINE_bytes} bytes long`)
    }
    this.#parts.push(part)
  }

  #take(): string {
    const line = this.#parts.length === 1 ? (this.#parts[0] as Buffer) : Buffer.concat(this.#parts)
    this.#parts = []
    this.#length = 0
    this.lines += 1
    if (!isUtf8(line)) throw new ImportError(this.lines, '', 'must be UTF-8')
    return line.toString()
  }
}
