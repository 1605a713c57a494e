import type { CountRequest } from './rate-limit.ts'
import type { CollectMetrics } from './worker-metrics.ts'

/** What a process does together with the other workers of its server (ADR 0029). */
export interface Peers {
  /** Counts a request of a key, over all workers. */
  countRequest: CountRequest
  /**
   * Shares refusals of keys by client address.
   * @param onRefusal called with those by other workers
   * @returns what tells the others of one
   */
  shareRefusals: (onRefusal: (address: string) => void) => (address: string) => void
  /** Shares the metrics of this process. @returns what gets those of all, as text */
  shareMetrics: (collect: CollectMetrics) => () => Promise<string>
}
