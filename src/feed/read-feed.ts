import { type SizedRow, SMALL_ROW_bytes } from '../database/large-rows.ts'
import type { List } from '../database/list.ts'
import type { Database } from '../database/pool.ts'
import type { Page, PageQuery } from '../domain/cursor.ts'
import { invalidRequest, type ValidationIssue } from '../domain/errors.ts'
import type { ReadLease } from '../domain/read-lease.ts'
import { findLastPositions } from '../queries/events.ts'
import type { Feed, Followers } from './followers.ts'

/**
 * The most rows of a page that was waited for, so that a thousand followers of one event need little memory. What follows
 * is requested without waiting.
 */
const MAX_AWAITED_ROWS = 16

const EXCLUDES_CURSOR = 'cannot be combined with cursor, which says where the page begins; leave one of them out'

interface FeedRequest {
  path: { projectId: string }
  query: PageQuery & { after?: number; wait: number }
  lease: ReadLease
  /** Checks once more, after a wait, that the key gives access. */
  confirmKey: () => Promise<void>
}

interface Context {
  db: Database
  followers: Followers
}

type FeedList<Row> = List<Pick<FeedRequest, 'path' | 'query'>, readonly [number], Row>

/**
 * The page of a feed that a request asks for. Waits as long as it would be empty, if the request says so.
 * @throws ApiError invalid_request for parameters that exclude each other; service_unavailable when too many wait
 */
export async function readFeed<Row extends SizedRow>(
  feed: Feed,
  list: FeedList<Row>,
  request: FeedRequest,
  context: Context,
): Promise<Page<Row>> {
  checkPlace(request.query)
  const { path, query } = request
  const start = query.after === undefined ? undefined : ([query.after] as const)
  if (query.wait === 0) return list(context.db, request, start)
  const deadline_ms = performance.now() + query.wait * 1_000
  const empty = await list.empty(request, start)
  const leave = context.followers.enter(path.projectId)
  try {
    const [position] = (empty.after as readonly [number] | undefined) ?? [0]
    return (await awaitPage(feed, list, request, context, position, deadline_ms)) ?? empty
  } finally {
    leave()
  }
}

/** The first page with rows after the position, undefined if there is none until the deadline. */
async function awaitPage<Row extends SizedRow>(
  feed: Feed,
  list: FeedList<Row>,
  { path, query, lease, confirmKey }: FeedRequest,
  { db, followers }: Context,
  start: number,
  deadline_ms: number,
): Promise<Page<Row> | undefined> {
  const select = async (limit: number) => {
    await lease.begin(limit * SMALL_ROW_bytes)
    return list(db, { path, query: { ...query, limit }, lease }, [start])
  }
  const few = Math.min(query.limit, MAX_AWAITED_ROWS)
  let position = start
  let lastPosition = (await findLastPositions(db, path.projectId))?.[feed] ?? undefined
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
    lastPosition = await lease.pause(followers.wait(feed, path.projectId, position, deadline_ms - performance.now()))
    if (lastPosition === undefined) return undefined
    await confirmKey()
  }
}

/** @throws ApiError invalid_request for parameters that exclude each other */
function checkPlace({ after, cursor, direction, wait }: FeedRequest['query']): void {
  const needsAscending = 'is only possible with direction=ASC'
  const isDescending = direction === 'DESC'
  const issues: ValidationIssue[] = []
  if (after !== undefined && isDescending) issues.push({ pointer: '/query/after', message: needsAscending })
  else if (after !== undefined && cursor !== undefined)
    issues.push({ pointer: '/query/after', message: EXCLUDES_CURSOR })
  if (wait > 0 && isDescending) issues.push({ pointer: '/query/wait', message: needsAscending })
  if (issues.length > 0) throw invalidRequest(issues)
}
