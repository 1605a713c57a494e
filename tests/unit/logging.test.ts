import { Writable } from 'node:stream'
import fastify from 'fastify'
import { expect, test } from 'vitest'
import { withRequestSerializer } from '../../src/http/logging.ts'

test('a log line has a request without its query and headers', async () => {
  const lines: { req?: object }[] = []
  const stream = new Writable({
    write(line, _, done) {
      lines.push(JSON.parse(String(line)))
      done()
    },
  })
  const app = fastify({ logger: withRequestSerializer({ level: 'info', stream }) })
  await app.inject({ method: 'DELETE', url: '/a/b?key=secret#part', headers: { 'x-api-key': 'secret' } })
  expect(lines.flatMap(({ req }) => req ?? [])).toEqual([{ method: 'DELETE', path: '/a/b', ip: '127.0.0.1' }])
  await app.close()
})

test.each([true, false, undefined])('%s stays what it is', (logger) => {
  expect(withRequestSerializer(logger)).toBe(logger)
})
