import { setImmediate } from 'node:timers/promises'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { ApiKeyCache } from '../../src/http/api-key-cache.ts'

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['performance'] })
  // Not at the start of the clock, where instants and durations would be the same.
  vi.advanceTimersByTime(10_000)
})
afterEach(() => void vi.useRealTimers())

/** A `load` whose calls the test settles itself. */
function pendingLoads() {
  const loads: PromiseWithResolvers<string | undefined>[] = []
  const load = () => {
    const pending = Promise.withResolvers<string | undefined>()
    loads.push(pending)
    return pending.promise
  }
  return { load, loads }
}

const loadOf = (key: string | undefined) => vi.fn(async () => key)

test('a key is cached for less than a second from the start of its load, not from its end', async () => {
  const cache = new ApiKeyCache<string>()
  const { load, loads } = pendingLoads()
  const first = cache.get('k', load)
  vi.advanceTimersByTime(300)
  loads[0]?.resolve('old')
  expect(await first).toBe('old')
  vi.advanceTimersByTime(699)
  expect(cache.get('k', load)).toBe('old')
  vi.advanceTimersByTime(1)
  const later = cache.get('k', load)
  loads[1]?.resolve('new')
  expect(await later).toBe('new')
})

test('a key in steady use is refreshed before it expires, and no caller waits for that', async () => {
  const cache = new ApiKeyCache<string>()
  const [before, after] = [loadOf('old'), loadOf('new')]
  await cache.get('k', before)
  vi.advanceTimersByTime(399)
  expect(cache.get('k', after)).toBe('old')
  expect(after).not.toHaveBeenCalled()
  vi.advanceTimersByTime(1)
  expect(cache.get('k', after)).toBe('old')
  expect(after).toHaveBeenCalledOnce()
  await setImmediate()
  expect(cache.get('k', after)).toBe('new')
})

test('a failed refresh fails no caller, and a failed load fails those that wait for it', async () => {
  const cache = new ApiKeyCache<string>()
  const fail = () => Promise.reject(new Error('away'))
  await cache.get('k', loadOf('known'))
  vi.advanceTimersByTime(999)
  expect(cache.get('k', fail)).toBe('known')
  await setImmediate()
  expect(cache.get('k', fail)).toBe('known')
  await setImmediate()
  vi.advanceTimersByTime(1)
  await expect(cache.get('k', fail)).rejects.toThrow('away')
})

test('concurrent callers share one load, unless it started a second ago', async () => {
  const cache = new ApiKeyCache<string>()
  const { load, loads } = pendingLoads()
  const waiting = [cache.get('k', load), cache.get('k', load)]
  vi.advanceTimersByTime(999)
  waiting.push(cache.get('k', load))
  expect(loads).toHaveLength(1)
  vi.advanceTimersByTime(1)
  const later = cache.get('k', load)
  expect(loads).toHaveLength(2)
  loads[1]?.resolve('new')
  expect(await later).toBe('new')
  loads[0]?.resolve('old')
  expect(await Promise.all(waiting)).toEqual(['old', 'old', 'old'])
  expect(cache.get('k', load)).toBe('new')
})

test('a key that does not exist is not cached', async () => {
  const cache = new ApiKeyCache<string>()
  const absent = loadOf(undefined)
  expect(await cache.get('k', absent)).toBeUndefined()
  expect(await cache.get('k', loadOf('made now'))).toBe('made now')
})

test('of more than 10,000 keys the one loaded longest ago is evicted', async () => {
  const cache = new ApiKeyCache<string>()
  for (let i = 0; i <= 10_000; i += 1) await cache.get(`k${i}`, async () => 'key')
  const again = loadOf('key')
  expect(cache.get('k1', again)).toBe('key')
  expect(again).not.toHaveBeenCalled()
  await cache.get('k0', again)
  expect(again).toHaveBeenCalledOnce()
})

test('of a full cache the key loaded longest ago is evicted, not the one cached first', async () => {
  const cache = new ApiKeyCache<string>()
  for (let i = 0; i < 10_000; i += 1) await cache.get(`k${i}`, loadOf('cached'))
  vi.advanceTimersByTime(500)
  cache.get('k0', loadOf('refreshed'))
  await setImmediate()
  await cache.get('new', loadOf('new'))
  expect(cache.get('k0', loadOf(undefined))).toBe('refreshed')
  expect(await cache.get('k1', loadOf('loaded again'))).toBe('loaded again')
})
