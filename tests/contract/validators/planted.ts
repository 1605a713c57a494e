import { operations } from '../../support/contract.ts'

/** A response, as a validator judges it. */
export interface Answer {
  operationId: string
  status: number
  body: unknown
}

interface Wrong extends Answer {
  /** What is wrong with it. */
  kind: string
}

/** Every example response of the document that has a body. A test holds that the service's responses are like them. */
export const examples: Answer[] = Object.values(operations).flatMap(({ operationId, responses }) =>
  Object.entries(responses).flatMap(([status, { content }]) =>
    Object.values(content?.['application/json']?.examples ?? {}).map(({ value }) => ({
      operationId,
      status: Number(status),
      body: value,
    })),
  ),
)

// biome-ignore lint/suspicious/noExplicitAny: a body of any operation, to be changed at any place
type Body = any

/** The first example response of an operation with a change that makes it wrong. */
function wrong(kind: string, operationId: string, status: number, change: (body: Body) => unknown): Wrong {
  const example = examples.find((one) => one.operationId === operationId && one.status === status)
  if (!example) throw new Error(`${operationId} has no example of a ${status}`)
  const body = structuredClone(example.body)
  // A change that returns something replaces the body.
  return { kind, operationId, status, body: change(body) ?? body }
}

const CUSTOM_EVENT = 0
const PAGE_VIEW = 1
const page = { page_id: 'p2', page_key: 'skin-type', page_index: 1 }

