import { setImmediate } from 'node:timers/promises'
import type pg from 'pg'
import { expect, test, vi } from 'vitest'
import { toApiError } from '../../src/http/error-handler.ts'
import { Recorder } from '../../src/recording/recorder.ts'
import { parsedEvent } from './fixture.ts'

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
    void recorder.record(`project ${i}`, parsedEvent())
    await setImmediate()
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
  const recorder = new Recorder(exhaustedPool(2).pool, { maxQueuedEvents: 6 })
  const refused: boolean[] = []
  for (const project of ['a', 'a', 'a', 'a', 'b', 'b', 'c', 'd']) {
    refused.push(await isRefused(recorder.record(project, parsedEvent())))
  }
  expect(refused).toEqual([false, false, false, true, false, false, false, true])
  expect(recorder.pending).toEqual({ events: 6, projects: 3 })
})
