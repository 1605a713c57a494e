import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { FastifyInstance } from 'fastify'
import {
  type Aggregator,
  Counter,
  type CounterConfiguration,
  collectDefaultMetrics,
  Gauge,
  Histogram,
  Registry,
} from 'prom-client'
import type { components } from '../../generated/api.ts'
import type { ReadReplicas } from '../database/replicas.ts'
import { QUERY_CHANNEL, type QueryTiming } from '../database/timed-query.ts'
import type { TypeMismatch } from '../domain/identifier.ts'
import type { RecorderObserver } from '../recording/observer.ts'
import type { Release } from '../release.ts'
import type { ApiKeyCache } from './api-key-cache.ts'
import { operationOf } from './operation-of.ts'
import type { ReadGate } from './read-gate.ts'
import { onRequestEnd } from './request-end.ts'

// The service's metrics, named by the conventions of Prometheus. No label is a project, a key or a text of a client's, so
// that the number of series is bounded.

/** From a look-up by id to the longest wait for events. */
const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]
const EVENTS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_000]
/** PostgreSQL adds up the sizes of all files of the database. */
const SIZE_INTERVAL_ms = 60_000
/** Less than the interval of any monitor. */
const PING_TIMEOUT_ms = 2_000

/** How metrics of Node and the process are combined over several processes, where prom-client's way would mislead. */
const AGGREGATORS: [names: RegExp, aggregator: Aggregator][] = [
  [/^process_start_time_seconds$/, 'min'],
  // Left out by prom-client, or its average, in which a process that is blocked hardly shows.
  [/^nodejs_eventloop_lag_(?!min_)/, 'max'],
]

/**
 * The metrics of Node and the process, which all registries share. prom-client never stops collecting them, and what
 * collects them holds the registry that they were made for: made for that of an app, they would keep a closed app.
 */
let processMetrics: Registry | undefined

function measureProcess(): Registry {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  for (const metric of registry.getMetricsAsArray()) {
    const [, aggregator = metric.aggregator] = AGGREGATORS.find(([names]) => names.test(metric.name)) ?? []
    metric.aggregator = aggregator
  }
  return registry
}

/** A registry with the metrics of the process and of the release. */
export function createRegistry({ version, document, commit }: Release): Registry {
  processMetrics ??= measureProcess()
  const registry = Registry.merge([processMetrics])
  const info = new Gauge({
    name: 'flowtrail_build_info',
    help: 'Always 1; the labels tell the release.',
    labelNames: ['version', 'document', 'commit', 'node'],
    aggregator: 'first',
    registers: [registry],
  })
  info.set({ version, document, commit, node: process.version }, 1)
  return registry
}

/** Measures the requests of an app without routes by their operation, and counts defects. */
export function measureRequests(app: FastifyInstance, registry: Registry): void {
  const durations = new Histogram({
    name: 'flowtrail_request_duration_seconds',
    help: 'Time from the head of a request to the end of its response, or until it was cut off, in seconds.',
    labelNames: ['operation', 'method', 'status', 'error_code'],
    buckets: SECONDS,
    registers: [registry],
  })
  onRequestEnd(app, (request, reply, end) => {
    const labels = {
      operation: operationOf(request),
      method: request.method,
      status: end === 'cut' ? 'cut' : reply.statusCode,
      error_code: request.facts.errorCode ?? '',
    }
    durations.observe(labels, reply.elapsedTime / 1000)
  })
  const defects = new Counter({
    name: 'flowtrail_defects_total',
    help: 'Requests that failed because of a defect, or of which a part did: events of a batch, or the rest of a list.',
    labelNames: ['operation'],
    registers: [registry],
  })
  // From 0 on, so that the first defect is an increase.
  app.addHook('onRoute', (routeOptions) => defects.inc({ operation: operationOf({ routeOptions } as never) }, 0))
  app.decorate('onDefect', (request) => defects.inc({ operation: operationOf(request) }))
}

