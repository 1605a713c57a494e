/** Something that a read waits for, which it may stop. */
export interface Wait<Result> {
  ended: Promise<Result>
  cancel: () => void
}

/** A read's permission to hold data in memory. */
export interface ReadLease {
  /**
   * Waits until the read may hold this many bytes, instead of those it was admitted with, for large values.
   * @throws ApiError service_unavailable when that takes too long or the client is gone; Error for more than a string can hold
   */
  extend(bytes: number): Promise<void>

  /**
   * Waits until a read that holds nothing yet, has paused, or has sent what it held may hold this many bytes.
   * @throws ApiError service_unavailable when that takes too long or the client is gone
   */
  begin(bytes: number): Promise<void>

  /** Waits for something without holding anything; a client that goes cancels it. @returns what the wait ends with */
  pause<Result>(wait: Wait<Result>): Promise<Result>
}
