import path from 'node:path'
import { expect, test } from 'vitest'
import { readConfig } from '../../src/config.ts'

const DEFAULTS = {
  host: '127.0.0.1',
  port: 3000,
  databaseUrl: undefined,
  dataDir: path.resolve(import.meta.dirname, '../../.data'),
  logLevel: 'info',
  basePath: '',
  corsOrigins: [],
  rateLimitPerMinute: undefined,
  trustProxy: false,
}

test('every setting has a default', () => {
  expect(readConfig({})).toEqual(DEFAULTS)
})

test('an empty setting counts as absent', () => {
  const names = ['HOST', 'PORT', 'DATABASE_URL', 'DATA_DIR', 'LOG_LEVEL', 'BASE_PATH', 'CORS_ORIGINS']
  const empty = Object.fromEntries([...names, 'RATE_LIMIT_PER_MINUTE', 'TRUST_PROXY'].map((name) => [name, '']))
  expect(readConfig(empty)).toEqual(DEFAULTS)
})

test.each<[string, string, Partial<Record<keyof typeof DEFAULTS, unknown>>]>([
  ['HOST', '0.0.0.0', { host: '0.0.0.0' }],
  ['HOST', '::', { host: '::' }],
  ['HOST', 'localhost', { host: 'localhost' }],
  ['PORT', '1', { port: 1 }],
  ['PORT', '65535', { port: 65_535 }],
  [
    'DATABASE_URL',
    'postgres://u:p@db:5432/x?sslmode=require',
    { databaseUrl: 'postgres://u:p@db:5432/x?sslmode=require' },
  ],
  ['DATABASE_URL', 'postgresql:///x?host=/run/pg', { databaseUrl: 'postgresql:///x?host=/run/pg' }],
  ['DATABASE_URL', 'postgres://me@/x?host=/run/pg', { databaseUrl: 'postgres://me@/x?host=/run/pg' }],
  ['DATA_DIR', 'some where', { dataDir: path.resolve('some where') }],
  ['LOG_LEVEL', 'silent', { logLevel: 'silent' }],
  ['BASE_PATH', '/', { basePath: '' }],
  ['BASE_PATH', '/flow/trail.v1', { basePath: '/flow/trail.v1' }],
  ['CORS_ORIGINS', '*', { corsOrigins: ['*'] }],
  [
    'CORS_ORIGINS',
    'https://a.example, http://localhost:5173',
    { corsOrigins: ['https://a.example', 'http://localhost:5173'] },
  ],
  ['RATE_LIMIT_PER_MINUTE', '600', { rateLimitPerMinute: 600 }],
  ['TRUST_PROXY', 'true', { trustProxy: true }],
  ['TRUST_PROXY', '10.0.0.0/8, ::1', { trustProxy: '10.0.0.0/8, ::1' }],
])('%s=%s is taken', (name, value, expected) => {
  expect(readConfig({ [name]: value })).toEqual({ ...DEFAULTS, ...expected })
})

test.each<[string, string[], string]>([
  ['HOST', ['a b', 'http://localhost', 'localhost:3000'], 'Invalid host'],
  ['PORT', ['0', '65536', '-1', '3e3', '080', ' 80', '80.0', 'http'], 'must be a whole number from 1 to 65535'],
  [
    'DATABASE_URL',
    ['mysql://x', 'db:5432', 'postgres'],
    'must be a PostgreSQL connection string such as postgres://user:password@host:5432/flowtrail',
  ],
  ['LOG_LEVEL', ['loud', 'INFO'], 'not in choices [fatal,error,warn,info,debug,trace,silent]'],
  [
    'BASE_PATH',
    ['flowtrail', '/a/', '//', '/a//b', '/..', '/a/./b', '/a b', '/é', '/%41', '/:id', '/*'],
    'must be a path such as /flowtrail, without a slash at the end',
  ],
  [
    'CORS_ORIGINS',
    ['a.example', 'https://a.example/', 'https://a.example/x', 'null', 'https://A.example', '*,', 'https://*.example/'],
    'must be * or origins separated by commas',
  ],
  [
    'RATE_LIMIT_PER_MINUTE',
    ['0', '-1', '1.5', '1e3', '1000000000', 'off'],
    'must be a whole number from 1 to 999999999',
  ],
  [
    'TRUST_PROXY',
    ['yes', '1', 'cafe', '10.0.0', '10.0.0.0/33', '10.0.0.0/0', '10.0.0.0/8/8', '::1/129', '10.0.0.1,'],
    'must be true, false, or addresses or networks',
  ],
])('%s is refused when it is one of %j', (name, values, problem) => {
  for (const value of values) {
    expect(() => readConfig({ [name]: value }), value).toThrow(`The settings are not right: ${name}: `)
    expect(() => readConfig({ [name]: value }), value).toThrow(problem)
  }
})

test('one message, of one line, names everything that is wrong and no password', () => {
  const read = () => readConfig({ PORT: 'x', LOG_LEVEL: 'y', DATABASE_URL: 'mysql://user:secret@db' })
  expect(read).toThrow(/^The settings are not right: (?=.*PORT: )(?=.*LOG_LEVEL: )(?=.*DATABASE_URL: )(?!.*secret).*$/)
})
