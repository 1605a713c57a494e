// `node:http` holding every response back: what a request that waits costs at the least.
import { once } from 'node:events'
import { createServer } from 'node:http'
import { HOST, PORT, ready } from './process.ts'

const server = createServer(() => {})
await once(server.listen(PORT, HOST), 'listening')
ready(async () => {
  server.close()
  server.closeAllConnections()
})
