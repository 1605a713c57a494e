import { hostname } from 'node:os'
import { DiagLogLevel, diag } from '@opentelemetry/api'
import { OTLPTraceExporter as JsonExporter } from '@opentelemetry/exporter-trace-otlp-http'
import { OTLPTraceExporter as ProtobufExporter } from '@opentelemetry/exporter-trace-otlp-proto'
import { defaultResource, resourceFromAttributes } from '@opentelemetry/resources'
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  ParentBasedSampler,
  type Sampler,
  type SpanExporter,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace'
import type { FastifyBaseLogger, FastifyInstance } from 'fastify'
import type { TracingOptions } from '../config.ts'
import type { RecorderObserver } from '../recording/observer.ts'
import type { Release } from '../release.ts'
import { traceQueries } from './queries.ts'
import { traceReads } from './reads.ts'
import { traceRecording } from './recording.ts'
import { traceRequests } from './requests.ts'
import { Spans } from './spans.ts'

/** What traces a server. Its module, and OpenTelemetry with it, is loaded only when traces are exported. */
export interface Tracing {
  /** Traces the requests of an app from now on. */
  traceRequests: (app: FastifyInstance) => void
  /** The part of a recorder's observer that traces it. */
  recording: Required<Pick<RecorderObserver, 'onQueue' | 'detached' | 'aroundBatch'>>
  /** Exports what is not exported yet, or gives up in the time of the exporter's timeout. Never rejects. */
  stop: () => Promise<void>
}

type Log = Pick<FastifyBaseLogger, 'info' | 'warn'>

/** Starts to export traces; queries are traced from now on. */
export function startTracing(options: TracingOptions, release: Pick<Release, 'version'>, log: Log): Tracing {
  const { delay_ms, timeout_ms, maxQueuedSpans, maxExportedSpans } = options.collector
  const processor = new BatchSpanProcessor({
    exporter: reportFailures(createExporter(options.exporter), log),
    scheduledDelayMillis: delay_ms,
    exportTimeoutMillis: timeout_ms,
    maxQueueSize: maxQueuedSpans,
    maxExportBatchSize: maxExportedSpans,
  })
  const provider = new TracerProvider({
    sampler: createSampler(options),
    // BATCH_SIZE bounds them.
    spanLimits: { linkCountLimit: Number.MAX_SAFE_INTEGER },
    spanProcessors: [processor],
    resource: defaultResource().merge(
      resourceFromAttributes({
        'service.name': 'flowtrail',
        'service.version': release.version,
        'host.name': hostname(),
        'process.pid': process.pid,
        ...options.resource,
      }),
    ),
  })
  const spans = new Spans(provider.getTracer('flowtrail', release.version))
  const ends = [traceQueries(spans), traceReads(spans), reportDrops(log)]
  return {
    traceRequests: (app) => traceRequests(app, spans),
    recording: traceRecording(spans),
    async stop() {
      for (const end of ends) end()
      // A failure has been reported.
      await provider.shutdown().catch(() => {})
    },
  }
}

function createExporter({ protocol, url, headers, timeout_ms, compression }: TracingOptions['exporter']): SpanExporter {
  const Exporter = protocol === 'http/json' ? JsonExporter : ProtobufExporter
  return new Exporter({ url, headers, timeoutMillis: timeout_ms, compression: compression as never })
}

function createSampler({ sampler, samplerRatio }: TracingOptions): Sampler {
  const [, isParentBased, name] = /^(parentbased_)?(.*)$/.exec(sampler) ?? []
  const root =
    name === 'traceidratio'
      ? new TraceIdRatioBasedSampler(samplerRatio)
      : name === 'always_off'
        ? new AlwaysOffSampler()
        : new AlwaysOnSampler()
  return isParentBased ? new ParentBasedSampler({ root }) : root
}

/** Logs a line when spans cannot be exported any more, and one when they can again. */
function reportFailures(exporter: SpanExporter, log: Log): SpanExporter {
  let hasFailed = false
  return {
    export(spans, done) {
      exporter.export(spans, (result) => {
        if (result.error && !hasFailed) {
          log.warn(
            { reason: result.error.message },
            'traces are lost: they cannot be exported to OTEL_EXPORTER_OTLP_ENDPOINT',
          )
        } else if (!result.error && hasFailed) log.info('traces are exported again')
        hasFailed = result.error !== undefined
        done(result)
      })
    },
    shutdown: () => exporter.shutdown(),
  }
}

const REPORT_INTERVAL_ms = 60_000

/**
 * Logs, at most once a minute, that spans have found no place in the queue, which the SDK says to its own log alone.
 * @returns what ends that
 */
function reportDrops(log: Log): () => void {
  let next_ms = 0
  let lost = 0
  const warn = (message: string) => {
    lost += Number(/^Dropped (\d+) spans/.exec(message)?.[1] ?? 0)
    const now_ms = performance.now()
    if (lost === 0 || now_ms < next_ms) return
    log.warn({ spans: lost }, 'traces are lost: the queue of spans was full')
    next_ms = now_ms + REPORT_INTERVAL_ms
    lost = 0
  }
  const ignore = () => {}
  const logger = { error: ignore, warn, info: ignore, debug: ignore, verbose: ignore }
  diag.setLogger(logger, { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true })
  return () => diag.disable()
}
