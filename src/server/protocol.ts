import type { Config } from '../config.ts'
import type { RequestCount } from '../http/rate-limit.ts'
import type { CollectMetrics } from '../http/worker-metrics.ts'

/** What a worker serves. */
export interface Assignment {
  /** From 1 on; the number of a worker that has ended goes to the one in its place. */
  worker: number
  config: Config
  databaseUrl: string
  demoKeyFile: string | undefined
}

/** What the supervisor calls in a worker. */
export type WorkerFunctions = {
  start: (assignment: Assignment) => void
  stop: () => void
  onRefusal: (address: string) => void
  ping: () => void
  collectMetrics: CollectMetrics
}

/** What a worker calls in the supervisor. */
export type SupervisorFunctions = {
  onListening: (url: string) => void
  onFailure: (message: string) => void
  countRequests: (keyIds: string[]) => Promise<RequestCount[]>
  shareRefusal: (address: string) => void
  metrics: () => Promise<string>
}
