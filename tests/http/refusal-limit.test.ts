import { setImmediate } from 'node:timers/promises'
import pg from 'pg'
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { formatKey, generateKey, parseKey, SCOPES } from '../../src/domain/api-key.ts'
import { toIsoTimestamp } from '../../src/domain/timestamp.ts'
import { RefusalLimiter } from '../../src/http/refusal-limit.ts'
import { updateKeyRevoked } from '../../src/queries/api-keys.ts'
import { createTestApp, type TestApp } from '../support/app.ts'

// 20.001 seconds before a minute ends.
const START = Date.parse('2026-03-01T09:30:39.999Z')
const MINUTE_ms = 60_000

beforeEach(() => void vi.useFakeTimers({ toFake: ['Date', 'performance'], now: START }))
afterEach(() => void vi.useRealTimers())

const absent = async () => undefined
const found = async () => 'key'

/** How many of as many look-ups at once from an address found no key, found one, and were refused without a look-up. */
async function lookUp(limiter: RefusalLimiter, address: string, count: number, find: () => Promise<unknown> = absent) {
  const results = await Promise.allSettled(Array.from({ length: count }, () => limiter.lookUp(address, find)))
  const countOf = (is: (result: PromiseSettledResult<unknown>) => boolean) => results.filter(is).length
  return {
    absent: countOf((result) => result.status === 'fulfilled' && result.value === undefined),
    found: countOf((result) => result.status === 'fulfilled' && result.value !== undefined),
    refused: countOf((result) => result.status === 'rejected' && result.reason.errorCode === 'rate_limited'),
  }
}

test('refusals by other workers count, and they are told of those here', async () => {
  const told: string[] = []
  let onRefusal = (_: string) => {}
  const limiter = new RefusalLimiter({
    shareRefusals: (listener) => {
      onRefusal = listener
      return (address) => void told.push(address)
    },
  })
  for (let i = 0; i < 58; i += 1) onRefusal('192.0.2.1')
  expect(await lookUp(limiter, '192.0.2.1', 1)).toEqual({ absent: 1, found: 0, refused: 0 })
  expect(limiter.refuse('192.0.2.1').errorCode).toBe('unauthorized')
  expect(limiter.refuse('192.0.2.1').errorCode).toBe('rate_limited')
  expect(await lookUp(limiter, '192.0.2.1', 1)).toEqual({ absent: 0, found: 0, refused: 1 })
  expect(told).toEqual(['192.0.2.1', '192.0.2.1'])
})