/** Registers the metrics of what the gate does. */
export function measureReads(registry: Registry, gate: ReadGate): void {
  const { gauge, counter } = metricsOf(registry)
  counter(
    'flowtrail_reads_total',
    'Reads that were admitted, refused, or cancelled by their client while they waited; reads of large values twice, and a list without pages for each of its parts.',
    'outcome',
    () => {
      const { admitted, refused, cancelled } = gate.counts
      return { admitted, refused, cancelled }
    },
  )
  counter(
    'flowtrail_stalled_clients_total',
    'Clients that were disconnected because they did not read their response.',
    undefined,
    () => gate.counts.cut,
  )
  gauge('flowtrail_reads_under_way', 'Reads whose response is not ready yet.', () => gate.usage.reads)
  gauge('flowtrail_reads_waiting', 'Reads that wait to be admitted.', () => gate.usage.waiting)
  gauge('flowtrail_unsent_bytes', 'Bytes of responses that clients have not taken yet.', () => gate.usage.unsent_bytes)
}

/** Registers the metrics of the requests that wait for events. */
export function measureFollowers(registry: Registry, followers: { count: number }): void {
  metricsOf(registry).gauge('flowtrail_feed_followers', 'Requests that wait for events.', () => followers.count)
}

/** Registers how often a key's check needs no query. */
export function measureKeyCache(registry: Registry, cache: Pick<ApiKeyCache<unknown>, 'counts'>): void {
  metricsOf(registry).counter(
    'flowtrail_key_lookups_total',
    'Checks of API keys that the cache served (hit) or that needed a query (miss).',
    'result',
    () => cache.counts,
  )
}

/** Registers which replicas are in use, and what they serve; without any there is nothing of them. */
export function measureReplicas(registry: Registry, replicas: ReadReplicas | undefined): void {
  const { labelledGauge, counter } = metricsOf(registry)
  const byName = (value: (replica: ReadReplicas['usage'][number]) => number) => () =>
    Object.fromEntries((replicas?.usage ?? []).map((replica) => [replica.name, value(replica)]))
  labelledGauge(
    'flowtrail_replica_usable',
    'Whether reads are sent to a replica: 1 if they are, else 0. Of several workers, the least.',
    { label: 'replica', aggregator: 'min' },
    byName(({ isUsable }) => Number(isUsable)),
  )
  labelledGauge(
    'flowtrail_replica_lag_seconds',
    'How long ago the last commit was that a replica is known to have everything before. Of several workers, the most.',
    { label: 'replica', aggregator: 'max' },
    byName(({ lag_s }) => lag_s),
  )
  counter(
    'flowtrail_server_reads_total',
    'Reads by the server that they were sent to: a replica, or the primary server where no replica could serve them.',
    'server',
    () => (replicas ? { primary: replicas.primaryReads, ...byName(({ reads }) => reads)() } : {}),
  )
  counter(
    'flowtrail_replica_fallbacks_total',
    'Queries that failed on a replica and were run on the primary server.',
    'replica',
    byName(({ fallbacks }) => fallbacks),
  )
}

/** Registers what waits to be recorded. */
export function measureQueue(registry: Registry, recorder: { pending: { events: number; projects: number } }): void {
  const { gauge } = metricsOf(registry)
  gauge('flowtrail_pending_events', 'Events that are queued or being recorded.', () => recorder.pending.events)
  gauge('flowtrail_pending_projects', 'Projects with such events.', () => recorder.pending.projects)
}

/** Registers how many Idempotency-Keys were deleted for their age. */
export function measurePruning(registry: Registry, deleted: () => number): void {
  const name = 'flowtrail_idempotency_keys_deleted_total'
  metricsOf(registry).counter(name, 'Idempotency-Keys that were deleted for their age.', undefined, deleted)
}

