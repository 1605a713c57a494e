import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Turns } from '../../src/domain/turns.ts'

beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }))
afterEach(() => void vi.useRealTimers())

test('work leaves a turn to others after each 5 milliseconds, and none before', async () => {
  let others = 0
  const turns = new Turns()
  for (const expected of [1, 2]) {
    vi.advanceTimersByTime(4)
    expect(turns.next()).toBeUndefined()
    vi.advanceTimersByTime(1)
    setImmediate(() => {
      others += 1
    })
    await turns.next()
    expect(others).toBe(expected)
  }
  expect(turns.next()).toBeUndefined()
})
