import { AsyncLocalStorage } from 'node:async_hooks'
import {
  type Attributes,
  type Link,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  type SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api'

/** How much the clock of performance.now() may differ from the system's, which is adjusted while it runs. */
const MAX_DRIFT_ms = 10

interface SpanOptions {
  /** Times are milliseconds of performance.now(); without one, it begins now. */
  start_ms?: number
  kind?: SpanKind
  attributes?: Attributes
  links?: Link[]
}

/**
 * Makes the spans of one tracer, and knows which one the running code belongs to. Nothing is global, so that another
 * tracer in the process is never mixed up with it.
 */
export class Spans {
  readonly #tracer: Tracer
  readonly #current = new AsyncLocalStorage<Span | undefined>()
  /** The system's time at 0 of performance.now(). */
  #origin_ms = performance.timeOrigin

  constructor(tracer: Tracer) {
    this.#tracer = tracer
  }

  /** The span that the running code belongs to, unless it is not sampled or has ended. */
  get current(): Span | undefined {
    const span = this.#current.getStore()
    return span?.isRecording() ? span : undefined
  }

  /** Runs work, and what it starts, as belonging to the span, or to none. */
  run<Result>(span: Span | undefined, work: () => Result): Result {
    return this.#current.run(span, work)
  }

  /** @param parent a span of ours or of a caller's; without one, a trace begins */
  start(name: string, { start_ms = performance.now(), ...options }: SpanOptions, parent?: Span | SpanContext): Span {
    const isOurs = parent !== undefined && 'spanContext' in parent
    const context = isOurs ? parent.spanContext() : parent
    return this.#tracer.startSpan(
      name,
      { ...options, startTime: this.#timeAt(start_ms) },
      context ? trace.setSpanContext(ROOT_CONTEXT, { isRemote: !isOurs, ...context }) : ROOT_CONTEXT,
    )
  }

  /** @param attributes with `error.type` if it has failed */
  end(span: Span, attributes: Attributes = {}, end_ms = performance.now()): void {
    span.setAttributes(attributes)
    // Without the error's message, which may hold what is stored.
    if (attributes['error.type'] !== undefined) span.setStatus({ code: SpanStatusCode.ERROR })
    span.end(this.#timeAt(end_ms))
  }

  /** Makes a span, in the one that the running code belongs to if there is one, of what has just ended. */
  record(name: string, duration_ms: number, options: SpanOptions = {}, outcome: Attributes = {}): void {
    const parent = this.current
    if (!parent) return
    const end_ms = performance.now()
    this.end(this.start(name, { ...options, start_ms: end_ms - duration_ms }, parent), outcome, end_ms)
  }

  /** The system's time, but finer than that of Date.now(): some statements take less than its millisecond. */
  #timeAt(time_ms: number): number {
    // Read before and after, since the process may be paused between the two clocks: the drift is at least the one nearer to 0.
    const before_ms = performance.now()
    const now_ms = Date.now() - this.#origin_ms
    const drift_ms = Math.max(now_ms - performance.now(), Math.min(now_ms - before_ms, 0))
    if (Math.abs(drift_ms) > MAX_DRIFT_ms) this.#origin_ms += drift_ms
    return this.#origin_ms + time_ms
  }
}
