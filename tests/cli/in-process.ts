import { vi } from 'vitest'
import { createProgram } from '../../src/cli/program.ts'

/**
 * The command line with these settings in this process, for what needs no process of its own: starting one takes most of a
 * command's time. Each call resolves to the output of a command that succeeds.
 */
export function flowtrailInProcess(settings: Record<string, string>): (...args: string[]) => Promise<string> {
  return async (...args) => {
    const printed: string[] = []
    const write = vi.spyOn(process.stdout, 'write').mockImplementation((text, ...rest) => {
      printed.push(String(text))
      for (const done of rest) if (typeof done === 'function') done(null)
      return true
    })
    const signals = ['SIGINT', 'SIGTERM'] as const
    const listeners = new Set(signals.flatMap((signal) => process.listeners(signal)))
    for (const [name, value] of Object.entries(settings)) vi.stubEnv(name, value)
    try {
      await createProgram().parseAsync(args, { from: 'user' })
      return printed.join('').trimEnd()
    } finally {
      vi.unstubAllEnvs()
      write.mockRestore()
      for (const signal of signals) {
        for (const listener of process.listeners(signal)) {
          if (!listeners.has(listener)) process.off(signal, listener)
        }
      }
    }
  }
}
