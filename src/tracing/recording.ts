import type { Span } from '@opentelemetry/api'
import type { RecorderObserver } from '../recording/observer.ts'
import type { Spans } from './spans.ts'

/** The events of a request in a batch. */
interface Share {
  queued_ms: number
  events: number
}

/**
 * Makes the part of a recorder's observer that traces it. A batch has one span, whose statements are its children. It
 * serves many requests, so it is linked to all that are recorded, and a child of the first, so that a sampler takes it
 * whenever it takes one of them. Each of them has a span of its wait in the queue, which is linked to the batch.
 */
export function traceRecording(spans: Spans): Required<Pick<RecorderObserver, 'onQueue' | 'detached' | 'aroundBatch'>> {
  const requests = new WeakMap<object, Span>()
  // Not in the span of the request whose batch came before, of which this is run.
  const detached = <Result>(work: () => Result): Result => spans.run(undefined, work)
  return {
    detached,
    onQueue(event) {
      const request = spans.current
      if (request) requests.set(event, request)
    },
    async aroundBatch({ kind, events }, record) {
      const shares = new Map<Span, Share>()
      for (const event of events) {
        const request = requests.get(event)
        if (!request) continue
        const { queued_ms, events: others } = shares.get(request) ?? { queued_ms: event.queued_ms, events: 0 }
        shares.set(request, { queued_ms, events: others + 1 })
      }
      const [first] = shares.keys()
      if (!first) return detached(record)
      const now_ms = performance.now()
      const links = [...shares.keys()].map((request) => ({ context: request.spanContext() }))
      const attributes = { 'flowtrail.batch.kind': kind, 'flowtrail.events': events.length }
      const batch = spans.start('record batch', { start_ms: now_ms, links, attributes }, first)
      for (const [request, { queued_ms, events }] of shares) {
        const queue = spans.start(
          'queue',
          {
            start_ms: queued_ms,
            links: [{ context: batch.spanContext() }],
            attributes: { 'flowtrail.events': events },
          },
          request,
        )
        spans.end(queue, {}, now_ms)
      }
      const outcomes = await spans.run(batch, record)
      spans.end(batch, outcomes.some(({ status }) => status === 'failed') ? { 'error.type': 'failed' } : {})
      return outcomes
    },
  }
}
