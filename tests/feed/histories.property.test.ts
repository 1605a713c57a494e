import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { runs, TEST_OPTIONS } from '../support/properties.ts'
import { history, openHistories } from './histories.ts'

let histories: Awaited<ReturnType<typeof openHistories>>
beforeAll(async () => {
  histories = await openHistories()
})
afterAll(() => histories.close())

test(
  'a follower sees every event once, in order, no gap is filled later, and its copy has nobody who was erased',
  TEST_OPTIONS,
  async () => {
    await fc.assert(fc.asyncProperty(history, histories.check), runs(20))
    // Else it would show nothing.
    for (const count of Object.values(histories.figures)) expect(count).toBeGreaterThan(0)
  },
)
