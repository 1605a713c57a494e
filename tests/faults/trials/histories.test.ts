import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { history, openHistories } from '../../feed/histories.ts'
import { report, runsInForm, TRIAL_OPTIONS } from './trial.ts'

let histories: Awaited<ReturnType<typeof openHistories>>
beforeAll(async () => {
  histories = await openHistories()
})
afterAll(() => histories.close())

test(
  'followers see the same in every history, whichever transactions are held open or fail',
  TRIAL_OPTIONS,
  async () => {
    await fc.assert(fc.asyncProperty(history, histories.check), runsInForm(300, 10_000))
    report(histories.figures)
    // Else it would show nothing.
    for (const count of Object.values(histories.figures)) expect(count).toBeGreaterThan(0)
  },
)
