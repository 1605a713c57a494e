// Platformatic DB as its users start it, on the tables as they are. It knows nothing of keys.
import { create } from '@platformatic/db'
import { DATABASE_URL, HOST, PORT, ready } from './process.ts'

const app = await create(import.meta.dirname, {
  server: { port: PORT, logger: { level: 'warn' } },
  db: { connectionString: DATABASE_URL, poolSize: 10, graphql: false },
  watch: false,
})
// Given with the rest it is overruled in a container, where the whole database would lie open to the network.
await app.updateContext({ serverConfig: { hostname: HOST } })
await app.start({ listen: true })
ready(() => app.stop())
