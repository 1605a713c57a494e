// What Fastify does without a database: modules are read once at the start, and serialized by the document's schema.
import { readFile } from 'node:fs/promises'
import { fastify } from 'fastify'
import pg from 'pg'
import { DATABASE_URL, HOST, PORT, ready } from './process.ts'

const document = JSON.parse(await readFile(new URL('../../generated/openapi.json', import.meta.url), 'utf8'))

const client = new pg.Client({ connectionString: DATABASE_URL })
await client.connect()
const { rows } = await client.query(`
  SELECT DISTINCT ON (project_id, module_id)
    module_id, title, group_id, project_id, json_string AS json_string_prod
  FROM modules JOIN module_versions USING (project_id, module_id)
  WHERE project_id = 'demo' AND published_at IS NOT NULL
  ORDER BY project_id, module_id, published_at DESC, version_number DESC`)
await client.end()
const modules = new Map(rows.map((row) => [row.module_id, row]))

const app = fastify()
app.get<{ Params: { projectId: string; moduleId: string } }>(
  '/projects/:projectId/modules/:moduleId',
  { schema: { response: { 200: document.components.schemas.FlowModule } } },
  async ({ params }, reply) => modules.get(params.moduleId) ?? reply.callNotFound(),
)
await app.listen({ host: HOST, port: PORT })
ready(() => app.close())
