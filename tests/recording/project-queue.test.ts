import { expect, test } from 'vitest'
import type { EventToRecord } from '../../src/recording/batch.ts'
import { ProjectQueue, type QueuedEvent } from '../../src/recording/project-queue.ts'

const queued = (): QueuedEvent => ({
  event: {} as EventToRecord,
  length: 1,
  queued_ms: 0,
  resolve: () => {},
  reject: () => {},
})

const ANY_LENGTH = Number.POSITIVE_INFINITY

/** A queue with this many events. */
function queueOf(events: number): ProjectQueue {
  const queue = new ProjectQueue('demo')
  for (let i = 0; i < events; i += 1) queue.add(queued())
  return queue
}

test('a new queue is idle', () => {
  expect(queueOf(0)).toMatchObject({ state: 'idle', size: 0 })
})

test('an added event makes it queued', () => {
  expect(queueOf(1)).toMatchObject({ state: 'queued', size: 1 })
})

test('a batch takes the oldest events and makes it recording; they still count', () => {
  const queue = new ProjectQueue('demo')
  const events = [queued(), queued(), queued()]
  for (const event of events) queue.add(event)
  expect(queue.take(2, ANY_LENGTH)).toEqual(events.slice(0, 2))
  expect(queue).toMatchObject({ state: 'recording', size: 3 })
})

test('a batch takes no event after those that have the length that is left', () => {
  const queue = new ProjectQueue('demo')
  const events = [2, 3, 4, 5].map((length) => ({ ...queued(), length }))
  for (const event of events) queue.add(event)
  expect(queue.take(4, 5)).toEqual(events.slice(0, 2))
  queue.finish([])
  expect(queue.take(4, 1)).toEqual(events.slice(2, 3))
  queue.finish([])
  expect(queue.take(4, 6)).toEqual(events.slice(3))
  expect(queue.size).toBe(1)
})

test('it is idle after a batch that left no events', () => {
  const queue = queueOf(2)
  queue.take(2, ANY_LENGTH)
  queue.finish([])
  expect(queue).toMatchObject({ state: 'idle', size: 0 })
})

test.each<[string, (queue: ProjectQueue) => void]>([
  ['left events', (queue) => queue.take(1, ANY_LENGTH)],
  [
    'took all, when others arrived meanwhile',
    (queue) => {
      queue.take(2, ANY_LENGTH)
      queue.add(queued())
    },
  ],
])('it is queued after a batch that %s', (_, takeBatch) => {
  const queue = queueOf(2)
  takeBatch(queue)
  queue.finish([])
  expect(queue).toMatchObject({ state: 'queued', size: 1 })
})

test('it is locked after a batch that found the project locked, and has the events of the batch at its head', () => {
  const queue = queueOf(2)
  const [recorded, ...locked] = queue.take(2, ANY_LENGTH)
  const later = queued()
  queue.add(later)
  queue.finish(locked)
  expect(recorded).toBeDefined()
  expect(queue).toMatchObject({ state: 'locked', size: 2 })
  expect(queue.take(2, ANY_LENGTH)).toEqual([...locked, later])
  expect(queue.state).toBe('recording')
})

test('it loses those that came before a time, and is idle without any', () => {
  const queue = new ProjectQueue('demo')
  const [first, second, third] = [1, 2, 3].map((queued_ms) => ({ ...queued(), queued_ms })) as [
    QueuedEvent,
    QueuedEvent,
    QueuedEvent,
  ]
  for (const event of [first, second, third]) queue.add(event)
  expect(queue.expire(1)).toEqual([])
  expect(queue.expire(2)).toEqual([first])
  expect(queue).toMatchObject({ state: 'queued', size: 2 })
  expect(queue.expire(9)).toEqual([second, third])
  expect(queue).toMatchObject({ state: 'idle', size: 0 })
  expect(queue.expire(9)).toEqual([])
})

test('it loses none that a batch has taken, and stays recording', () => {
  const queue = queueOf(2)
  const [taken] = queue.take(1, ANY_LENGTH)
  expect(queue.expire(1)).toHaveLength(1)
  expect(queue.expire(1)).toEqual([])
  expect(queue).toMatchObject({ state: 'recording', size: 1 })
  queue.finish([taken as QueuedEvent])
  expect(queue.state).toBe('locked')
  expect(queue.expire(1)).toEqual([taken])
  expect(queue).toMatchObject({ state: 'idle', size: 0 })
})

test('it cannot be in two batches, or in one without events', () => {
  const queue = queueOf(2)
  queue.take(1, ANY_LENGTH)
  expect(() => queue.take(1, ANY_LENGTH)).toThrow('a queue cannot go from recording to recording')
  expect(() => queueOf(0).take(1, ANY_LENGTH)).toThrow('a queue cannot go from idle to recording')
  expect(() => queueOf(1).finish([])).toThrow('a queue cannot go from queued to queued')
})
