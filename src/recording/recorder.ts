import { createHash } from 'node:crypto'
import { v7 as uuidv7 } from 'uuid'
import type { Database } from '../../db/connection.ts'
import { isRetryable } from '../../db/failures.ts'
import type { components } from '../../generated/api.ts'
import { idempotencyKeyReused, moduleDoesNotExist, serviceUnavailable } from '../errors.ts'
import { CUSTOM_EVENT } from '../event.ts'
import { findEntryInEffect, insertEntry } from '../queries/entries.ts'
import { findFurthestPage, insertEvent } from '../queries/events.ts'
import { findIdempotencyKey, insertIdempotencyKey } from '../queries/idempotency.ts'
import { findModuleInEffect } from '../queries/modules.ts'
import { lockProject } from '../queries/projects.ts'
import { identifyContact } from './identify.ts'
import type { ParsedEvent } from './parse.ts'
import { SerialQueue } from './serial-queue.ts'

export type CustomEventResult = components['schemas']['CustomEventResult']

/** The answer to a post; `replayed` when it is a stored one, given again. */
export interface Recorded {
  body: CustomEventResult
  replayed: boolean
}

const MAX_TRIES = 5

export interface RecorderLimits {
  /** How many events may be under way or wait for their turn, over all projects, before more are turned away. */
  maxWaiting?: number
  /** How long an event may wait for its turn, in milliseconds; its caller has given up by then, or tries elsewhere. */
  maxWait_ms?: number
}

/**
 * Records custom events. Each is one transaction that holds its project's row, so the outcome is always that of the
 * posts one after another, also with several processes on one database.
 */
export class Recorder {
  readonly #db: Database
  readonly #queue: SerialQueue
  readonly #maxWait_ms: number

  /** @param db connections of the recorder's own, so that waiting writers never keep readers from theirs */
  constructor(db: Database, { maxWaiting = 2_000, maxWait_ms = 10_000 }: RecorderLimits = {}) {
    this.#db = db
    this.#queue = new SerialQueue(maxWaiting)
    this.#maxWait_ms = maxWait_ms
  }

  /**
   * Records the event and resolves once it is committed; with an idempotency key that was used for the same event,
   * resolves to the stored answer.
   *
   * @throws ApiError module_does_not_exist, identifier_conflict, idempotency_key_reused; service_unavailable when too
   * many wait or this one waited too long. What the database answers to a transaction that lost against others too
   * often
   */
  async record(projectId: string, event: ParsedEvent, idempotencyKey?: string): Promise<Recorded> {
    const latest = performance.now() + this.#maxWait_ms
    const turn = this.#queue.run(projectId, async () => {
      if (performance.now() > latest) throw serviceUnavailable()
      return this.#commit(projectId, event, idempotencyKey)
    })
    if (!turn) throw serviceUnavailable()
    return turn
  }

  async #commit(projectId: string, event: ParsedEvent, idempotencyKey: string | undefined): Promise<Recorded> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#db.transaction().execute((trx) => recordIn(trx, projectId, event, idempotencyKey))
      } catch (error) {
        if (!isRetryable(error) || tries === MAX_TRIES) throw error
      }
    }
  }
}

/** The transaction of one event: replay, or existence, identity, entry, furthest page, and the rows. */
async function recordIn(
  db: Database,
  projectId: string,
  event: ParsedEvent,
  idempotencyKey: string | undefined,
): Promise<Recorded> {
  await lockProject(db, projectId)
  if (idempotencyKey !== undefined) {
    const stored = await findIdempotencyKey(db, projectId, idempotencyKey)
    if (stored && !stored.request_digest.equals(requestDigest(event))) throw idempotencyKeyReused()
    if (stored) return { body: JSON.parse(stored.response) as CustomEventResult, replayed: true }
  }

  const { module_id, timestamp, custom_event_name, custom_event_props } = event
  const module = await findModuleInEffect(db, projectId, module_id, timestamp)
  if (!module) throw moduleDoesNotExist(module_id)

  const now = new Date().toISOString()
  const contact_id = await identifyContact(db, projectId, event.identifiers, now)
  let entry_id = await findEntryInEffect(db, projectId, contact_id, module_id, timestamp)
  if (entry_id === undefined) {
    entry_id = uuidv7()
    const created_at = earlier(timestamp, now)
    await insertEntry(db, projectId, { entry_id, module_id, contact_id, created_at, updated_at: now })
  }

  const event_id = uuidv7()
  const recorded = {
    entry_id,
    module_version_number: module.version_number,
    timestamp,
    event_type: CUSTOM_EVENT,
    custom_event_name,
    custom_event_props,
  }
  const furthest = await findFurthestPage(db, projectId, entry_id, timestamp)
  await insertEvent(db, projectId, { ...recorded, event_id, ...furthest })

  const body: CustomEventResult = {
    group_id: module.group_id,
    project_id: projectId,
    module_id,
    contact_id,
    ...recorded,
  }
  if (idempotencyKey !== undefined) {
    await insertIdempotencyKey(db, projectId, {
      idempotency_key: idempotencyKey,
      event_id,
      request_digest: requestDigest(event),
      response: JSON.stringify(body),
    })
  }
  return { body, replayed: false }
}

/** The earlier of two instants in the wire's form, which sorts as they do. */
const earlier = (a: string, b: string) => [a, b].sort()[0] as string

/** SHA-256 of what makes two posts the same: the fields as parsed, identifiers in any order. */
function requestDigest(event: ParsedEvent): Buffer {
  const { module_id, timestamp, custom_event_name, custom_event_props } = event
  const identifiers = event.identifiers.map((identifier) => identifier.digest.toString('hex')).sort()
  return createHash('sha256')
    .update(JSON.stringify([module_id, timestamp, custom_event_name, custom_event_props, identifiers]))
    .digest()
}
