import { SMALL_ROW_bytes } from '../database/large-rows.ts'
import type { Page } from '../domain/cursor.ts'
import { invalidRequest } from '../domain/errors.ts'
import { projectEvent } from '../feed/event-records.ts'
import type { Handler, OperationRequest } from '../http/operations.ts'
import { selectFeedPage } from '../queries/events.ts'
import { parseCustomEvent } from '../recording/custom-event.ts'
import type { Context } from './context.ts'

/**
 * The most events of a page that was waited for, so that a thousand followers of one event need little memory. What follows
 * is requested without waiting.
 */
const MAX_AWAITED_EVENTS = 16

const EXCLUDES_CURSOR = 'cannot be combined with cursor, which says where the page begins; leave one of them out'

type FeedRequest = OperationRequest<'listProjectEvents'>

export const listProjectEvents: Handler<'listProjectEvents', Context> = async (request, context) => {
  checkPlace(request.query)
  const { after } = request.query
  const start = after === undefined ? undefined : ([after] as const)
  const select = (limit: number) =>
    selectFeedPage(context.db, { ...request, query: { ...request.query, limit } }, start)
  const { limit, wait } = request.query
  const first = await select(limit)
  const isAwaited = first.rows.length === 0 && wait > 0
  const selectAwaited = () => select(Math.min(limit, MAX_AWAITED_EVENTS))
  const page = isAwaited ? await waitForEvents(request, context, first, selectAwaited) : first
  return page.map(projectEvent)
}

/** Waits until the page has events, or as long as the request allows; the page is empty then. */
async function waitForEvents<Row>(
  { path, query, lease }: FeedRequest,
  { followers }: Context,
  empty: Page<Row>,
  select: () => Promise<Page<Row>>,
): Promise<Page<Row>> {
  const deadline_ms = performance.now() + query.wait * 1_000
  let [position] = (empty.after ?? [0]) as [number]
  for (;;) {
    const wait = followers.wait(path.projectId, position, deadline_ms - performance.now())
    const lastPosition = await lease.pause(wait, MAX_AWAITED_EVENTS * SMALL_ROW_bytes)
    if (lastPosition === undefined) return empty
    const page = await select()
    // What came may have been erased already.
    if (page.rows.length > 0) return page
    position = lastPosition
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

export const recordCustomEvent: Handler<'recordCustomEvent', Context> = ({ path, headers, body }, { recorder }) =>
  recorder.record(path.projectId, parseCustomEvent(body, new Date()), headers['Idempotency-Key'])
