import { fork } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import type { Redocly } from '../../openapi/diff/compare.ts'

interface Ended {
  status: number
  stdout: string
  stderr: string
}

/** Starts a process that serves all calls until it is stopped. */
export function startRedocly(): { redocly: Redocly; stop: () => Promise<void> } {
  const child = fork(new URL('./redocly-process.ts', import.meta.url), {
    cwd: path.join(import.meta.dirname, '../..'),
    env: { ...process.env, REDOCLY_TELEMETRY: 'off' },
    execArgv: [],
  })
  // It answers in the order of the calls.
  const calls: PromiseWithResolvers<Ended>[] = []
  child.on('message', (ended: Ended) => calls.shift()?.resolve(ended))
  child.on('exit', (code, signal) => {
    for (const call of calls.splice(0)) call.reject(new Error(`redocly's process ended with ${code ?? signal}`))
  })
  return {
    redocly: async (args) => {
      const call = Promise.withResolvers<Ended>()
      calls.push(call)
      child.send(args)
      const { status, stdout, stderr } = await call.promise
      if (status !== 0) throw new Error(`redocly ended with ${status}: ${stderr}`)
      return stdout
    },
    stop: async () => {
      child.disconnect()
      await once(child, 'exit')
    },
  }
}
