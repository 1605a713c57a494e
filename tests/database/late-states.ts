import { onTestFinished, vi } from 'vitest'
import { STATE_TIMEOUT_ms } from '../../src/database/replica.ts'

/** Gives standby servers, until the test ends, the time that they may take on a busy machine. @returns what ends it earlier */
export function allowLateStates(): () => void {
  const { setTimeout } = globalThis
  const patient = (work: () => void, ms: number, ...args: []) =>
    setTimeout(work, ms === STATE_TIMEOUT_ms ? 30_000 : ms, ...args)
  const timers = vi.spyOn(globalThis, 'setTimeout').mockImplementation(patient as typeof setTimeout)
  const end = () => timers.mockRestore()
  onTestFinished(end)
  return end
}