/** Registers the metrics of recording, and makes the observer that counts them. */
export function measureRecording(
  registry: Registry,
  onTypeMismatch: (mismatch: TypeMismatch) => void,
): RecorderObserver {
  const registers = [registry]
  const sizes = new Histogram({
    name: 'flowtrail_batch_events',
    help: 'Events in a transaction.',
    labelNames: ['kind'],
    buckets: EVENTS,
    registers,
  })
  const durations = new Histogram({
    name: 'flowtrail_batch_duration_seconds',
    help: 'Time to record a batch of events, commit included, in seconds.',
    labelNames: ['kind'],
    buckets: SECONDS,
    registers,
  })
  const waits = new Histogram({
    name: 'flowtrail_queue_wait_seconds',
    help: 'Time that an event was queued until its batch began, in seconds.',
    buckets: SECONDS,
    registers,
  })
  const outcomes = new Counter({
    name: 'flowtrail_events_total',
    help: 'Posted events by what became of them: recorded, replayed, locked (queued again), failed, or an error code.',
    labelNames: ['outcome'],
    registers,
  })
  const retries = new Counter({
    name: 'flowtrail_batch_retries_total',
    help: 'Batches that were tried once more, since they had lost a race in the database.',
    registers,
  })
  const added = new Counter({
    name: 'flowtrail_rows_recorded_total',
    help: 'Rows that recording has added: events, and the contacts and entries that these began.',
    labelNames: ['table'],
    registers,
  })
  return {
    onBatch({ kind, waits_ms, duration_ms, outcomes: all }) {
      sizes.observe({ kind }, all.length)
      durations.observe({ kind }, duration_ms / 1000)
      for (const wait_ms of waits_ms) waits.observe(wait_ms / 1000)
      for (const [outcome, { length }] of Map.groupBy(all, (one) => one)) outcomes.inc({ outcome }, length)
    },
    onCommit({ events, contacts, entries, typeMismatches }) {
      for (const [table, rows] of Object.entries({ events, contacts, entries })) added.inc({ table }, rows)
      for (const mismatch of typeMismatches) onTypeMismatch(mismatch)
    },
    onOverload: (events) => outcomes.inc({ outcome: 'service_unavailable' }, events),
    onRetry: () => retries.inc(),
  }
}

/** Registers the metric of imports over HTTP, and makes what counts one. */
export function measureImports(registry: Registry): (result: components['schemas']['ImportResult']) => void {
  const records = new Counter({
    name: 'flowtrail_import_records_total',
    help: 'Records of imports over HTTP, by whether they were added, changed or unchanged.',
    labelNames: ['outcome'],
    registers: [registry],
  })
  return ({ added, changed, unchanged }) => {
    for (const [outcome, count] of Object.entries({ added, changed, unchanged })) records.inc({ outcome }, count)
  }
}

/** What is measured of a pool of connections. */
interface Pool {
  totalCount: number
  idleCount: number
  waitingCount: number
}

/** Registers the connections of pools by name, and who waits for one. */
export function measurePools(registry: Registry, pools: Record<string, Pool>): void {
  const connections = new Gauge({
    name: 'flowtrail_database_connections',
    help: 'Open connections to the database.',
    labelNames: ['pool', 'state'],
    registers: [registry],
    collect() {
      for (const [pool, { totalCount, idleCount }] of Object.entries(pools)) {
        connections.set({ pool, state: 'idle' }, idleCount)
        connections.set({ pool, state: 'used' }, totalCount - idleCount)
      }
    },
  })
  const waiting = new Gauge({
    name: 'flowtrail_database_connection_waits',
    help: 'Transactions that wait for a connection.',
    labelNames: ['pool'],
    registers: [registry],
    collect() {
      for (const [pool, { waitingCount }] of Object.entries(pools)) waiting.set({ pool }, waitingCount)
    },
  })
}

