import { setImmediate } from 'node:timers/promises'
import pg from 'pg'
import { expect, onTestFinished, test, vi } from 'vitest'
import { toApiError } from '../../src/http/error-handler.ts'
import { NO_OBSERVER, type RecorderObserver } from '../../src/recording/observer.ts'
import { Recorder } from '../../src/recording/recorder.ts'
import { parsedEvent, stopClock } from './fixture.ts'

// What the recorder starts and refuses while no connection is free.

/** A pool all of whose connections are taken. */
function exhaustedPool(max: number) {
  const connect = vi.fn(() => new Promise<never>(() => {}))
  return { connect, pool: { options: { max }, connect } as unknown as pg.Pool }
}

test.each([
  [1, 1],
  [2, 1],
  [3, 1],
  [4, 2],
  [7, 3],
])('of %i connections, %i at most record projects that are not locked', async (max, expected) => {
  const { pool, connect } = exhaustedPool(max)
  const recorder = new Recorder(pool)
  for (let i = 0; i < max; i += 1) {
    expect(await isRefused(recorder.record(`project ${i}`, parsedEvent()))).toBe(false)
  }
  expect(connect).toHaveBeenCalledTimes(expected)
})

async function isRefused(recorded: Promise<unknown>): Promise<boolean> {
  const refusal = recorded.then(
    () => 'recorded',
    (error) => toApiError(error).errorCode,
  )
  return (await Promise.race([refusal, setImmediate('queued')])) === 'service_unavailable'
}

test('of a queue of six a project may have three events, and all projects six', async () => {
  const onOverload = vi.fn()
  const recorder = new Recorder(exhaustedPool(2).pool, { maxQueuedEvents: 6 }, { ...NO_OBSERVER, onOverload })
  const refused: boolean[] = []
  for (const project of ['a', 'a', 'a', 'a', 'b', 'b', 'c', 'd']) {
    refused.push(await isRefused(recorder.record(project, parsedEvent())))
  }
  expect(refused).toEqual([false, false, false, true, false, false, false, true])
  expect(recorder.pending).toEqual({ events: 6, projects: 3 })
  expect(onOverload.mock.calls).toEqual([[1], [1]])
})

test('by default ten batches of a thousand events of a project wait, and as many of others', async () => {
  const recorder = new Recorder(exhaustedPool(2).pool)
  const event = parsedEvent()
  const refusedOf = async (project: string, count: number, isOfBatch = false) => {
    const refused: unknown[] = []
    for (let i = 0; i < count; i += 1) {
      recorder.record(project, event, undefined, isOfBatch).catch((error) => refused.push(error))
    }
    await setImmediate()
    return refused.length
  }
  expect([await refusedOf('a', 10_000, true), await refusedOf('a', 1)]).toEqual([0, 1])
  // Batches leave a quarter of the queue to single events.
  expect([await refusedOf('b', 5_000, true), await refusedOf('b', 1, true)]).toEqual([0, 1])
  expect([await refusedOf('c', 5_000), await refusedOf('d', 1)]).toEqual([0, 1])
})

test('the properties and identifiers of those that wait have 32 Mi characters at most of a project, and 64 Mi of all', async () => {
  const recorder = new Recorder(exhaustedPool(2).pool)
  const refusedOf = async (project: string, count: number) => {
    const event = parsedEvent()
    event.custom_event_props = 'x'.repeat(31 * 1024)
    event.identifiers = event.identifiers.map((identifier) => ({ ...identifier, value: 'x'.repeat(1024) }))
    const refused: unknown[] = []
    for (let i = 0; i < count; i += 1) recorder.record(project, event).catch((error) => refused.push(error))
    await setImmediate()
    return refused.length
  }
  expect([await refusedOf('a', 1_024), await refusedOf('a', 1)]).toEqual([0, 1])
  expect([await refusedOf('b', 1_000), await refusedOf('c', 24), await refusedOf('d', 1)]).toEqual([0, 0, 1])
})

test('the properties of those that are recorded count no longer', async () => {
  const connect = () => Promise.reject(new Error('no connection'))
  const recorder = new Recorder({ options: { max: 2 }, connect } as unknown as pg.Pool)
  const event = { ...parsedEvent(), custom_event_props: 'x'.repeat(16 * 1024 * 1024) }
  for (let i = 0; i < 5; i += 1) await expect(recorder.record('a', event)).rejects.toThrow('no connection')
})

/** A pool whose connections fail so, one after the other, and then with the last error. */
function failingPool(...errors: Error[]) {
  const connect = vi.fn(() => Promise.reject(errors.length > 1 ? errors.shift() : errors[0]))
  return { connect, pool: { options: { max: 2 }, connect } as unknown as pg.Pool }
}
const outage = () => Object.assign(new Error('nobody listens'), { code: 'ECONNREFUSED', syscall: 'connect' })

