import { createHash } from 'node:crypto'
import pg from 'pg'
import { v7 as uuidv7 } from 'uuid'
import type { components } from '../../../generated/api.ts'
import { idempotencyKeyReused, moduleDoesNotExist } from '../../../src/domain/errors.ts'
import { CUSTOM_EVENT } from '../../../src/domain/event.ts'
import { type IsoTimestamp, toIsoTimestamp } from '../../../src/domain/timestamp.ts'
import { ContactResolver } from '../../../src/recording/contacts.ts'
import { type ParsedEvent, type ParsedIdentifier, parseCustomEvent } from '../../../src/recording/custom-event.ts'
import { inUtc } from './reads.ts'

type CustomEventInput = components['schemas']['CustomEventInput']

interface Recorded {
  body: object
  replayed: boolean
}

const LOCK_CONTACT = 'SELECT FROM contacts WHERE project_id = $1 AND contact_id = $2 FOR NO KEY UPDATE'

const USED_KEY = 'SELECT request_digest, response FROM idempotency_keys WHERE project_id = $1 AND idempotency_key = $2'

const MODULE_IN_EFFECT = `
  SELECT group_id, coalesce((
    SELECT version_number FROM module_versions
    WHERE project_id = m.project_id AND module_id = m.module_id AND published_at <= $3
    ORDER BY published_at DESC, version_number DESC LIMIT 1
  ), (
    SELECT version_number FROM module_versions
    WHERE project_id = m.project_id AND module_id = m.module_id AND published_at IS NOT NULL
    ORDER BY published_at, version_number DESC LIMIT 1
  )) AS version_number
  FROM modules m WHERE project_id = $1 AND module_id = $2`

const OWNERS =
  'SELECT project_id, digest, contact_id FROM contact_identifiers WHERE project_id = $1 AND digest = ANY ($2)'

const CONTACTS = 'SELECT project_id, contact_id FROM contacts WHERE project_id = $1 AND contact_id = ANY ($2)'

const INSERT_CONTACT = 'INSERT INTO contacts (project_id, contact_id, created_at) VALUES ($1, $2, $3)'

const INSERT_IDENTIFIERS = `
  INSERT INTO contact_identifiers (project_id, contact_id, digest, key, value)
  SELECT $1, $2, * FROM unnest($3::bytea[], $4::text[], $5::text[])`

/** The contact's entry of the module, and how far it had come by then. */
const ENTRY_IN_EFFECT = `
  SELECT entry_id, furthest.*, latest.*
  FROM (
    SELECT coalesce((
      SELECT entry_id FROM entries
      WHERE project_id = $1 AND contact_id = $2 AND module_id = $3 AND created_at <= $4
      ORDER BY created_at DESC, entry_id DESC LIMIT 1
    ), (
      SELECT entry_id FROM entries
      WHERE project_id = $1 AND contact_id = $2 AND module_id = $3
      ORDER BY created_at, entry_id DESC LIMIT 1
    )) AS entry_id
  ) chosen
  LEFT JOIN LATERAL (
    SELECT page_id AS max_page_id, page_key AS max_page_key, page_index AS max_page_index FROM events
    WHERE project_id = $1 AND entry_id = chosen.entry_id AND event_type = 'flowpage.viewed' AND timestamp <= $4
    ORDER BY page_index DESC, timestamp, event_id LIMIT 1
  ) furthest ON true
  LEFT JOIN LATERAL (
    SELECT total_pages FROM events
    WHERE project_id = $1 AND entry_id = chosen.entry_id AND event_type = 'flowpage.viewed' AND timestamp <= $4
    ORDER BY timestamp DESC, event_id DESC LIMIT 1
  ) latest ON true
  WHERE entry_id IS NOT NULL`

const INSERT_ENTRY = `
  INSERT INTO entries (project_id, entry_id, module_id, contact_id, created_at, updated_at, entry_data)
  VALUES ($1, $2, $3, $4, least($5::timestamptz, $6), $6, '{}')`

const INSERT_EVENT = `
  INSERT INTO events (project_id, event_id, entry_id, timestamp, module_version_number, max_page_id, max_page_key,
    max_page_index, total_pages, event_type, custom_event_name, custom_event_props, recorded_at, position)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, greatest(
    (SELECT max(position) + 1 FROM events WHERE project_id = $1), extract(epoch FROM clock_timestamp()) * 1000000))`

/** The row stays locked until the transaction ends, so that positions are committed in their order. */
const LOCK_PROJECT = 'SELECT FROM projects WHERE project_id = $1 FOR NO KEY UPDATE'

const INSERT_KEY = `
  INSERT INTO idempotency_keys (project_id, idempotency_key, event_id, request_digest, response)
  VALUES ($1, $2, $3, $4, $5)`

/** Unique, as an identifier and an Idempotency-Key are; a deadlock; a failed serialization. */
const LOST_A_RACE = ['23505', '40P01', '40001']
const MAX_TRIES = 5

/**
 * Records a custom event in a transaction of its own. Of concurrent transactions that create the same row, all but
 * one fail at the unique index and find it in the next attempt.
 *
 * @throws ApiError
 */
