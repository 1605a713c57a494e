import { AggregatorRegistry, Counter, Gauge, type MetricObject, type Registry } from 'prom-client'

/** The metrics of a process, as prom-client sends them between processes. */
type ProcessMetrics = Awaited<ReturnType<Registry['getMetricsAsJSON']>>

export type CollectMetrics = () => Promise<ProcessMetrics>

/**
 * The metrics of several workers as those of one server (ADR 0029). What a worker said last is kept: it counts while the
 * worker does not respond, and its counters do for ever, since a total that shrinks would look like a restart.
 */
export class WorkerMetrics {
  readonly #own: Registry
  readonly #last = new Map<number, ProcessMetrics>()
  #ended: MetricObject[] = []

  /** @param own the metrics of this process */
  constructor(own: Registry) {
    this.#own = own
  }

  /** Takes what a worker says now. */
  update(worker: number, metrics: ProcessMetrics): void {
    this.#last.set(worker, metrics)
  }

  /** Keeps the counters of a worker that has ended. */
  end(worker: number): void {
    const counters = (this.#last.get(worker) ?? []).filter(({ type }) =>
      // prom-client has names in place of the numbers of its types.
      ['counter', 'histogram'].includes(type as unknown as string),
    )
    this.#ended = AggregatorRegistry.aggregate([this.#ended, counters]).getMetricsAsArray()
    this.#last.delete(worker)
  }

  /** All of them in the text format of Prometheus. */
  async text(): Promise<string> {
    const own = await this.#own.getMetricsAsJSON()
    return AggregatorRegistry.aggregate([own, this.#ended, ...this.#last.values()]).metrics()
  }
}

/** Registers how many of the workers serve, and how often one was replaced. */
export function measureWorkers(
  registry: Registry,
  workers: { states: { serving: number; missing: number }; replaced: number },
): void {
  const registers = [registry]
  new Gauge({
    name: 'flowtrail_workers',
    help: 'Workers that serve requests, and those missing, which are starting, could not start or do not respond.',
    labelNames: ['state'],
    registers,
    collect() {
      for (const [state, count] of Object.entries(workers.states)) this.set({ state }, count)
    },
  })
  new Counter({
    name: 'flowtrail_workers_replaced_total',
    help: 'Workers that ended and were replaced.',
    registers,
    collect() {
      this.reset()
      this.inc(workers.replaced)
    },
  })
}
