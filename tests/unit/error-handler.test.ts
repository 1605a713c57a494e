import { once } from 'node:events'
import { Writable } from 'node:stream'
import fastify from 'fastify'
import { expect, onTestFinished, test, vi } from 'vitest'
import { moduleDoesNotExist, unauthorized } from '../../src/domain/errors.ts'
import { errorHandler, toApiError } from '../../src/http/error-handler.ts'
import { LINGER_ms } from '../../src/http/linger.ts'
import { openConnection } from '../support/connection.ts'

const withStatus = (statusCode: number) => Object.assign(new Error('It is so'), { statusCode })

test.each<[unknown, status: number, code: string, message: string]>([
  [moduleDoesNotExist('quiz'), 404, 'module_does_not_exist', 'The project has no module "quiz".'],
  [withStatus(400), 400, 'invalid_request', 'It is so.'],
  [withStatus(412), 412, 'invalid_request', 'It is so.'],
  [withStatus(499), 499, 'invalid_request', 'It is so.'],
  [withStatus(403), 404, 'route_not_found', 'No such path.'],
  [withStatus(404), 404, 'route_not_found', 'No such path.'],
  [withStatus(399), 500, 'internal_error', ''],
  [withStatus(500), 500, 'internal_error', ''],
  [new Error('a bug'), 500, 'internal_error', ''],
  ['text', 500, 'internal_error', ''],
  [undefined, 500, 'internal_error', ''],
  [null, 500, 'internal_error', ''],
  [Object.assign(withStatus(415), { code: 'FST_ERR_CTP_INVALID_MEDIA_TYPE' }), 415, 'unsupported_media_type', ''],
  [Object.assign(new Error(), { code: 'ECONNREFUSED', syscall: 'connect' }), 503, 'service_unavailable', ''],
])('%s is sent as %i %s', (error, status, code, message) => {
  const sent = toApiError(error)
  expect([sent.status, sent.errorCode]).toEqual([status, code])
  expect(sent.message).toContain(message)
})

test('what the client did not cause is logged, and the envelope is sent whatever the route serializes', async () => {
  const logged: { level: number; err?: { message: string } }[] = []
  const stream = new Writable({
    write(line, _, done) {
      logged.push(JSON.parse(String(line)))
      done()
    },
  })
  const app = fastify({ logger: { level: 'warn', stream } })
  app.setErrorHandler(errorHandler)
  app.setSerializerCompiler(() => () => {
    throw new Error('it serializes something else')
  })
  const errors = [new Error('a bug'), withStatus(400), moduleDoesNotExist('quiz')]
  const schema = { response: { '4xx': { type: 'object' }, '5xx': { type: 'object' } } }
  for (const [i, error] of errors.entries()) {
    app.get(`/projects/:projectId/${i}`, { schema }, () => Promise.reject(error))
  }
  for (const [i, error] of errors.entries()) {
    const { body } = await app.inject(`/projects/demo/${i}`)
    expect(JSON.parse(body)).toMatchObject({ error: { code: toApiError(error).errorCode }, projectId: 'demo' })
  }
  expect(logged.map(({ err }) => err?.message)).toEqual(['a bug'])
})

/** Requests what is refused before its body. @param rest what the body still lacks when the response has arrived */
async function refused(rest: string) {
  const app = fastify()
  app.setErrorHandler(errorHandler)
  app.post('/', { onRequest: () => Promise.reject(moduleDoesNotExist('quiz')) }, async () => '')
  onTestFinished(() => app.close())
  const { client, connection } = await openConnection(app, { allowHalfOpen: true })
  const body = '12345'
  const length = body.length + rest.length
  client.write(`POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: ${length}\r\n\r\n${body}`)
  let response = ''
  client.on('data', (data) => {
    response += data
  })
  await once(client, 'end')
  expect(response).toMatch(/^HTTP\/1\.1 404 /)
  return { client, connection }
}

test('a connection that closes is closed when the request that was refused has arrived', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout'] })
  onTestFinished(() => void vi.useRealTimers())
  const { client, connection } = await refused('67890')
  expect(connection.destroyed).toBe(false)
  client.write('67890')
  await once(connection, 'close')
})

test('a connection that closes is closed for a client that does not, after a while', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout'] })
  onTestFinished(() => void vi.useRealTimers())
  const { connection } = await refused('67890')
  vi.advanceTimersByTime(LINGER_ms - 1)
  expect(connection.destroyed).toBe(false)
  vi.advanceTimersByTime(1)
  expect(connection.destroyed).toBe(true)
})

test('a connection that closes is closed at once when the request that was refused is complete', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout'] })
  onTestFinished(() => void vi.useRealTimers())
  const { connection } = await refused('')
  if (!connection.destroyed) await once(connection, 'close')
})

test('an unauthorized client is told of no rate limit', async () => {
  const app = fastify()
  app.setErrorHandler(errorHandler)
  const errors = { unauthorized: unauthorized(), other: moduleDoesNotExist('quiz') }
  for (const [name, error] of Object.entries(errors)) {
    app.get(`/${name}`, async (_, reply) => {
      reply.headers({ ratelimit: 'r=1', 'ratelimit-policy': 'q=1' })
      throw error
    })
  }
  expect((await app.inject('/unauthorized')).headers).not.toHaveProperty('ratelimit')
  expect((await app.inject('/unauthorized')).headers).not.toHaveProperty('ratelimit-policy')
  expect((await app.inject('/other')).headers).toMatchObject({ ratelimit: 'r=1', 'ratelimit-policy': 'q=1' })
})