/** Registers how long statements take, from now until the app closes. */
export function measureQueries(registry: Registry, app: FastifyInstance): void {
  const durations = new Histogram({
    name: 'flowtrail_query_duration_seconds',
    help: 'Time from sending a statement to its result, behind those sent before it on its connection, in seconds.',
    labelNames: ['query'],
    buckets: SECONDS,
    registers: [registry],
  })
  const observe = (timing: unknown) => {
    const { query, duration_ms } = timing as QueryTiming
    durations.observe({ query }, duration_ms / 1000)
  }
  subscribe(QUERY_CHANNEL, observe)
  app.addHook('onClose', async () => void unsubscribe(QUERY_CHANNEL, observe))
}

/** Registers the connections of clients, and how many were refused. */
export function measureConnections(
  registry: Registry,
  connections: { count: () => Promise<number>; dropped: () => number },
): void {
  const { gauge, counter } = metricsOf(registry)
  gauge('flowtrail_client_connections', 'Open connections of clients.', connections.count)
  counter(
    'flowtrail_connections_dropped_total',
    'Connections that were closed at once, since there were as many as allowed.',
    undefined,
    connections.dropped,
  )
}

/**
 * Registers whether the database responds, which each collection asks anew, without waiting for it; left out while it is unknown.
 *
 * @param ping rejects when the database is unavailable
 */
export function measureAvailability(registry: Registry, ping: () => Promise<void>): void {
  const gauge = new Gauge({
    name: 'flowtrail_database_up',
    help: 'Whether the database has responded when it was last asked: 1 if it has, else 0. Of several workers, the least.',
    aggregator: 'min',
    registers: [registry],
    collect() {
      const timer = setTimeout(() => gauge.set(0), PING_TIMEOUT_ms).unref()
      ping()
        .then(
          () => gauge.set(1),
          () => gauge.set(0),
        )
        .finally(() => clearTimeout(timer))
    },
  })
  gauge.remove()
}

/**
 * Registers the size of the database, which each collection asks for anew if it is a minute old, without waiting for it;
 * left out while it is unknown.
 */
export function measureDatabase(registry: Registry, size_bytes: () => Promise<number>): void {
  let next_ms = 0
  const refresh = () =>
    size_bytes().then(
      (bytes) => gauge.set(bytes),
      () => gauge.remove(),
    )
  const gauge = new Gauge({
    name: 'flowtrail_database_size_bytes',
    help: 'Size of the database on disk, without the write-ahead log.',
    aggregator: 'max',
    registers: [registry],
    collect() {
      if (performance.now() < next_ms) return
      next_ms = performance.now() + SIZE_INTERVAL_ms
      void refresh()
    },
  })
  gauge.remove()
}

/** Makes metrics whose value is read when they are collected. */
function metricsOf(registry: Registry) {
  const registers = [registry]
  return {
    gauge(name: string, help: string, value: () => number | Promise<number>): void {
      new Gauge({
        name,
        help,
        registers,
        async collect() {
          this.set(await value())
        },
      })
    },
    labelledGauge(
      name: string,
      help: string,
      { label, aggregator }: { label: string; aggregator: 'min' | 'max' },
      values: () => Record<string, number>,
    ): void {
      new Gauge({
        name,
        help,
        aggregator,
        registers,
        labelNames: [label],
        collect() {
          for (const [of, value] of Object.entries(values())) this.set({ [label]: of }, value)
        },
      })
    },
    counter<Label extends string | undefined>(
      name: string,
      help: string,
      label: Label,
      value: () => Label extends string ? Record<string, number> : number,
    ): void {
      new Counter({
        name,
        help,
        registers,
        ...(label && { labelNames: [label] }),
        collect() {
          this.reset()
          const counts = value()
          if (typeof counts === 'number') this.inc(counts)
          else for (const [name, count] of Object.entries(counts)) this.inc({ [label as string]: name }, count)
        },
      } as CounterConfiguration<string>)
    },
  }
}
