import { type ChildProcess, fork } from 'node:child_process'
import { on } from 'node:events'
import path from 'node:path'
import type { PoolRunnerInitializer, PoolWorker } from 'vitest/node'

declare module 'vitest' {
  export interface ProvidedContext {
    /** The file of the mutant that the tests run against. */
    mutatedFile: string
  }
}

/** After how many test files a process is replaced, since what failed tests leave behind adds up. */
export const MAX_FILES = 20

type Listener = (...args: unknown[]) => void

/** A process, and how many test files it has run. */
interface TestProcess {
  child: ChildProcess
  files: number
}
const idle: TestProcess[] = []
/** What decides of processes that have run a file whether they become idle. */
const deciding = new Set<Promise<void>>()

/** How long a process may take to say whether it is idle, in milliseconds; one that does not loops. */
const TIMEOUT_ms = 2_000

/**
 * A pool that runs one test file after another in the same processes, where Vitest would start one for each: packages are
 * loaded once, and of our files only what has changed, though all are evaluated anew for each test file. A process in which
 * a test has left a timer, a connection or the like is not used again, since that could make tests of the next mutant fail.
 */
export const keptProcesses: PoolRunnerInitializer = {
  name: 'kept-processes',
  createPoolWorker({ env, execArgv }) {
    const listeners: [event: string, listener: Listener][] = []
    let current: TestProcess | undefined
    const detach = () => {
      for (const [event, listener] of listeners) current?.child.off(event, listener)
      current = undefined
    }
    const worker: PoolWorker = {
      name: keptProcesses.name,
      // Off, like `fsModuleCache`: with copies on disk a process would load files as they were at its first run.
      cacheFs: false,
      start: async () => {
        await Promise.all(deciding)
        do current = idle.pop()
        while (current && !isAlive(current))
        current ??= startProcess(env as NodeJS.ProcessEnv, execArgv)
        current.files += 1
      },
      send: (message) => {
        if (message.type !== 'stop') {
          current?.child.send(message)
          return
        }
        const ended = current
        detach()
        if (ended) {
          const decision = keepIfClean(ended).finally(() => deciding.delete(decision))
          deciding.add(decision)
        }
        const response = { type: 'stopped', __vitest_worker_response__: true }
        for (const [event, listener] of listeners) if (event === 'message') setImmediate(listener, response)
      },
      stop: async () => {
        const stuck = current
        detach()
        stuck?.child.kill('SIGKILL')
      },
      on: (event, listener) => {
        listeners.push([event, listener])
        current?.child.on(event, listener)
      },
      off: (event, listener) => void current?.child.off(event, listener),
      deserialize: (message) => message,
    }
    return worker
  },
}

function startProcess(env: NodeJS.ProcessEnv, execArgv: string[]): TestProcess {
  const child = fork(path.join(import.meta.dirname, 'test-process.ts'), {
    env,
    execArgv,
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    serialization: 'advanced',
  })
  return { child, files: 0 }
}

async function keepIfClean(ended: TestProcess): Promise<void> {
  if (ended.files < MAX_FILES && (await isClean(ended))) idle.push(ended)
  else ended.child.kill('SIGKILL')
}

/** Whether nothing is open in a process that its tests have opened. */
async function isClean({ child }: TestProcess): Promise<boolean> {
  const answered = new AbortController()
  const signal = AbortSignal.any([answered.signal, AbortSignal.timeout(TIMEOUT_ms)])
  child.send({ type: 'isClean' }, () => {})
  try {
    for await (const [message] of on(child, 'message', { signal, close: ['exit'] })) {
      if (message.type === 'isClean') return message.isClean
    }
    return false
  } catch {
    return false
  } finally {
    answered.abort()
  }
}

const isAlive = ({ child }: TestProcess) => child.exitCode === null && child.signalCode === null

/** Ends those that wait for a test file. One that was still to be decided of would keep this process alive. */
export async function endKeptProcesses(): Promise<void> {
  await Promise.all(deciding)
  for (const { child } of idle.splice(0)) child.kill('SIGKILL')
}
