import path from 'node:path'
import { describe, expect, test } from 'vitest'
import { type Config, readConfig } from '../../src/config.ts'

const DEFAULTS: Config = {
  databaseUrl: undefined,
  databaseReplicaUrls: [],
  dataDir: path.resolve(import.meta.dirname, '../../.data'),
  logLevel: 'info',
  server: { workers: 1, host: '127.0.0.1', port: 3000, admin: undefined, drainDelay_ms: 0, drainTimeout_ms: 25_000 },
  http: {
    basePath: '',
    publicUrl: undefined,
    corsOrigins: [],
    rateLimitPerMinute: undefined,
    trustProxy: false,
    maxConnections: 10_000,
    maxFollowers: 2_000,
    slowRequest_ms: 1_000,
    maxImport_bytes: 16 * 1024 * 1024,
  },
  connections: { read: 3, write: 4, import: 8, statementTimeout_ms: 10_000 },
  recorder: { maxQueuedEvents: 20_000, maxQueueWait_ms: 10_000, lockTimeout_ms: 500, maxBatchSize: 1_000 },
  idempotencyRetention_days: undefined,
  tracing: undefined,
}

/** The defaults with one setting changed, given as group and name, such as `http.basePath`, or as a name alone. */
function withSetting(location: string, value: unknown): object {
  const [name = '', group] = location.split('.').reverse()
  if (group === undefined) return { ...DEFAULTS, [name]: value }
  return { ...DEFAULTS, [group]: { ...(DEFAULTS[group as keyof Config] as object), [name]: value } }
}

test('every setting has a default', () => {
  expect(readConfig({})).toEqual(DEFAULTS)
})

