/** Something that a read waits for, which it may stop. */
export interface Wait<Result> {
  ended: Promise<Result>
  cancel: () => void
}

/** The leave of a read to hold data in memory. */
export interface ReadLease {
  /**
   * Waits until the read may hold as many bytes, instead of those that it was admitted with.
   * @throws ApiError service_unavailable when that takes too long or the client is gone
   */
  extend(bytes: number): Promise<void>

  /**
   * Waits without holding anything, and then until the read may hold as many bytes. Stops the wait when the client goes.
   * @returns what the wait ends with
   * @throws ApiError service_unavailable when that takes too long or the client is gone
   */
  pause<Result>(wait: Wait<Result>, bytes: number): Promise<Result>
}
