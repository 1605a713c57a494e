import { Writable } from 'node:stream'
import fastify from 'fastify'
import { expect, test } from 'vitest'
import { moduleDoesNotExist } from '../../src/domain/errors.ts'
import { errorHandler, toApiError } from '../../src/http/error-handler.ts'

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
  [Object.assign(withStatus(413), { code: 'FST_ERR_CTP_BODY_TOO_LARGE' }), 413, 'payload_too_large', ''],
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