test('a batch ends with the event that brings it to 1 Mi characters', async () => {
  const onBatch = vi.fn<RecorderObserver['onBatch']>()
  const recorder = new Recorder(failingPool(outage()).pool, {}, { ...NO_OBSERVER, onBatch })
  const record = (project: string, length_Ki: number) =>
    recorder.record(project, { ...parsedEvent(), custom_event_props: 'x'.repeat(length_Ki * 1024) })
  await Promise.allSettled([
    ...[record('a', 512), record('a', 512), record('a', 512)],
    ...[record('b', 256), record('c', 512), record('c', 256), record('c', 256)],
  ])
  expect(onBatch.mock.calls.map(([{ outcomes }]) => outcomes.length)).toEqual([2, 3, 2])
})

test('a batch tells how long its events have waited, and nothing is told of one whose events have waited too long', async () => {
  const { advance } = stopClock()
  const onBatch = vi.fn<RecorderObserver['onBatch']>()
  const options = { maxQueueWait_ms: 1_000 }
  const recorder = new Recorder(failingPool(outage()).pool, options, { ...NO_OBSERVER, onBatch })
  for (const [wait_ms, reason] of [
    [1_000, 'ECONNREFUSED'],
    [1_001, 'service_unavailable'],
  ] as const) {
    const recorded = recorder.record('demo', parsedEvent())
    advance(wait_ms)
    await expect(recorded).rejects.toMatchObject(wait_ms > 1_000 ? { errorCode: reason } : { code: reason })
  }
  expect(onBatch.mock.calls.map(([{ waits_ms }]) => waits_ms)).toEqual([[1_000]])
})

test('a transaction that loses is tried five times, and each attempt after the first is told of', async () => {
  const onRetry = vi.fn()
  const { pool, connect } = failingPool(Object.assign(new pg.DatabaseError('lost', 4, 'error'), { code: '40001' }))
  const recorder = new Recorder(pool, {}, { ...NO_OBSERVER, onRetry })
  await expect(recorder.record('demo', parsedEvent())).rejects.toThrow('lost')
  expect(connect).toHaveBeenCalledTimes(5)
  expect(onRetry).toHaveBeenCalledTimes(4)
})

test('a batch leaves other projects to the next one when it has these characters', async () => {
  const { pool, connect } = exhaustedPool(4)
  const recorder = new Recorder(pool)
  for (const [project, length] of [
    ['a', 1024 * 1024],
    ['b', 1],
  ] as const) {
    recorder.record(project, { ...parsedEvent(), custom_event_props: 'x'.repeat(length) }).catch(() => {})
  }
  await setImmediate()
  expect(connect).toHaveBeenCalledTimes(2)
})

test('once the database is away, what is recorded one by one fails without waiting for it again', async () => {
  const { pool, connect } = failingPool(new Error('a bug'), outage())
  const recorder = new Recorder(pool)
  const recorded = Array.from({ length: 5 }, () => recorder.record('a', parsedEvent()))
  for (const one of recorded) expect(await isRefused(one)).toBe(true)
  expect(connect).toHaveBeenCalledTimes(2)
})

test('an observer is told of each event when it comes, and of the same with its batch', async () => {
  const told: unknown[] = []
  const observer: RecorderObserver = {
    ...NO_OBSERVER,
    onQueue: (event) => void told.push(['queued', event]),
    aroundBatch: (batch, record) => {
      told.push(['batch', ...batch.events])
      return record()
    },
  }
  const recorder = new Recorder(failingPool(outage()).pool, {}, observer)
  const recorded = [recorder.record('a', parsedEvent()), recorder.record('b', parsedEvent())]
  const [first, second] = told.map((one) => (one as [string, object])[1])
  expect(told).toEqual([
    ['queued', first],
    ['queued', second],
  ])
  await Promise.allSettled(recorded)
  expect(told.slice(2)).toEqual([['batch', first, second]])
  expect(told[2]).toSatisfy(([, one, other]) => one === first && other === second)
})

test('expired events are looked for only while some wait', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  onTestFinished(() => void vi.useRealTimers())
  const recorder = new Recorder(failingPool(outage()).pool)
  expect(vi.getTimerCount()).toBe(0)
  const recorded = recorder.record('a', parsedEvent())
  expect(vi.getTimerCount()).toBe(1)
  await expect(recorded).rejects.toThrow('nobody listens')
  vi.advanceTimersByTime(1_000)
  expect(vi.getTimerCount()).toBe(0)
})

test('an event is refused once it has waited for too long, by the second', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  onTestFinished(() => void vi.useRealTimers())
  const onOverload = vi.fn()
  const recorder = new Recorder(exhaustedPool(2).pool, { maxQueueWait_ms: 2_500 }, { ...NO_OBSERVER, onOverload })
  // In a batch, whose connection never comes.
  expect(await isRefused(recorder.record('a', parsedEvent()))).toBe(false)
  const waiting = recorder.record('a', parsedEvent())
  waiting.catch(() => {})
  const refused: boolean[] = []
  for (let second = 1; second <= 3; second += 1) {
    vi.advanceTimersByTime(1_000)
    refused.push(await isRefused(waiting))
  }
  expect(refused).toEqual([false, false, true])
  expect(onOverload.mock.calls).toEqual([[1]])
  expect(recorder.pending).toEqual({ events: 1, projects: 1 })
})
