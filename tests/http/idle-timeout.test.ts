import { text } from 'node:stream/consumers'
import { expect, onTestFinished, test } from 'vitest'
import { createTestApp } from '../support/app.ts'
import { openConnection } from '../support/connection.ts'
import { holdProject } from '../support/waiting.ts'
import { EVENT } from './requests.ts'

test('nothing but what it waits for limits how long a request is worked on', async () => {
  const api = await createTestApp({ twins: false })
  onTestFinished(() => api.close())
  const obstacle = await holdProject(api.databaseUrl)
  const { client, connection } = await openConnection(api.app)
  const body = JSON.stringify({ ...EVENT, module_id: 'nowhere' })
  const head = `POST /projects/demo/events HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${api.key}\r\nContent-Type: application/json\r\n`
  expect(connection.timeout).toBe(60_000)
  client.write(`${head}Connection: close\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
  await obstacle.waiting(1)
  expect(connection.timeout).toBe(0)
  const response = text(client)
  await obstacle.release()
  expect(await response).toContain('module_does_not_exist')
  // The client has to take it in time.
  expect(connection.timeout).toBe(60_000)
})
