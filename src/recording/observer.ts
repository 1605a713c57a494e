import type { ErrorCode } from '../domain/errors.ts'
import type { TypeMismatch } from '../domain/identifier.ts'

/** What became of an event of a batch; `locked` ones go back to their queue. */
export type EventOutcome = 'recorded' | 'replayed' | 'locked' | 'failed' | ErrorCode

/**
 * A multi-project batch skips projects that are locked and so waits for none. A single-project batch waits for the lock of its
 * project, up to a timeout. So no two batches wait for each other, and a locked project delays no other. Where the database is
 * distributed, the projects of the first kind are on one shard.
 */
export type BatchKind = 'multi-project' | 'single-project'

/** A batch that has ended. */
export interface BatchSummary {
  kind: BatchKind
  /** How long each of its events has waited until it began, in milliseconds. */
  waits_ms: readonly number[]
  duration_ms: number
  outcomes: readonly EventOutcome[]
}

/** A batch that begins. */
export interface QueuedBatch {
  kind: BatchKind
  /** Each with the time when it came, in milliseconds of performance.now(). */
  events: readonly { queued_ms: number }[]
}

/** What a commit has added. */
export interface Additions {
  events: number
  contacts: number
  entries: number
  typeMismatches: readonly TypeMismatch[]
}

/** Is told of a recorder's work. It must not throw. */
export interface RecorderObserver {
  onBatch(batch: BatchSummary): void
  onCommit(added: Additions): void
  /** Events were refused, since too many waited or they had waited too long. */
  onOverload(events: number): void
  /** A transaction that lost a race is tried once more. */
  onRetry(): void
  /** An event begins to wait. Called where its caller's code runs; the batch has the same object. */
  onQueue?(event: object): void
  /** Runs work that is for no one request, wherever it is called. */
  detached?<Result>(work: () => Result): Result
  /** Runs what records a batch. */
  aroundBatch?<Outcomes extends readonly { status: string }[]>(
    batch: QueuedBatch,
    record: () => Promise<Outcomes>,
  ): Promise<Outcomes>
}

export const NO_OBSERVER: RecorderObserver = {
  onBatch: () => {},
  onCommit: () => {},
  onOverload: () => {},
  onRetry: () => {},
}
