import { AsyncLocalStorage } from 'node:async_hooks'
import { setImmediate } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { ApiKeyCache } from '../../src/http/api-key-cache.ts'

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['performance'] })
  // Not at the start of the clock, where instants and durations would be the same.
  vi.advanceTimersByTime(10_000)
})
afterEach(() => void vi.useRealTimers())

/** No fingerprint: keys are loaded each by itself. */
const unknown = () => Promise.reject(new Error('away'))

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
  const cache = new ApiKeyCache<string>(unknown)
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
  const cache = new ApiKeyCache<string>(unknown)
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

test('the fingerprint is asked for once a key in use was loaded 400 ms ago', async () => {
  const readFingerprint = vi.fn(async () => 'same')
  const cache = new ApiKeyCache<string>(readFingerprint)
  await cache.get('k', loadOf('key'))
  vi.advanceTimersByTime(399)
  cache.get('k', loadOf('key'))
  expect(readFingerprint).not.toHaveBeenCalled()
  vi.advanceTimersByTime(1)
  cache.get('k', loadOf('key'))
  expect(readFingerprint).toHaveBeenCalledOnce()
})

test('hits and misses are counted', async () => {
  const cache = new ApiKeyCache<string>(unknown)
  expect(cache.counts).toEqual({ hit: 0, miss: 0 })
  await cache.get('k', loadOf('known'))
  cache.get('k', loadOf('known'))
  // A refresh is no miss.
  vi.advanceTimersByTime(500)
  cache.get('k', loadOf('known'))
  await cache.get('other', loadOf(undefined))
  expect(cache.counts).toEqual({ hit: 2, miss: 2 })
})

test('a failed refresh fails no caller, and a failed load fails those that wait for it', async () => {
  const cache = new ApiKeyCache<string>(unknown)
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
  const cache = new ApiKeyCache<string>(unknown)
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
  const cache = new ApiKeyCache<string>(unknown)
  const absent = loadOf(undefined)
  expect(await cache.get('k', absent)).toBeUndefined()
  expect(await cache.get('k', loadOf('made now'))).toBe('made now')
})

test('a key that no longer exists is no longer known', async () => {
  const cache = new ApiKeyCache<string>(unknown)
  await cache.get('k', loadOf('key'))
  vi.advanceTimersByTime(1_000)
  expect(cache.knows('k')).toBe(true)
  expect(await cache.get('k', loadOf(undefined))).toBeUndefined()
  expect(cache.knows('k')).toBe(false)
})

test('of more than 100,000 keys the thousand least recently used are evicted, whenever they were loaded', async () => {
  const cache = new ApiKeyCache<string>(unknown)
  const load = async () => 'key'
  for (let i = 0; i < 100_000; i += 1) await cache.get(`k${i}`, load)
  cache.get('k0', load)
  expect(cache.knows('k1')).toBe(true)
  await cache.get('new', load)
  const known = ['k0', 'k1', 'k1001', 'k1002', 'new'].map((name) => cache.knows(name))
  expect(known).toEqual([true, false, false, true, true])
})

