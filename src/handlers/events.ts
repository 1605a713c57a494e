import type { components } from '../../generated/api.ts'
import { SMALL_ROW_bytes } from '../database/large-rows.ts'
import { ApiError, invalidRequest } from '../domain/errors.ts'
import { Turns } from '../domain/turns.ts'
import { projectEvent } from '../feed/event-records.ts'
import type { Handler, OperationRequest } from '../http/operations.ts'
import { findLastPosition, selectFeedPage } from '../queries/events.ts'
import type { Recorded } from '../recording/batch.ts'
import { parseCustomEvent } from '../recording/custom-event.ts'
import type { Context } from './context.ts'

/**
 * The most events of a page that was waited for, so that a thousand followers of one event need little memory. What follows
 * is requested without waiting.
 */
const MAX_AWAITED_EVENTS = 16

const HEADER = 'Idempotency-Key'
const NOT_FOR_BATCHES = 'is for single events; give each event of a batch its own idempotency_key'
const EXCLUDES_CURSOR = 'cannot be combined with cursor, which says where the page begins; leave one of them out'

type CustomEventBatchItem = components['schemas']['CustomEventBatchItem']
type FeedRequest = OperationRequest<'listProjectEvents'>

export const listProjectEvents: Handler<'listProjectEvents', Context> = async (request, context) => {
  checkPlace(request.query)
  const { after, wait } = request.query
  const start = after === undefined ? undefined : ([after] as const)
  const page = await (wait > 0 ? follow(request, context, start) : selectFeedPage(context.db, request, start))
  return page.map(projectEvent)
}

/** The page of a request that waits as long as it would be empty. */
async function follow(request: FeedRequest, context: Context, start: readonly [number] | undefined) {
  const { path, query } = request
  const deadline_ms = performance.now() + query.wait * 1_000
  const empty = await selectFeedPage.empty(request, start)
  const leave = context.followers.enter(path.projectId)
  try {
    return (await awaitPage(request, context, empty.after as readonly [number] | undefined, deadline_ms)) ?? empty
  } finally {
    leave()
  }
}

/** The first page with events after the key, undefined if there is none until the deadline. */
async function awaitPage(
  { path, query, lease, confirmKey }: FeedRequest,
  { db, followers }: Context,
  start: readonly [number] | undefined,
  deadline_ms: number,
) {
  const select = async (limit: number) => {
    await lease.begin(limit * SMALL_ROW_bytes)
    return selectFeedPage(db, { path, query: { ...query, limit }, lease }, start)
  }
  const few = Math.min(query.limit, MAX_AWAITED_EVENTS)
  let [position] = start ?? [0]
  let lastPosition = (await findLastPosition(db, path.projectId))?.position ?? undefined
  for (let hasWaited = false; ; hasWaited = true) {
    if (lastPosition !== undefined && lastPosition > position) {
      const page = await select(few)
      // What came may have been erased already.
      if (page.rows.length > 0) {
        const isBehind = !hasWaited && page.rows.length === few && few < query.limit
        return isBehind ? select(query.limit) : page
      }
      position = lastPosition
    }
    lastPosition = await lease.pause(followers.wait(path.projectId, position, deadline_ms - performance.now()))
    if (lastPosition === undefined) return undefined
    await confirmKey()
  }
}

/** @throws ApiError invalid_request for parameters that exclude each other */
function checkPlace({ after, cursor, direction, wait }: FeedRequest['query']): void {
  const needsAscending = 'is only possible with direction=ASC'
  const isDescending = direction === 'DESC'
  const issues = [
    ...(after !== undefined && cursor !== undefined ? [{ pointer: '/query/after', message: EXCLUDES_CURSOR }] : []),
    ...(after !== undefined && isDescending ? [{ pointer: '/query/after', message: needsAscending }] : []),
    ...(wait > 0 && isDescending ? [{ pointer: '/query/wait', message: needsAscending }] : []),
  ]
  if (issues.length > 0) throw invalidRequest(issues)
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
