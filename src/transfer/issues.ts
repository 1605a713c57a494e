/** What is wrong with a record, whatever line it is on. */
export interface RecordIssue {
  /** A JSON pointer into the record; empty for the whole line. */
  field: string
  message: string
}

/** What is wrong with a line of an import. */
export interface ImportIssue extends RecordIssue {
  /** Counted from 1. */
  line: number
}

/** An import was rejected because of a line. The message is a single line of text: line number, field and issue. */
export class ImportError extends Error {
  readonly issue: ImportIssue

  constructor(issue: ImportIssue) {
    const { line, field, message } = issue
    super(field ? `line ${line}: ${field}: ${message}` : `line ${line}: ${message}`)
    this.name = 'ImportError'
    this.issue = issue
  }
}

/** A line contradicts another line, or what is stored. */
export class ImportConflict extends ImportError {}
