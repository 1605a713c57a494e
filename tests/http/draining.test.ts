import { once } from 'node:events'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import fastify from 'fastify'
import { expect, test, vi } from 'vitest'
import { drainOnClose } from '../../src/http/draining.ts'
import { fillFixture, module, version } from '../recording/fixture.ts'
import { createTestApp, importInto } from '../support/app.ts'
import { openConnection } from '../support/connection.ts'

// What tests/faults/drain.test.ts shows of a process, of the app alone.

test('every response of an app that is about to stop asks to close the connection, and only /readyz changes', async () => {
  const stop = new AbortController()
  const api = await createTestApp({ fill: fillFixture, stopping: stop.signal, config: { basePath: '/v' } })
  const paths = ['/projects/demo/modules', '/projects/demo/modules/nowhere', '/nowhere', '/docs/', '/metrics', '/livez']
  const statuses = (connection: string) =>
    Promise.all(
      [...paths.map((path) => `/v${path}`), '/v/readyz', '/readyz'].map(async (path) => {
        const { statusCode, headers } = await api.call({ path })
        expect(headers.connection, path).toBe(connection)
        return statusCode
      }),
    )
  expect(await statuses('keep-alive')).toEqual([200, 404, 404, 200, 200, 200, 200, 200])
  stop.abort()
  expect(await statuses('close')).toEqual([200, 404, 404, 200, 200, 200, 503, 503])
  await api.close()
})

test('an app that closes sends the responses that it has begun, and waits for no client to close its connection', async () => {
  const modules = Array.from({ length: 5_000 }, (_, i) => [
    { ...module(`m${i}`), title: 't'.repeat(2_000) },
    version(`m${i}`, 1, '2026-01-05T00:00:00Z'),
  ])
  const fill = async (databaseUrl: string) => {
    await fillFixture(databaseUrl)
    await importInto(databaseUrl, modules.flat())
  }
  const api = await createTestApp({ fill, twins: false })
  const get = (path: string) => `GET /projects/demo/${path} HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${api.key}\r\n\r\n`
  const beginReading = async (...paths: string[]) => {
    const { client } = await openConnection(api.app)
    client.write(paths.map(get).join(''))
    let received = ''
    client.on('data', (part) => {
      received += part
    })
    await once(client, 'data')
    client.pause()
    expect(received).toMatch(/^HTTP\/1.1 200 .*\r\nconnection: keep-alive/is)
    return { client, ended: once(client, 'end').then(() => received) }
  }
  const clients = [await beginReading('modules'), await beginReading('modules', 'modules/m0')]
  // A request that is only half there when the stop comes.
  const { client: late, connection } = await openConnection(api.app)
  late.write('GET /projects/demo/modules HTTP/1.1\r\nHost: x\r\n')
  await expect.poll(() => connection.bytesRead).toBeGreaterThan(0)
  const closed = api.close()
  late.write(`X-Api-Key: ${api.key}\r\n\r\n`)
  expect(await text(late)).toMatch(/^HTTP\/1.1 503 .*\r\nconnection: close/is)
  // One after the other, so that the end of one finds the other one in the middle.
  const received: string[] = []
  for (const { client, ended } of clients) {
    client.resume()
    received.push(await ended)
  }
  expect(received[0]).toMatch(/\r\n0\r\n\r\n$/)
  expect(received[1]).toMatch(/\r\n0\r\n\r\nHTTP\/1.1 503 .*\r\nconnection: close.*}$/is)
  await closed
})

const LONG_ms = 600_000

test('an app that closes waits for no connection without a request', async () => {
  const app = fastify()
  drainOnClose(app, undefined, LONG_ms)
  const { client } = await openConnection(app)
  const closed = once(client, 'close')
  await app.close()
  await closed
})

test('an app keeps nothing of a connection that has closed', async () => {
  const app = fastify()
  drainOnClose(app, undefined, LONG_ms)
  const { client, connection } = await openConnection(app)
  client.destroy()
  await once(connection, 'close')
  // Else it would be closed with the others.
  const destroy = vi.spyOn(connection, 'destroy')
  await app.close()
  expect(destroy).not.toHaveBeenCalled()
})

test('an app that closes closes a connection when the response that had begun is sent', async () => {
  const app = fastify()
  drainOnClose(app, undefined, LONG_ms)
  const body = new PassThrough()
  app.get('/', async () => body)
  const { client } = await openConnection(app)
  client.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n')
  body.write('begun')
  await once(client, 'readable')
  const closed = app.close()
  // What is idle is closed then.
  await expect.poll(() => app.server.listening).toBe(false)
  body.end()
  expect(await text(client)).toMatch(/^HTTP\/1.1 200 .*\r\n0\r\n\r\n$/s)
  await closed
})

test('an app that closes waits for a part of a request only for a moment, and for the response to a whole one', async () => {
  const app = fastify()
  drainOnClose(app, undefined, 10)
  let respond = () => {}
  const asked = new Promise<void>((resolve) => {
    app.get('/slow', async () => {
      resolve()
      await new Promise<void>((done) => {
        respond = done
      })
      return 'done'
    })
  })
  app.get('/', async () => 'ok')
  const open = async (sent: string) => {
    const { client, connection } = await openConnection(app)
    client.write(sent)
    await expect.poll(() => connection.bytesRead).toBe(sent.length)
    return client
  }
  const whole = (path: string) => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`
  const slow = await open(whole('/slow'))
  await asked
  // The second one has had a response before.
  const parts = [await open('GET / HT'), await open(`${whole('/')}GET / HT`)]
  const ends = parts.map((client) => text(client).catch(() => 'reset'))
  const closed = app.close()
  const [first, second] = await Promise.all(ends)
  expect(first).toMatch(/^(reset)?$/)
  expect(second).toMatch(/^HTTP\/1.1 200 .*\r\nok$/is)
  respond()
  expect(await text(slow)).toMatch(/^HTTP\/1.1 200 .*done$/is)
  await closed
})
