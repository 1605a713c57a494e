import { setImmediate } from 'node:timers/promises'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { KnownKeys } from '../../src/http/api-key-cache.ts'

beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }))
afterEach(() => void vi.useRealTimers())

/** A database that is asked for keys and answers when told. */
function database() {
  const questions: PromiseWithResolvers<string | undefined>[] = []
  const ask = () => {
    const question = Promise.withResolvers<string | undefined>()
    questions.push(question)
    return question.promise
  }
  return { ask, questions, answering: (key: string | undefined) => vi.fn(async () => key) }
}

test('a key is known for less than a second from when it was asked for, not from the answer', async () => {
  const keys = new KnownKeys<string>()
  const { ask, questions } = database()
  const first = keys.find('k', ask)
  vi.advanceTimersByTime(300)
  questions[0]?.resolve('old')
  expect(await first).toBe('old')
  vi.advanceTimersByTime(699)
  expect(keys.find('k', ask)).toBe('old')
  vi.advanceTimersByTime(1)
  const later = keys.find('k', ask)
  questions[1]?.resolve('new')
  expect(await later).toBe('new')
})

test('a key in steady use is asked for again before it is too old, and nobody waits for that', async () => {
  const keys = new KnownKeys<string>()
  const { answering } = database()
  const [before, after] = [answering('old'), answering('new')]
  await keys.find('k', before)
  vi.advanceTimersByTime(399)
  expect(keys.find('k', after)).toBe('old')
  expect(after).not.toHaveBeenCalled()
  vi.advanceTimersByTime(1)
  expect(keys.find('k', after)).toBe('old')
  expect(after).toHaveBeenCalledOnce()
  await setImmediate()
  expect(keys.find('k', after)).toBe('new')
})

test('a failure beside a known key fails nobody, and one in its place whoever waits', async () => {
  const keys = new KnownKeys<string>()
  const fail = () => Promise.reject(new Error('away'))
  await keys.find('k', database().answering('known'))
  vi.advanceTimersByTime(999)
  expect(keys.find('k', fail)).toBe('known')
  await setImmediate()
  expect(keys.find('k', fail)).toBe('known')
  await setImmediate()
  vi.advanceTimersByTime(1)
  await expect(keys.find('k', fail)).rejects.toThrow('away')
})

test('one question is asked for all who want to know at the same time, unless it is a second old', async () => {
  const keys = new KnownKeys<string>()
  const { ask, questions } = database()
  const waiting = [keys.find('k', ask), keys.find('k', ask)]
  vi.advanceTimersByTime(999)
  waiting.push(keys.find('k', ask))
  expect(questions).toHaveLength(1)
  vi.advanceTimersByTime(1)
  const later = keys.find('k', ask)
  expect(questions).toHaveLength(2)
  questions[1]?.resolve('new')
  expect(await later).toBe('new')
  questions[0]?.resolve('old')
  expect(await Promise.all(waiting)).toEqual(['old', 'old', 'old'])
  expect(keys.find('k', ask)).toBe('new')
})

test('a key that does not exist is asked for each time', async () => {
  const keys = new KnownKeys<string>()
  const absent = database().answering(undefined)
  expect(await keys.find('k', absent)).toBeUndefined()
  expect(await keys.find('k', database().answering('made now'))).toBe('made now')
})

test('of more than 10,000 keys the one asked for longest ago is forgotten', async () => {
  const keys = new KnownKeys<string>()
  for (let i = 0; i <= 10_000; i += 1) await keys.find(`k${i}`, async () => 'key')
  const again = database().answering('key')
  expect(keys.find('k1', again)).toBe('key')
  expect(again).not.toHaveBeenCalled()
  await keys.find('k0', again)
  expect(again).toHaveBeenCalledOnce()
})
