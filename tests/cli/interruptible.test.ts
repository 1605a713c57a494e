import { expect, onTestFinished, test, vi } from 'vitest'
import { interruptible } from '../../src/cli/interruptible.ts'

test('what cannot end is ended as its first signal would, whatever comes after', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  const [kill, exit] = [vi.spyOn(process, 'kill').mockReturnValue(true), vi.spyOn(process, 'exit').mockReturnThis()]
  vi.spyOn(process, 'removeAllListeners').mockReturnThis()
  const newest = (signal: NodeJS.Signals) => process.listeners(signal).at(-1) as NodeJS.SignalsListener
  void interruptible(() => new Promise(() => {}))
  const [interrupt, terminate] = [newest('SIGINT'), newest('SIGTERM')]
  onTestFinished(() => {
    vi.useRealTimers()
    vi.restoreAllMocks()
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.off(signal, newest(signal))
  })
  interrupt('SIGINT')
  terminate('SIGTERM')
  vi.advanceTimersByTime(10_000)
  expect([kill.mock.calls, exit.mock.calls]).toEqual([[[process.pid, 'SIGINT']], [[130]]])
})
