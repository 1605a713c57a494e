// The least that a Node service on PostgreSQL can be: node:http and pg, no framework, no key, no validation.
import { createServer, type ServerResponse } from 'node:http'
import pg from 'pg'
import { DATABASE_URL, HOST, PORT, ready } from './process.ts'

const MODULE = `
  SELECT m.module_id, m.title, m.group_id, m.project_id, v.json_string AS json_string_prod
  FROM modules m, LATERAL (
    SELECT json_string FROM module_versions
    WHERE project_id = m.project_id AND module_id = m.module_id AND published_at IS NOT NULL
    ORDER BY published_at DESC, version_number DESC LIMIT 1
  ) v
  WHERE m.project_id = $1 AND m.module_id = $2`

const EVENTS = `
  SELECT v.event_id, e.entry_id, e.contact_id, e.project_id, m.group_id, e.module_id, v.module_version_number, v.timestamp,
    v.page_id, v.page_key, v.page_index, v.max_page_id, v.max_page_key, v.max_page_index, v.total_pages, v.event_type,
    v.view_type, v.custom_event_name, v.custom_event_props
  FROM entries e
  JOIN modules m ON m.project_id = e.project_id AND m.module_id = e.module_id
  JOIN events v ON v.project_id = e.project_id AND v.entry_id = e.entry_id
  WHERE e.project_id = $1 AND e.entry_id = $2
  ORDER BY v.timestamp DESC, v.event_id DESC LIMIT $3`

const pool = new pg.Pool({ connectionString: DATABASE_URL, max: 10 })

const server = createServer(async ({ url = '' }, response) => {
  const { pathname, searchParams } = new URL(url, `http://${HOST}`)
  const [, , projectId, resource, id, list] = pathname.split('/')
  try {
    if (resource === 'modules') {
      const { rows } = await pool.query(MODULE, [projectId, id])
      send(response, rows.length > 0 ? 200 : 404, rows[0])
    } else if (list === 'events') {
      const { rows } = await pool.query(EVENTS, [projectId, id, searchParams.get('limit') ?? 10])
      send(response, 200, rows.map(withoutNulls))
    } else send(response, 404)
  } catch (error) {
    console.error(error)
    send(response, 500)
  }
})

function send(response: ServerResponse, status: number, body: unknown = {}): void {
  const text = JSON.stringify(body)
  response
    .writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) })
    .end(text)
}

/** A field that does not apply to an event is left out. */
const withoutNulls = (row: object) => Object.fromEntries(Object.entries(row).filter(([, value]) => value !== null))

server.listen(PORT, HOST, () => ready(async () => server.close()))