test.each<[string, string, string, unknown]>([
  ['HOST', '0.0.0.0', 'server.host', '0.0.0.0'],
  ['HOST', '::', 'server.host', '::'],
  ['HOST', 'localhost', 'server.host', 'localhost'],
  ['PORT', '0', 'server.port', 0],
  ['PORT', '65535', 'server.port', 65_535],
  ['WORKERS', '1', 'server.workers', 1],
  ['WORKERS', '64', 'server.workers', 64],
  ['ADMIN_PORT', '9464', 'server.admin', { host: '127.0.0.1', port: 9464 }],
  [
    'DATABASE_URL',
    'postgres://u:p@db:5432/x?options=-cjit%3Doff&pgbouncer=true',
    'databaseUrl',
    'postgres://u:p@db:5432/x?options=-cjit%3Doff&pgbouncer=true',
  ],
  // Today's meaning of these modes, which pg is about to change.
  ['DATABASE_URL', 'postgres://db/x?sslmode=require&a=b', 'databaseUrl', 'postgres://db/x?sslmode=verify-full&a=b'],
  ['DATABASE_URL', 'postgres://db/x?sslmode=verify-ca', 'databaseUrl', 'postgres://db/x?sslmode=verify-full'],
  ['DATABASE_URL', 'postgres://db/x?sslmode=no-verify', 'databaseUrl', 'postgres://db/x?sslmode=no-verify'],
  [
    'DATABASE_URL',
    'postgres://db/x?uselibpqcompat=true&sslmode=require',
    'databaseUrl',
    'postgres://db/x?uselibpqcompat=true&sslmode=require',
  ],
  ['DATABASE_URL', 'postgresql:///x?host=/run/pg', 'databaseUrl', 'postgresql:///x?host=/run/pg'],
  ['DATABASE_URL', 'postgres://me@/x?host=/run/pg', 'databaseUrl', 'postgres://me@/x?host=/run/pg'],
  ['DATA_DIR', 'some where', 'dataDir', path.resolve('some where')],
  ['LOG_LEVEL', 'silent', 'logLevel', 'silent'],
  ['BASE_PATH', '/', 'http.basePath', ''],
  ['BASE_PATH', '/flow/trail.v1', 'http.basePath', '/flow/trail.v1'],
  ['PUBLIC_URL', 'https://flows.example.com', 'http.publicUrl', 'https://flows.example.com'],
  ['PUBLIC_URL', 'HTTP://Flows.example.com:8080//', 'http.publicUrl', 'http://flows.example.com:8080'],
  ['CORS_ORIGINS', '*', 'http.corsOrigins', ['*']],
  [
    'CORS_ORIGINS',
    'https://a.example, http://localhost:5173',
    'http.corsOrigins',
    ['https://a.example', 'http://localhost:5173'],
  ],
  ['RATE_LIMIT_PER_MINUTE', '600', 'http.rateLimitPerMinute', 600],
  ['TRUST_PROXY', 'true', 'http.trustProxy', true],
  ['TRUST_PROXY', '10.0.0.0/8, ::1', 'http.trustProxy', '10.0.0.0/8, ::1'],
  ['IDEMPOTENCY_RETENTION_DAYS', '1', 'idempotencyRetention_days', 1],
  ['IDEMPOTENCY_RETENTION_DAYS', '3650', 'idempotencyRetention_days', 3_650],
  ['MAX_CONNECTIONS', '1', 'http.maxConnections', 1],
  ['MAX_CONNECTIONS', '100000', 'http.maxConnections', 100_000],
  ['IMPORT_CONNECTIONS', '2', 'connections.import', 2],
  ['IMPORT_MAX_BYTES', '1024', 'http.maxImport_bytes', 1_024],
  ['IMPORT_MAX_BYTES', '999999999', 'http.maxImport_bytes', 999_999_999],
  ['MAX_FOLLOWERS', '1', 'http.maxFollowers', 1],
  ['MAX_FOLLOWERS', '100000', 'http.maxFollowers', 100_000],
  ['READ_CONNECTIONS', '1', 'connections.read', 1],
  ['READ_CONNECTIONS', '100', 'connections.read', 100],
  ['WRITE_CONNECTIONS', '2', 'connections.write', 2],
  ['WRITE_CONNECTIONS', '100', 'connections.write', 100],
  ['STATEMENT_TIMEOUT_MS', '1000', 'connections.statementTimeout_ms', 1_000],
  ['STATEMENT_TIMEOUT_MS', '600000', 'connections.statementTimeout_ms', 600_000],
  ['SLOW_REQUEST_MS', '1', 'http.slowRequest_ms', 1],
  ['SLOW_REQUEST_MS', '600000', 'http.slowRequest_ms', 600_000],
  ['DRAIN_DELAY', '0', 'server.drainDelay_ms', 0],
  ['DRAIN_DELAY', '600', 'server.drainDelay_ms', 600_000],
  ['DRAIN_TIMEOUT_MS', '1', 'server.drainTimeout_ms', 1],
  ['DRAIN_TIMEOUT_MS', '600000', 'server.drainTimeout_ms', 600_000],
  ['QUEUE_SIZE', '1', 'recorder.maxQueuedEvents', 1],
  ['QUEUE_SIZE', '100000', 'recorder.maxQueuedEvents', 100_000],
  ['QUEUE_TIMEOUT_MS', '100', 'recorder.maxQueueWait_ms', 100],
  ['QUEUE_TIMEOUT_MS', '120000', 'recorder.maxQueueWait_ms', 120_000],
  ['LOCK_TIMEOUT_MS', '10', 'recorder.lockTimeout_ms', 10],
  ['LOCK_TIMEOUT_MS', '900', 'recorder.lockTimeout_ms', 900],
  ['BATCH_SIZE', '1', 'recorder.maxBatchSize', 1],
  ['BATCH_SIZE', '1000', 'recorder.maxBatchSize', 1_000],
])('%s=%s is accepted, and counts as unset when empty', (name, value, location, expected) => {
  expect(readConfig({ [name]: value })).toEqual(withSetting(location, expected))
  expect(readConfig({ [name]: '' })).toEqual(DEFAULTS)
})

