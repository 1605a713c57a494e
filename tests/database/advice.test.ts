import { readFile } from 'node:fs/promises'
import pg from 'pg'
import { expect, test } from 'vitest'
import { adviceFor } from '../../src/database/advice.ts'

const fromServer = (code: string) => Object.assign(new pg.DatabaseError('message', 0, 'error'), { code })
const fromNode = (code: string, more = {}) => Object.assign(new Error('message'), { code, ...more })

test.each([
  [fromServer('53300'), /max_connections .*READ_CONNECTIONS/],
  [fromServer('42501'), /least-privilege/],
  [fromServer('28P01'), /password/],
  [fromServer('23505'), undefined],
  [fromNode('ECONNREFUSED', { syscall: 'connect' }), /start PostgreSQL/],
  [fromNode('ENOTFOUND', { syscall: 'getaddrinfo' }), /its name/],
  [fromNode('SELF_SIGNED_CERT_IN_CHAIN'), /sslrootcert=/],
  [fromNode('ERR_TLS_CERT_ALTNAME_INVALID'), /host name/],
  [new AggregateError([fromNode('ECONNREFUSED', { syscall: 'connect' })]), /start PostgreSQL/],
  [new Error('The server does not support SSL connections'), /ssl = on/],
  [new Error('timeout exceeded when trying to connect'), /firewalls/],
  [Object.assign(fromServer('42501'), { message: 'permission denied for schema public' }), /need CREATE on it/],
  [Object.assign(fromServer('42501'), { message: 'must be owner of table events' }), /role that owns the tables/],
  [new Error('SASL: client password must be a string'), /Add the password/],
  [new Error('a bug'), undefined],
  [undefined, undefined],
])('%j', (error, advice) => {
  if (advice) expect(adviceFor(error)).toMatch(advice)
  else expect(adviceFor(error)).toBeUndefined()
})

test('a file that does not exist is not a socket', async () => {
  const missing = await readFile('/nowhere').catch((error) => error)
  expect([missing.code, adviceFor(missing)]).toEqual(['ENOENT', undefined])
})