describe('while the fingerprint stays the same', () => {
  /** A cache with this many keys, each loaded, and the fingerprint seen once after. */
  async function watched({ keys = 1 } = {}) {
    const readFingerprint = vi.fn(async () => 'same')
    const load = vi.fn(async (): Promise<string | undefined> => 'loaded')
    const cache = new ApiKeyCache<string>(readFingerprint)
    const names = Array.from({ length: keys }, (_, i) => `k${i}`)
    const useAll = () => Promise.all(names.map((name) => cache.get(name, load)))
    await useAll()
    vi.advanceTimersByTime(400)
    await useAll()
    await setImmediate()
    // Loaded after the first fingerprint had come, so that the next ones tell whether they have changed.
    vi.advanceTimersByTime(1_000)
    await useAll()
    load.mockClear()
    readFingerprint.mockClear()
    return { cache, load, readFingerprint, useAll }
  }

  test('thousands of keys are kept by one query in 400 ms, whether each is used often or not', async () => {
    const { cache, load, readFingerprint, useAll } = await watched({ keys: 3_000 })
    for (let i = 0; i < 20; i += 1) {
      vi.advanceTimersByTime(400)
      expect(cache.get('k0', load)).toBe('loaded')
      await setImmediate()
    }
    expect(await useAll()).toEqual(Array(3_000).fill('loaded'))
    expect(load).not.toHaveBeenCalled()
    expect(readFingerprint).toHaveBeenCalledTimes(20)
  })

  test('a key is known from when the fingerprint was asked for, not from when it came', async () => {
    const { cache, load, readFingerprint } = await watched()
    const answer = Promise.withResolvers<string>()
    readFingerprint.mockReturnValueOnce(answer.promise).mockRejectedValue(new Error('away'))
    vi.advanceTimersByTime(500)
    expect(cache.get('k0', load)).toBe('loaded')
    vi.advanceTimersByTime(300)
    answer.resolve('same')
    await setImmediate()
    vi.advanceTimersByTime(699)
    expect(cache.get('k0', loadOf('again'))).toBe('loaded')
    vi.advanceTimersByTime(1)
    expect(await cache.get('k0', loadOf('again'))).toBe('again')
  })

  test('no key is loaded by a query of its own while a fingerprint is under way, until it is a second old', async () => {
    const { cache, load, readFingerprint } = await watched()
    readFingerprint.mockReturnValue(new Promise(() => {}))
    vi.advanceTimersByTime(999)
    expect(cache.get('k0', load)).toBe('loaded')
    expect(load).not.toHaveBeenCalled()
    vi.advanceTimersByTime(1)
    await cache.get('k0', load)
    expect(load).toHaveBeenCalledOnce()
    vi.advanceTimersByTime(500)
    expect(cache.get('k0', load)).toBe('loaded')
    expect(readFingerprint).toHaveBeenCalledOnce()
  })

  test('a key is loaded in the background if the fingerprint cannot be read', async () => {
    const { cache, load, readFingerprint } = await watched()
    readFingerprint.mockRejectedValue(new Error('away'))
    vi.advanceTimersByTime(500)
    cache.get('k0', load)
    await setImmediate()
    expect(load).not.toHaveBeenCalled()
    expect(cache.get('k0', load)).toBe('loaded')
    expect(load).toHaveBeenCalledOnce()
  })

  test('it is asked for in the context of no request', async () => {
    const { cache, load, readFingerprint } = await watched()
    const context = new AsyncLocalStorage<string>()
    const contexts: unknown[] = []
    readFingerprint.mockImplementation(async () => {
      contexts.push(context.getStore())
      return 'same'
    })
    vi.advanceTimersByTime(500)
    context.run('a request', () => cache.get('k0', load))
    expect(contexts).toEqual([undefined])
  })

  test('it is not asked for while nobody uses a key', async () => {
    const { cache, load, readFingerprint } = await watched()
    vi.advanceTimersByTime(60_000)
    await setImmediate()
    expect(readFingerprint).not.toHaveBeenCalled()
    await cache.get('k0', load)
    expect(load).toHaveBeenCalledOnce()
  })

  test('a key that was loaded before it was first seen is loaded again', async () => {
    const readFingerprint = vi.fn(async () => 'same')
    const cache = new ApiKeyCache<string>(readFingerprint)
    const { load, loads } = pendingLoads()
    await cache.get('k', loadOf('old'))
    vi.advanceTimersByTime(400)
    cache.get('k', load)
    // Read before the change, while the fingerprint that is under way is read after it.
    loads[0]?.resolve('old')
    await setImmediate()
    for (const elapsed_ms of [450, 450]) {
      vi.advanceTimersByTime(elapsed_ms)
      cache.get('k', () => Promise.reject(new Error('away')))
      await setImmediate()
    }
    expect(readFingerprint.mock.calls.length).toBeGreaterThan(1)
    vi.advanceTimersByTime(100)
    expect(await cache.get('k', loadOf('new'))).toBe('new')
  })

  test('once it differs, each key is loaded again, and none is used a second after it was last the same', async () => {
    const { cache, readFingerprint } = await watched({ keys: 2 })
    vi.advanceTimersByTime(400)
    cache.get('k0', loadOf('unused'))
    await setImmediate()
    readFingerprint.mockResolvedValue('other')
    vi.advanceTimersByTime(400)
    cache.get('k0', loadOf('unused'))
    await setImmediate()
    const again = loadOf('again')
    expect(cache.get('k0', again)).toBe('loaded')
    await setImmediate()
    expect(cache.get('k0', again)).toBe('again')
    expect(again).toHaveBeenCalledOnce()
    vi.advanceTimersByTime(600)
    expect(await cache.get('k1', loadOf(undefined))).toBeUndefined()
  })

  test('it is asked for while it takes no longer than to load the keys in use, a tenth of a millisecond each', async () => {
    const { cache, load, readFingerprint, useAll } = await watched({ keys: 10 })
    readFingerprint.mockImplementation(async () => {
      vi.advanceTimersByTime(1)
      return 'same'
    })
    for (let round = 1; round <= 5; round += 1) {
      vi.advanceTimersByTime(400)
      await useAll()
      await setImmediate()
      expect(readFingerprint).toHaveBeenCalledTimes(round)
    }
    // For those that were in use after the last time.
    vi.advanceTimersByTime(400)
    cache.get('k0', load)
    await setImmediate()
    expect(readFingerprint).toHaveBeenCalledTimes(6)
    for (let round = 0; round < 5; round += 1) {
      vi.advanceTimersByTime(400)
      cache.get('k0', load)
      await setImmediate()
    }
    expect(readFingerprint).toHaveBeenCalledTimes(6)
  })

  test('a fingerprint that takes longer than to load the keys in use is not asked for, and later tried again', async () => {
    const { cache, load, readFingerprint } = await watched()
    readFingerprint.mockImplementationOnce(async () => {
      vi.advanceTimersByTime(300)
      return 'same'
    })
    vi.advanceTimersByTime(400)
    cache.get('k0', load)
    await setImmediate()
    for (let i = 0; i < 20; i += 1) {
      vi.advanceTimersByTime(400)
      await cache.get('k0', load)
      await setImmediate()
    }
    expect(readFingerprint).toHaveBeenCalledOnce()
    expect(load.mock.calls.length).toBeGreaterThanOrEqual(19)
    for (let i = 0; i < 80; i += 1) {
      vi.advanceTimersByTime(400)
      await cache.get('k0', load)
      await setImmediate()
    }
    expect(readFingerprint.mock.calls.length).toBeGreaterThan(1)
  })
})