test('DATABASE_REPLICA_URLS are several, of the database of DATABASE_URL', () => {
  const DATABASE_URL = 'postgres://db/x'
  const read = (DATABASE_REPLICA_URLS: string) =>
    readConfig({ DATABASE_URL, DATABASE_REPLICA_URLS }).databaseReplicaUrls
  expect(read('postgres://one/x, postgres://two/x?sslmode=require')).toEqual([
    'postgres://one/x',
    'postgres://two/x?sslmode=verify-full',
  ])
  expect(read('')).toEqual([])
  const prefix = 'Invalid configuration: DATABASE_REPLICA_URLS: '
  expect(() => read('postgres://one/x,two')).toThrow(`${prefix}must be a PostgreSQL connection string`)
  expect(() => read('postgres://one/x,postgres://app@one:5432/x')).toThrow(`${prefix}names a server twice`)
  expect(() => readConfig({ DATABASE_REPLICA_URLS: 'postgres://one/x' })).toThrow(
    `${prefix}set DATABASE_URL, too, to their primary server`,
  )
})

test.each<[string, string[], string]>([
  ['HOST', ['a b', 'http://localhost', 'localhost:3000'], 'Invalid host'],
  ['PORT', ['65536', '-1', '3e3', '080', ' 80', '80.0', 'http'], 'must be an integer from 0 to 65535'],
  ['WORKERS', ['0', '65', '-1', '1.5', 'auto'], 'must be an integer from 1 to 64'],
  ['ADMIN_HOST', ['a b', 'localhost:3000'], 'Invalid host'],
  ['ADMIN_PORT', ['0', '65536', 'off'], 'must be an integer from 1 to 65535'],
  [
    'DATABASE_URL',
    ['mysql://x', 'db:5432', 'postgres'],
    'must be a PostgreSQL connection string such as postgres://user:password@host:5432/flowtrail',
  ],
  [
    'DATABASE_URL',
    ['postgres://u:a/b@db/x', 'postgres://u:a#b@db/x', 'postgres://u:a?b@db/x'],
    'must be a PostgreSQL connection string such as postgres://user:password@host:5432/flowtrail, its reserved characters percent-encoded: / as %2F, # as %23',
  ],
  [
    'DATABASE_URL',
    ['postgres://db/x?pgbouncer=1', 'postgres://db/x?pgbouncer=&a=b'],
    'its parameter pgbouncer must be true or omitted',
  ],
  [
    'DATABASE_URL',
    ['postgres://db/x?sslmode=verify-full&sslrootcert=/nowhere/ca.pem'],
    "ENOENT: no such file or directory, open '/nowhere/ca.pem'",
  ],
  ['LOG_LEVEL', ['loud', 'INFO'], 'not in choices [fatal,error,warn,info,debug,trace,silent]'],
  [
    'BASE_PATH',
    ['flowtrail', '/a/', '//', '/a//b', '/..', '/a/./b', '/a b', '/é', '/%41', '/:id', '/*'],
    'must be a path such as /flowtrail, without a trailing slash',
  ],
  [
    'PUBLIC_URL',
    [
      'flows.example.com',
      '/flowtrail',
      'ftp://a.example',
      'https://a.example?',
      'https://a.example#x',
      'https://u:p@a.example',
    ],
    'must be an http or https URL without query, such as https://flows.example.com',
  ],
  [
    'CORS_ORIGINS',
    ['a.example', 'https://a.example/', 'https://a.example/x', 'null', 'https://A.example', '*,', 'https://*.example/'],
    'must be * or comma-separated origins',
  ],
  ['RATE_LIMIT_PER_MINUTE', ['0', '-1', '1.5', '1e3', '1000000000', 'off'], 'must be an integer from 1 to 999999999'],
  [
    'TRUST_PROXY',
    ['yes', '1', 'cafe', '10.0.0', '10.0.0.0/33', '10.0.0.0/0', '10.0.0.0/8/8', '::1/129', '10.0.0.1,'],
    'must be true, false, or comma-separated addresses or networks',
  ],
  ['MAX_CONNECTIONS', ['0', '100001', '1k'], 'must be an integer from 1 to 100000'],
  ['IMPORT_CONNECTIONS', ['1', '101'], 'must be an integer from 2 to 100'],
  ['IMPORT_MAX_BYTES', ['1023', '1000000000', '16M'], 'must be an integer from 1024 to 999999999'],
  ['MAX_FOLLOWERS', ['0', '100001', '1k'], 'must be an integer from 1 to 100000'],
  ['READ_CONNECTIONS', ['0', '101', '-1', '2.5', 'many'], 'must be an integer from 1 to 100'],
  ['WRITE_CONNECTIONS', ['1', '101', '1e1'], 'must be an integer from 2 to 100'],
  ['STATEMENT_TIMEOUT_MS', ['0', '999', '600001', '10s'], 'must be an integer from 1000 to 600000'],
  ['SLOW_REQUEST_MS', ['0', '600001'], 'must be an integer from 1 to 600000'],
  ['DRAIN_DELAY', ['-1', '601', '00', '1.5', '5s'], 'must be an integer from 0 to 600'],
  ['DRAIN_TIMEOUT_MS', ['0', '600001', '25s'], 'must be an integer from 1 to 600000'],
  ['QUEUE_SIZE', ['0', '100001', '2_000'], 'must be an integer from 1 to 100000'],
  ['QUEUE_TIMEOUT_MS', ['99', '120001', '10s'], 'must be an integer from 100 to 120000'],
  ['LOCK_TIMEOUT_MS', ['9', '901', '500ms'], 'must be an integer from 10 to 900'],
  ['BATCH_SIZE', ['0', '1001', 'all'], 'must be an integer from 1 to 1000'],
])('%s is refused when it is one of %j', (name, values, message) => {
  for (const value of values) {
    expect(() => readConfig({ [name]: value }), value).toThrow(`Invalid configuration: ${name}: `)
    expect(() => readConfig({ [name]: value }), value).toThrow(message)
  }
})

