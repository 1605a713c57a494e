/** A process that uses the embedded server until it receives a message or is killed. Options are JSON in argv. */
import { useEmbeddedServer } from '../../db/embedded/server.ts'

try {
  const server = await useEmbeddedServer(JSON.parse(process.argv[2] ?? '{}'))
  process.once('message', async () => {
    await server.release()
    process.disconnect()
  })
  process.send?.({ url: server.url })
} catch (error) {
  process.send?.({ failure: (error as Error).message }, () => process.disconnect())
}
