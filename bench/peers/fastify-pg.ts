// The smallest Fastify service on PostgreSQL: what its start to the first response takes is the baseline for ours.
import { fastify } from 'fastify'
import pg from 'pg'
import { DATABASE_URL, HOST, PORT, ready } from './process.ts'

const pool = new pg.Pool({ connectionString: DATABASE_URL })
const app = fastify()
app.get('/', async () => (await pool.query('SELECT project_id, name FROM projects LIMIT 10')).rows)
app.addHook('onClose', () => pool.end())
await app.listen({ host: HOST, port: PORT })
ready(() => app.close())