test('a one-line message lists every invalid setting, without any password', () => {
  const read = () => readConfig({ PORT: 'x', LOG_LEVEL: 'y', DATABASE_URL: 'mysql://user:secret@db' })
  expect(read).toThrow(/^Invalid configuration: (?=.*PORT: )(?=.*LOG_LEVEL: )(?=.*DATABASE_URL: )(?!.*secret).*$/)
})

test('a one-line message lists all settings that contradict others', () => {
  const DATABASE_REPLICA_URLS = 'postgres://one/x'
  expect(() => readConfig({ DATABASE_REPLICA_URLS, ADMIN_HOST: '10.0.0.5', BASE_PATH: '/a' })).toThrow(
    /^Invalid configuration: DATABASE_REPLICA_URLS: .*; ADMIN_HOST: [^;]*$/,
  )
})

test('ADMIN_HOST alone is refused, since it has no effect', () => {
  expect(() => readConfig({ ADMIN_HOST: '10.0.0.5' })).toThrow(
    'Invalid configuration: ADMIN_HOST: set ADMIN_PORT, too, or metrics stay on PORT',
  )
})

test('ADMIN_HOST is HOST unless it is set', () => {
  const settings = { HOST: '0.0.0.0', ADMIN_PORT: '9464' }
  expect(readConfig(settings).server.admin).toEqual({ host: '0.0.0.0', port: 9464 })
  expect(readConfig({ ...settings, ADMIN_HOST: '::1' }).server.admin).toEqual({ host: '::1', port: 9464 })
})

test('PUBLIC_URL has the path of BASE_PATH', () => {
  const PUBLIC_URL = 'https://flows.example.com/a'
  expect(readConfig({ PUBLIC_URL, BASE_PATH: '/a' }).http.publicUrl).toBe(PUBLIC_URL)
  for (const [BASE_PATH, shown] of [
    ['', 'not set'],
    ['/b', '/b'],
  ]) {
    expect(() => readConfig({ PUBLIC_URL, BASE_PATH })).toThrow(
      `Invalid configuration: PUBLIC_URL: its path must be BASE_PATH, which is ${shown}: set both alike`,
    )
  }
})

