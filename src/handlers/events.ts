import type { components } from '../../generated/api.ts'
import { ApiError, invalidRequest } from '../domain/errors.ts'
import { Turns } from '../domain/turns.ts'
import { projectEvent } from '../feed/event-records.ts'
import { readFeed } from '../feed/read-feed.ts'
import type { Handler } from '../http/operations.ts'
import { selectFeedPage } from '../queries/events.ts'
import type { Recorded } from '../recording/batch.ts'
import { parseCustomEvent } from '../recording/custom-event.ts'
import type { Context } from './context.ts'

const HEADER = 'Idempotency-Key'
const NOT_FOR_BATCHES = 'is for single events; give each event of a batch its own idempotency_key'

type CustomEventBatchItem = components['schemas']['CustomEventBatchItem']

export const listProjectEvents: Handler<'listProjectEvents', Context> = async (request, context) => {
  const page = await readFeed('events', selectFeedPage, request, context)
  return page.map(projectEvent)
}

export const recordCustomEvents: Handler<'recordCustomEvents', Context> = async (request, { recorder }) => {
  const { path, headers, body } = request
  const { 'idempotency-key': key }: Record<string, unknown> = headers
  if (key !== undefined) throw invalidRequest([{ pointer: `/headers/${HEADER}`, message: NOT_FOR_BATCHES }])
  const now = new Date()
  const record = async (event: CustomEventBatchItem | ApiError, i: number) => {
    if (event instanceof ApiError) throw event
    const item = `/body/events/${i}`
    const parsed = parseCustomEvent(event, now, item)
    return recorder.record(path.projectId, parsed, event.idempotency_key, true).catch((error: unknown) => {
      if (!(error instanceof ApiError)) throw error
      throw error.withPointers((pointer) =>
        pointer === `/headers/${HEADER}` ? `${item}/idempotency_key` : pointer.replace('/body', item),
      )
    })
  }
  const recording: Promise<PromiseSettledResult<Recorded>[]>[] = []
  const turns = new Turns()
  for (const [i, event] of body.events.entries()) {
    await turns.next()
    // Settled one by one, since one may fail before the next begins.
    recording.push(Promise.allSettled([record(event, i)]))
  }
  return { settled: (await Promise.all(recording)).flat() }
}

export const recordCustomEvent: Handler<'recordCustomEvent', Context> = ({ path, headers, body }, { recorder }) =>
  recorder.record(path.projectId, parseCustomEvent(body, new Date()), headers['Idempotency-Key'])