describe('look-ups of unknown keys', () => {
  test('at once are bounded like those one after another', async () => {
    const limiter = new RefusalLimiter()
    const find = vi.fn(absent)
    expect(await lookUp(limiter, '192.0.2.1', 1_000, find)).toEqual({ absent: 60, found: 0, refused: 940 })
    expect(find).toHaveBeenCalledTimes(60)
  })

  test('that find a key wait for each other, but none is refused', async () => {
    const limiter = new RefusalLimiter()
    await lookUp(limiter, '192.0.2.1', 20)
    let [underWay, most] = [0, 0]
    const find = async () => {
      most = Math.max(most, ++underWay)
      await setImmediate()
      underWay -= 1
      return 'key'
    }
    expect(await lookUp(limiter, '192.0.2.1', 1_000, find)).toEqual({ absent: 0, found: 1_000, refused: 0 })
    expect(most).toBe(40)
  })

  test('that wait go on when the others end in any order, and are refused when too many find nothing', async () => {
    const limiter = new RefusalLimiter()
    const pending = Array.from({ length: 60 }, () => Promise.withResolvers<string | undefined>())
    const settled = pending.map(({ promise }) => limiter.lookUp('192.0.2.1', () => promise))
    const waiting = lookUp(limiter, '192.0.2.1', 10, found)
    pending.at(-1)?.resolve(undefined)
    await settled.at(-1)
    await setImmediate()
    for (const { resolve } of pending.slice(1)) resolve(undefined)
    await setImmediate()
    pending[0]?.resolve('key')
    expect(await waiting).toEqual({ absent: 0, found: 10, refused: 0 })
    limiter.refuse('192.0.2.1')
    expect(await lookUp(limiter, '192.0.2.1', 1, found)).toEqual({ absent: 0, found: 0, refused: 1 })
  })

  test('that wait fail with the one that they wait for, and failures do not count', async () => {
    const limiter = new RefusalLimiter()
    const find = vi.fn(async () => {
      await setImmediate()
      throw new Error('away')
    })
    const results = await Promise.allSettled(Array.from({ length: 100 }, () => limiter.lookUp('192.0.2.1', find)))
    expect(results.filter((result) => result.status === 'rejected' && result.reason.message === 'away')).toHaveLength(
      100,
    )
    expect(find).toHaveBeenCalledTimes(60)
    expect(await lookUp(limiter, '192.0.2.1', 61)).toEqual({ absent: 60, found: 0, refused: 1 })
  })

  test('count again in the next minute of the clock', async () => {
    const limiter = new RefusalLimiter()
    await lookUp(limiter, '192.0.2.1', 60)
    vi.setSystemTime(START + 20_000)
    expect((await lookUp(limiter, '192.0.2.1', 1)).refused).toBe(1)
    vi.setSystemTime(START + 20_001)
    expect((await lookUp(limiter, '192.0.2.1', 61)).refused).toBe(1)
  })
})

test.each([
  ['192.0.2.1', '192.0.2.2', false],
  ['::ffff:192.0.2.1', '::ffff:192.0.2.2', false],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2:ffff::', true],
  ['2001:db8:1:2::1', '2001:db8:1:3::1', false],
  ['2001:db8:1:2::1', '2002:db8:1:2::1', false],
  ['2001:db8::1', '2001:db8:0:0:2::', true],
  ['2001:db8::1', '2001:db8:0:1::1', false],
  ['::1', '::2', true],
  ['::1', '0:0:0:0:1::', true],
  ['1::3:4:5:6:7:8', '1:0:3:4::', true],
  ['fe80::1%eth0', 'fe80::2%eth0', true],
  // As a proxy may forward it.
  ['1:2:3:4:5:6:7:8%a:b:c', '1:2:3:4::', true],
  ['192.0.2.1:5001', '192.0.2.1', true],
  ['192.0.2.1:5001', '192.0.2.2:5001', false],
  ['[2001:db8:1:2::1]:5001', '2001:db8:1:2::2', true],
  ['[2001:db8:1:2::1]:5001', '[2001:db8:1:3::1]:5001', false],
  ['unknown', '192.0.2.1:port', true],
  ['unknown', '[192.0.2.1', true],
  ['unknown', '2001:db8:1:2:3:4:5:6:80', true],
  ['unknown', '192.0.2.1', false],
])('%s and %s are one client: %s', async (first, second, isOne) => {
  const limiter = new RefusalLimiter()
  await lookUp(limiter, first, 60)
  expect((await lookUp(limiter, second, 1)).refused).toBe(isOne ? 1 : 0)
})

test('of more than 10,000 clients the first is forgotten', async () => {
  const limiter = new RefusalLimiter()
  const address = (i: number) => `10.0.${i >> 8}.${i & 255}`
  await lookUp(limiter, address(0), 60)
  await lookUp(limiter, address(1), 60)
  for (let i = 2; i < 10_000; i += 1) limiter.refuse(address(i))
  expect((await lookUp(limiter, address(0), 1)).refused).toBe(1)
  limiter.refuse(address(10_000))
  expect((await lookUp(limiter, address(1), 1)).refused).toBe(1)
  expect((await lookUp(limiter, address(0), 1)).refused).toBe(0)
})