export async function record(
  pool: pg.Pool,
  projectId: string,
  input: CustomEventInput,
  idempotencyKey: string | undefined,
): Promise<Recorded> {
  const event = parseCustomEvent({ ...input, timestamp: inUtc(input.timestamp) ?? input.timestamp }, new Date())
  for (let tries = 1; ; tries += 1) {
    try {
      return await inTransaction(pool, (client) => recordWith(client, projectId, event, idempotencyKey))
    } catch (error) {
      const lostRace = error instanceof pg.DatabaseError && LOST_A_RACE.includes(error.code ?? '')
      if (!lostRace || tries === MAX_TRIES) throw error
    }
  }
}

async function inTransaction<T>(pool: pg.Pool, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect()
  let broken: Error | undefined
  try {
    await client.query('BEGIN')
    const result = await work(client)
    await client.query('COMMIT')
    return result
  } catch (error) {
    await client.query('ROLLBACK').catch((failure) => {
      broken = failure
    })
    throw error
  } finally {
    client.release(broken)
  }
}

async function recordWith(
  client: pg.PoolClient,
  projectId: string,
  event: ParsedEvent,
  idempotencyKey: string | undefined,
): Promise<Recorded> {
  const digest = idempotencyKey === undefined ? undefined : requestDigest(event)
  if (digest) {
    const [used] = (await client.query(USED_KEY, [projectId, idempotencyKey])).rows
    if (used && !digest.equals(used.request_digest)) throw idempotencyKeyReused()
    if (used) return { body: JSON.parse(used.response), replayed: true }
  }

  const { module_id, timestamp, custom_event_name, custom_event_props } = event
  const [module] = (await client.query(MODULE_IN_EFFECT, [projectId, module_id, timestamp])).rows
  if (!module) throw moduleDoesNotExist(module_id)

  const now = toIsoTimestamp(new Date())
  const { contact_id, isNew } = await identify(client, projectId, event.identifiers, now)
  const entry =
    (isNew ? undefined : await findEntry(client, projectId, contact_id, event)) ??
    (await addEntry(client, projectId, contact_id, event, now))

  const event_id = uuidv7()
  await client.query(LOCK_PROJECT, [projectId])
  await client.query(INSERT_EVENT, [
    ...[projectId, event_id, entry.entry_id, timestamp, module.version_number],
    ...[entry.max_page_id, entry.max_page_key, entry.max_page_index, entry.total_pages],
    ...[CUSTOM_EVENT, custom_event_name, custom_event_props, now],
  ])

  const body = {
    event_id,
    group_id: module.group_id,
    project_id: projectId,
    module_id,
    module_version_number: module.version_number,
    contact_id,
    entry_id: entry.entry_id,
    timestamp,
    event_type: CUSTOM_EVENT,
    custom_event_name,
    custom_event_props,
  }
  if (digest) {
    await client.query(INSERT_KEY, [projectId, idempotencyKey, event_id, digest, JSON.stringify(body)])
  }
  return { body, replayed: false }
}

interface PlaceInEntry {
  entry_id: string
  max_page_id?: string
  max_page_key?: string
  max_page_index?: number
  total_pages?: number
}

/** The contact's entry of the module. Of several transactions that find none, one creates it. */
async function findEntry(
  client: pg.PoolClient,
  projectId: string,
  contactId: string,
  { module_id, timestamp }: ParsedEvent,
): Promise<PlaceInEntry | undefined> {
  const find = async () =>
    (await client.query<PlaceInEntry>(ENTRY_IN_EFFECT, [projectId, contactId, module_id, timestamp])).rows[0]
  const found = await find()
  if (found) return found
  await client.query(LOCK_CONTACT, [projectId, contactId])
  return find()
}

async function addEntry(
  client: pg.PoolClient,
  projectId: string,
  contactId: string,
  { module_id, timestamp }: ParsedEvent,
  now: string,
): Promise<PlaceInEntry> {
  const entry_id = uuidv7()
  await client.query(INSERT_ENTRY, [projectId, entry_id, module_id, contactId, timestamp, now])
  return { entry_id }
}

/** The contact that the identifiers name, stored if new, as are the identifiers not known yet. */
async function identify(
  client: pg.PoolClient,
  projectId: string,
  identifiers: readonly ParsedIdentifier[],
  now: IsoTimestamp,
): Promise<{ contact_id: string; isNew: boolean }> {
  const named = identifiers.flatMap(({ contact_id }) => contact_id ?? [])
  const owners = await client.query(OWNERS, [projectId, identifiers.map(({ digest }) => digest)])
  const existing = named.length > 0 ? (await client.query(CONTACTS, [projectId, named])).rows : []
  const contacts = new ContactResolver(owners.rows, existing)
  const contact = contacts.resolve(projectId, identifiers, now)
  if (!contact.ok) throw contact.error
  const { contact_id } = contact

  const { added } = contacts
  const isNew = contacts.isNew(projectId, contact_id)
  if (isNew) await client.query(INSERT_CONTACT, [projectId, contact_id, now])
  if (added.identifiers.length > 0) {
    const columns = (['digest', 'key', 'value'] as const).map((name) => added.identifiers.map((one) => one[name]))
    await client.query(INSERT_IDENTIFIERS, [projectId, contact_id, ...columns])
  }
  return { contact_id, isNew }
}

/** What makes two requests the same. */
function requestDigest({ module_id, timestamp, custom_event_name, custom_event_props, identifiers }: ParsedEvent) {
  const digests = identifiers.map(({ digest }) => digest.toString('hex')).sort()
  return createHash('sha256')
    .update(JSON.stringify([module_id, timestamp, custom_event_name, custom_event_props, digests]))
    .digest()
}