test('the port of the admin listener must be another', () => {
  expect(() => readConfig({ PORT: '9000', ADMIN_PORT: '9000' })).toThrow(
    'Invalid configuration: ADMIN_PORT: it must not be PORT',
  )
})

describe('traces', () => {
  const ENDPOINT = 'OTEL_EXPORTER_OTLP_ENDPOINT'
  const URL = 'http://collector:4318'
  const TRACED: Config['tracing'] = {
    exporter: {
      protocol: 'http/protobuf',
      url: 'http://localhost:4318/v1/traces',
      headers: {},
      timeout_ms: 10_000,
      compression: 'none',
    },
    sampler: 'parentbased_always_on',
    samplerRatio: 1,
    collector: { delay_ms: 5_000, timeout_ms: 20_000, maxQueuedSpans: 2_048, maxExportedSpans: 512 },
    resource: {},
  }
  const tracing = (settings: Record<string, string>) =>
    readConfig({ OTEL_TRACES_EXPORTER: 'otlp', ...settings }).tracing

  test('are wanted when an exporter or its endpoint is named, and nothing speaks against it', () => {
    expect(readConfig({ OTEL_TRACES_EXPORTER: 'otlp' }).tracing).toEqual(TRACED)
    const atCollector = { ...TRACED, exporter: { ...TRACED.exporter, url: `${URL}/v1/traces` } }
    expect(readConfig({ [ENDPOINT]: URL }).tracing).toEqual(atCollector)
    expect(readConfig({ [ENDPOINT]: `${URL}/`, OTEL_SDK_DISABLED: 'false' }).tracing).toEqual(atCollector)
    expect(readConfig({ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${URL}/x` }).tracing?.exporter.url).toBe(`${URL}/x`)
  })

  test.each([
    { OTEL_TRACES_EXPORTER: '', [ENDPOINT]: '' },
    { OTEL_SERVICE_NAME: 'flows', OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc', OTEL_TRACES_SAMPLER: 'sometimes' },
    { OTEL_TRACES_EXPORTER: 'otlp', OTEL_SDK_DISABLED: 'TRUE' },
    { OTEL_TRACES_EXPORTER: 'none', [ENDPOINT]: URL },
  ])('are not wanted with %j, whose settings are not looked at', (settings) => {
    expect(readConfig(settings).tracing).toBeUndefined()
  })

  test.each<[string, string, object]>([
    ['OTEL_TRACES_SAMPLER', 'traceidratio', { sampler: 'traceidratio' }],
    ['OTEL_TRACES_SAMPLER_ARG', '0.25', { samplerRatio: 0.25 }],
    ['OTEL_TRACES_SAMPLER_ARG', '0', { samplerRatio: 0 }],
    ['OTEL_TRACES_SAMPLER_ARG', '1.0', { samplerRatio: 1 }],
    ['OTEL_SERVICE_NAME', 'flows', { resource: { 'service.name': 'flows' } }],
    ['OTEL_RESOURCE_ATTRIBUTES', 'a=b%2Cc, d = ', { resource: { a: 'b,c', d: '' } }],
    ['OTEL_BSP_SCHEDULE_DELAY', '1', { collector: { delay_ms: 1 } }],
    ['OTEL_BSP_EXPORT_TIMEOUT', '20000', { collector: { timeout_ms: 20_000 } }],
    ['OTEL_BSP_MAX_QUEUE_SIZE', '7', { collector: { maxQueuedSpans: 7, maxExportedSpans: 7 } }],
    ['OTEL_BSP_MAX_EXPORT_BATCH_SIZE', '7', { collector: { maxQueuedSpans: 2_048, maxExportedSpans: 7 } }],
  ])('%s=%s is accepted', (name, value, expected) => {
    expect(tracing({ [name]: value })).toMatchObject(expected)
  })

  test.each<[string, string, string, object]>([
    ['PROTOCOL', 'http/json', 'http/protobuf', { protocol: 'http/json' }],
    ['TIMEOUT', '20000', '1', { timeout_ms: 20_000 }],
    ['COMPRESSION', 'gzip', 'none', { compression: 'gzip' }],
    ['HEADERS', 'authorization=Bearer%20x%3D', 'authorization=other', { headers: { authorization: 'Bearer x=' } }],
  ])('%s=%s is of all signals, or of traces alone', (name, value, other, expected) => {
    const [general, own] = [`OTEL_EXPORTER_OTLP_${name}`, `OTEL_EXPORTER_OTLP_TRACES_${name}`]
    expect(tracing({ [general]: value })?.exporter).toMatchObject(expected)
    expect(tracing({ [general]: other, [own]: value })?.exporter).toMatchObject(expected)
  })

  test('the name of the service comes before that among the attributes', () => {
    const settings = { OTEL_SERVICE_NAME: 'flows', OTEL_RESOURCE_ATTRIBUTES: 'service.name=other,x=y' }
    expect(tracing(settings)?.resource).toEqual({ 'service.name': 'flows', x: 'y' })
  })

  test.each<[string, string[], string]>([
    ['OTEL_TRACES_EXPORTER', ['zipkin', 'otlp,console'], 'not in choices [otlp,none]'],
    ['OTEL_TRACES_SAMPLER', ['sometimes'], 'not in choices [always_on,'],
    ['OTEL_TRACES_SAMPLER_ARG', ['1.01', '-1', 'half', '.'], 'must be a number from 0 to 1'],
    ['OTEL_RESOURCE_ATTRIBUTES', ['a', '=b', 'a=b,', 'a=%zz'], 'must be key=value pairs'],
    [ENDPOINT, ['collector:4318', 'grpc://collector'], 'must be an http or https URL'],
    ['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', ['collector'], 'must be an http or https URL'],
    ['OTEL_EXPORTER_OTLP_PROTOCOL', ['grpc'], 'not in choices [http/protobuf,http/json]'],
    ['OTEL_EXPORTER_OTLP_TRACES_TIMEOUT', ['0', '20001', '10s'], 'must be an integer from 1 to 20000'],
    ['OTEL_EXPORTER_OTLP_COMPRESSION', ['br'], 'not in choices [none,gzip]'],
    ['OTEL_EXPORTER_OTLP_CERTIFICATE', ['/nowhere/ca.pem', import.meta.dirname], 'must be a file that can be read'],
    ['OTEL_EXPORTER_OTLP_CLIENT_KEY', [import.meta.filename], 'must be a file in the PEM format'],
    ['OTEL_BSP_SCHEDULE_DELAY', ['0', '600001'], 'must be an integer from 1 to 600000'],
    ['OTEL_BSP_EXPORT_TIMEOUT', ['0', '20001'], 'must be an integer from 1 to 20000'],
    ['OTEL_BSP_MAX_QUEUE_SIZE', ['0', '1000001'], 'must be an integer from 1 to 1000000'],
    ['OTEL_BSP_MAX_EXPORT_BATCH_SIZE', ['0', '100001'], 'must be an integer from 1 to 100000'],
  ])('%s is refused when it is one of %j', (name, values, message) => {
    for (const value of values) {
      expect(() => tracing({ [name]: value }), value).toThrow(`Invalid configuration: ${name}: `)
      expect(() => tracing({ [name]: value }), value).toThrow(message)
    }
  })

  test('invalid settings are listed with the others, without any password', () => {
    const read = () => tracing({ OTEL_EXPORTER_OTLP_HEADERS: 'secret', OTEL_TRACES_SAMPLER: 'x', PORT: 'x' })
    expect(read).toThrow(
      /^Invalid configuration: (?=.*PORT: )(?=.*OTEL_TRACES_SAMPLER: )(?=.*OTEL_EXPORTER_OTLP_HEADERS: )(?!.*secret).*$/,
    )
  })
})
