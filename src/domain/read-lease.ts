/** The leave of a read to hold data in memory. */
export interface ReadLease {
  /**
   * Waits until the read may hold as many bytes, instead of those that it was admitted with.
   * @throws ApiError service_unavailable when that takes too long or the client is gone
   */
  extend(bytes: number): Promise<void>
}