/** Responses that the service never gives, one for each kind of defect. */
export const planted: Wrong[] = [
  wrong('an error without the field of its resource', 'getModule', 404, (body) => {
    delete body.moduleId
  }),
  wrong('an error without projectId', 'getModule', 401, (body) => {
    delete body.projectId
  }),
  wrong('the code of another status', 'getModule', 404, (body) => {
    body.error.code = 'unauthorized'
  }),
  wrong('the code of another resource', 'getModule', 404, (body) => {
    body.error.code = 'entry_not_found'
  }),
  wrong('an unknown code', 'getEntry', 404, (body) => {
    body.error.code = 'entry_missing'
  }),
  wrong('an empty message', 'getEntry', 404, (body) => {
    body.error.message = ''
  }),
  wrong('details where there are none', 'getEntry', 404, (body) => {
    body.error.details = [{ pointer: '/path/entryId', message: 'does not exist' }]
  }),
  wrong('a conflict without details', 'recordCustomEvent', 409, (body) => {
    delete body.error.details
  }),
  wrong('an empty list of details', 'getModule', 400, (body) => {
    body.error.details = []
  }),
  wrong('an extra field in an error', 'listModules', 429, (body) => {
    body.error.retry_after = 1
  }),
  wrong('the field of another resource', 'getEntry', 404, (body) => {
    body.moduleId = 'skin-quiz'
  }),
  wrong('a version number as text in an error', 'getModuleVersion', 404, (body) => {
    body.error.code = 'module_version_does_not_exist'
    body.versionNumber = '99'
  }),
  wrong('an error in another envelope', 'getModule', 500, ({ error }) => error),
  wrong('a custom event without its name', 'listEntryEvents', 200, (body) => {
    delete body[CUSTOM_EVENT].custom_event_name
  }),
  wrong('a custom event without its properties', 'listEntryEvents', 200, (body) => {
    delete body[CUSTOM_EVENT].custom_event_props
  }),
  wrong('a custom event with page fields', 'listEntryEvents', 200, (body) => {
    Object.assign(body[CUSTOM_EVENT], page)
  }),
  wrong('a custom event with a view type', 'listEntryEvents', 200, (body) => {
    body[CUSTOM_EVENT].view_type = 'flowpage'
  }),
  wrong('a page view without its page', 'listEntryEvents', 200, (body) => {
    delete body[PAGE_VIEW].page_key
  }),
  wrong('a page view without a view type', 'listEntryEvents', 200, (body) => {
    delete body[PAGE_VIEW].view_type
  }),
  wrong('a page view with a custom name', 'listEntryEvents', 200, (body) => {
    body[PAGE_VIEW].custom_event_name = 'newsletter_opt_in'
  }),
  wrong('half of a furthest page', 'listEntryEvents', 200, (body) => {
    delete body[PAGE_VIEW].max_page_key
  }),
  wrong('null for a field that does not apply', 'listEntryEvents', 200, (body) => {
    body[CUSTOM_EVENT].page_id = null
  }),
  wrong('a negative page index', 'listEntryPageViews', 200, (body) => {
    body[0].page_views[0].page_index = -1
  }),
  wrong('an empty id', 'listEntryPageViews', 200, (body) => {
    body[0].contact_id = ''
  }),
  wrong('an empty id in a list of ids', 'listErasures', 200, (body) => {
    body[0].entry_ids.push('')
  }),
  wrong('position 0', 'listErasures', 200, (body) => {
    body[0].position = 0
  }),
  wrong('a list in an envelope', 'listEntryPageViews', 200, (body) => ({ data: body })),
  wrong('a timestamp without milliseconds', 'getEntry', 200, (body) => {
    body.updated_at = '2026-03-01T09:31:10Z'
  }),
  wrong('a timestamp with microseconds', 'getEntry', 200, (body) => {
    body.updated_at = '2026-03-01T09:31:10.250000Z'
  }),
  wrong('a timestamp with an offset', 'getEntry', 200, (body) => {
    body.created_at = '2026-03-01T10:30:00.000+01:00'
  }),
  wrong('a timestamp with a space', 'getEntry', 200, (body) => {
    body.created_at = '2026-03-01 09:30:00.000Z'
  }),
  wrong('a month that does not exist', 'getEntry', 200, (body) => {
    body.created_at = '2026-13-01T09:30:00.000Z'
  }),
  wrong('a day that does not exist', 'getEntry', 200, (body) => {
    body.created_at = '2026-02-30T09:30:00.000Z'
  }),
  wrong('an id that is too long', 'getEntry', 200, (body) => {
    body.contact_id = 'c'.repeat(129)
  }),
  wrong('an id with a line feed', 'getModule', 200, (body) => {
    body.module_id = 'skin\nquiz'
  }),
  wrong('a name that is too long', 'recordCustomEvent', 200, (body) => {
    body.custom_event_name = 'n'.repeat(201)
  }),
  wrong('more rows than a page may have', 'listModuleVersions', 200, (body) => Array(1001).fill(body[0])),
  wrong('a pointer into nothing', 'getModule', 400, (body) => {
    body.error.details = [{ pointer: 'query.sort', message: 'is not a known parameter' }]
  }),
  wrong('an extra field', 'getEntry', 200, (body) => {
    body.email = 'amara.okafor@example.com'
  }),
  wrong('a missing field', 'getEntry', 200, (body) => {
    delete body.entry_data
  }),
  wrong('user data as an object', 'getEntry', 200, (body) => {
    body.entry_data = JSON.parse(body.entry_data)
  }),
  wrong('an empty definition', 'getModuleVersion', 200, (body) => {
    body.json_string = ''
  }),
  wrong('version 0', 'getModuleVersion', 200, (body) => {
    body.version_number = 0
  }),
  wrong('a version number that is no integer', 'listModuleVersions', 200, (body) => {
    body[0].version_number = 1.5
  }),
  wrong('a version number beyond 32 bits', 'listModuleVersions', 200, (body) => {
    body[0].version_number = 2 ** 31
  }),
  wrong('properties that are no object', 'recordCustomEvent', 200, (body) => {
    body.custom_event_props = '[]'
  }),
  wrong('a result of another type', 'recordCustomEvent', 200, (body) => {
    body.event_type = 'flowpage.viewed'
  }),
  { ...wrong('a status that the operation does not have', 'listModules', 200, () => undefined), status: 404 },
]
