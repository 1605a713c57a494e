import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import pg from 'pg'
import { expect, inject, test } from 'vitest'
import { adviceFor, messageOf } from '../../src/database/advice.ts'
import { createPool } from '../../src/database/pool.ts'
import { asPooler } from '../../src/database/pooler-client.ts'

const fromServer = (code: string) => Object.assign(new pg.DatabaseError('message', 0, 'error'), { code })
const fromNode = (code: string, more = {}) => Object.assign(new Error('message'), { code, ...more })

test.each([
  [fromServer('53300'), /max_connections .*READ_CONNECTIONS/],
  [fromServer('42501'), /least-privilege/],
  [fromServer('28P01'), /password/],
  [fromServer('08P01'), /pgbouncer/],
  [fromServer('25006'), /primary server/],
  [fromServer('28000'), /pg_hba\.conf/],
  [fromServer('3D000'), /Create the database/],
  [fromServer('57P03'), /try again/],
  [fromServer('23505'), undefined],
  [fromNode('ECONNREFUSED', { syscall: 'connect' }), /start PostgreSQL/],
  [fromNode('ENOTFOUND', { syscall: 'getaddrinfo' }), /its name/],
  [fromNode('EAI_AGAIN', { syscall: 'getaddrinfo' }), /No name server/],
  [fromNode('ETIMEDOUT', { syscall: 'connect' }), /does not respond/],
  [fromNode('EHOSTUNREACH', { syscall: 'connect' }), /cannot be reached/],
  [fromNode('ENOENT', { syscall: 'connect' }), /no such socket/],
  [fromNode('EACCES', { syscall: 'connect' }), /may not use the socket/],
  // Of a file.
  [fromNode('ENOENT', { syscall: 'open' }), undefined],
  [fromNode('CERT_HAS_EXPIRED'), /Renew/],
  [fromNode('SELF_SIGNED_CERT_IN_CHAIN'), /sslrootcert=/],
  [fromNode('DEPTH_ZERO_SELF_SIGNED_CERT'), /sslrootcert=/],
  [fromNode('UNABLE_TO_VERIFY_LEAF_SIGNATURE'), /sslrootcert=/],
  [fromNode('UNABLE_TO_GET_ISSUER_CERT_LOCALLY'), /sslrootcert=/],
  [fromNode('ERR_TLS_CERT_ALTNAME_INVALID'), /host name/],
  [new AggregateError([fromNode('ECONNREFUSED', { syscall: 'connect' })]), /start PostgreSQL/],
  [new Error('The server does not support SSL connections'), /ssl = on/],
  [new Error('Connection terminated due to connection timeout'), /does not respond/],
  [new Error('Query read timeout'), /paused/],
  [new Error('timeout exceeded when trying to connect'), /READ_CONNECTIONS/],
  [Object.assign(fromServer('42501'), { message: 'permission denied for schema public' }), /need CREATE on it/],
  [Object.assign(fromServer('42501'), { message: 'must be owner of table events' }), /role that owns the tables/],
  [new Error('a bug'), undefined],
  [undefined, undefined],
])('%j', (error, advice) => {
  if (advice) expect(adviceFor(error)).toMatch(advice)
  else expect(adviceFor(error)).toBeUndefined()
})

test('of the addresses of a host, the first one says why', () => {
  expect(messageOf(new AggregateError([new Error('first'), new Error('second')]))).toBe('first')
  expect(messageOf(new Error('only'))).toBe('only')
})

/** A message of PostgreSQL that asks for a step of authentication. */
function authentication(step: number, content: string): Buffer {
  const header = Buffer.alloc(9)
  header.write('R')
  header.writeInt32BE(8 + content.length, 1)
  header.writeInt32BE(step, 5)
  return Buffer.concat([header, Buffer.from(content)])
}

test.each([(url: string) => url, asPooler])('a missing password is said, and the connection closed', async (as) => {
  const server = createServer((socket) => {
    socket.once('data', () => {
      socket.write(authentication(10, 'SCRAM-SHA-256\0\0'))
      socket.once('data', () => socket.write(authentication(11, 'r=nonce,s=c2FsdA==,i=4096')))
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const closed = once(server, 'connection').then(([socket]) => once(socket, 'close'))
  const pool = createPool(as(`postgres://u@127.0.0.1:${(server.address() as AddressInfo).port}/d`))
  const error = await pool.query('SELECT').catch((error) => error)
  expect([error.message, adviceFor(error)]).toEqual([
    'The server asks for a password, and DATABASE_URL has none',
    'Add the password: postgres://user:password@host/database',
  ])
  await closed
  await pool.end()
  server.close()
})

test('a file that does not exist is not a socket', async () => {
  const missing = await readFile('/nowhere').catch((error) => error)
  expect([missing.code, adviceFor(missing)]).toEqual(['ENOENT', undefined])
})

test('a host that does not respond is told from a pool whose connections are in use', async () => {
  const silent = createServer().listen(0, '127.0.0.1')
  await once(silent, 'listening')
  const away = createPool(`postgres://u@127.0.0.1:${(silent.address() as AddressInfo).port}/d`, {
    connectionTimeout_ms: 50,
  })
  expect(adviceFor(await away.query('SELECT').catch((error) => error))).toMatch(/firewalls/)
  await away.end()
  silent.close()

  const full = createPool(inject('databaseServer'), { max: 1 })
  const client = await full.connect()
  full.options.connectionTimeoutMillis = 50
  expect(adviceFor(await full.query('SELECT').catch((error) => error))).toMatch(/READ_CONNECTIONS/)
  client.release()
  await full.end()
})