describe('requests of an address', () => {
  let api: TestApp
  beforeEach(async () => {
    api = await createTestApp({ config: { trustProxy: true } })
  })
  afterEach(() => api.close())

  const newKey = () => createKey(api.db, 'demo', { name: '', scopes: SCOPES, expires_at: null })
  const unknownKey = async () => formatKey(generateKey())

  async function request(key: string, address = '192.0.2.1', project = 'demo') {
    return api.call({ path: `/projects/${project}/modules`, key, headers: { 'x-forwarded-for': address } })
  }

  /** The statuses of requests one after another, each with a key of its own. */
  async function statuses(count: number, key: () => Promise<string>) {
    const seen: number[] = []
    for (let i = 0; i < count; i += 1) seen.push((await request(await key())).statusCode)
    return seen
  }

  test('get 429 after 60 with unknown keys, without a look-up, until the minute is over', async () => {
    expect(await statuses(60, unknownKey)).toEqual(Array(60).fill(401))
    const query = vi.spyOn(pg.Client.prototype, 'query')
    onTestFinished(() => query.mockRestore())
    const refused = await request(await unknownKey())
    // The last uses of keys are written a while after the requests of earlier tests.
    const isLate = ([statement]: unknown[]) => JSON.stringify(statement).includes('update \\"api_keys\\"')
    expect(query.mock.calls.filter((call) => !isLate(call))).toEqual([])
    expect(refused.statusCode).toBe(429)
    expect(refused.json()).toEqual({
      error: {
        code: 'rate_limited',
        message:
          'Too many requests with keys that give no access came from this address. Check key and project, and retry after Retry-After seconds.',
      },
      projectId: 'demo',
    })
    expect(refused.headers).toMatchObject({
      'retry-after': '21',
      ratelimit: '"refused-keys";r=0;t=21',
      'ratelimit-policy': '"refused-keys";q=60;w=60',
    })
    expect((await request(await unknownKey(), '192.0.2.2')).statusCode).toBe(401)
    // A malformed key costs no look-up.
    expect((await request('ft_')).statusCode).toBe(401)
    vi.setSystemTime(START + 20_001)
    expect((await request(await unknownKey())).statusCode).toBe(401)
  })

  test('with a key that was accepted before are not affected, also when it was idle; those with a new one are', async () => {
    const [neighbour, fresh] = [await newKey(), await newKey()]
    expect((await request(neighbour)).statusCode).toBe(200)
    await statuses(60, unknownKey)
    expect((await request(neighbour)).statusCode).toBe(200)
    vi.advanceTimersByTime(15_000)
    expect((await request(neighbour)).statusCode).toBe(200)
    expect((await request(fresh)).statusCode).toBe(429)
    expect((await request(fresh, '192.0.2.2')).statusCode).toBe(200)
    expect((await request(fresh)).statusCode).toBe(200)
  })

  test('do not tell a key or a project that exists from one that does not', async () => {
    const { key_id } = parseKey(api.key) ?? {}
    const guessed = async () => formatKey({ ...generateKey(), key_id: key_id ?? '' })
    const revoked = await newKey()
    await request(revoked)
    await updateKeyRevoked(api.db, 'demo', parseKey(revoked)?.key_id ?? '', toIsoTimestamp(new Date()))
    vi.advanceTimersByTime(1_000)
    for (const key of [unknownKey, guessed, async () => revoked]) {
      vi.setSystemTime(Date.now() + MINUTE_ms)
      expect(await statuses(61, key)).toEqual([...Array(60).fill(401), 429])
    }
    const bodies = [
      await request(await unknownKey()),
      await request(await guessed()),
      await request(revoked),
      await request(api.key, undefined, 'other'),
      await request(api.key, undefined, 'nowhere'),
    ].map(({ body }) => body.replace(/"projectId":"\w+"/, ''))
    expect(new Set(bodies).size).toBe(1)
    expect(bodies[0]).toContain('rate_limited')
  })
})
