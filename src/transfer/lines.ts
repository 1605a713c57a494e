import { isUtf8 } from 'node:buffer'
import { ImportError } from './issues.ts'

/**
 * The longest line of an import, in bytes without the line break: 16 MiB (docs/semantics.md#import), and as much as an export may
 * add to such a line, such as times and ids that it left out.
 */
export const MAX_LINE_bytes = (16 * 1024 + 64) * 1024

const LF = 0x0a
/** So many parts of a line are joined: a Buffer takes some 500 bytes, however few it holds. */
const MAX_PARTS = 256

/** Splits chunks of bytes into lines of text. It buffers at most one incomplete line. */
export class LineSplitter {
  /** How many lines were returned so far; within an iteration, the number of the current line. */
  lines = 0
  readonly #maxLine_bytes: number
  /** The incomplete line: its joined parts, and those after them. */
  #joined: Buffer[] = []
  #parts: Buffer[] = []
  #length = 0

  constructor(maxLine_bytes = MAX_LINE_bytes) {
    this.#maxLine_bytes = maxLine_bytes
  }

  /** The last line, if the input does not end in a line break. */
  end(): string[] {
    return this.#length > 0 ? [this.#take()] : []
  }

  /**
   * The lines that this chunk completes, without their LF.
   * @throws ImportError for a line that is too long or not UTF-8
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
    if (this.#length > this.#maxLine_bytes) {
      throw new ImportError({
        line: this.lines + 1,
        field: '',
        message: `must be at most ${this.#maxLine_bytes} bytes long`,
      })
    }
    this.#parts.push(part)
    if (this.#parts.length === MAX_PARTS) this.#joined.push(Buffer.concat(this.#parts.splice(0)))
  }

  #take(): string {
    const parts = [...this.#joined, ...this.#parts]
    const line = parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts)
    this.#joined = []
    this.#parts = []
    this.#length = 0
    this.lines += 1
    if (!isUtf8(line)) throw new ImportError({ line: this.lines, field: '', message: 'must be UTF-8' })
    return line.toString()
  }
}
