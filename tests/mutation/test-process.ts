import { setTimeout } from 'node:timers/promises'
import type { ModuleRunner } from 'vite/module-runner'
import { init, runBaseTests, setupEnvironment } from 'vitest/worker'

// The process of `keptProcesses`, which is as Vitest's own, except that it loads a file again that has changed.

const send = process.send?.bind(process)
if (!send) throw new Error('it is started by keptProcesses')
const exit = process.exit.bind(process)
process.on('disconnect', () => exit(1))
// Vitest adds one for each test file.
process.setMaxListeners(0)

/** How much is open when a test file begins: the channel to the pool, and what Vitest has. */
let open = 0
process.on('message', async ({ type }) => {
  if (type !== 'isClean') return
  const isClean = () => process.getActiveResourcesInfo().length <= open
  // A timer of Vitest takes 100 ms, and connections that are being closed as long as that takes.
  for (let i = 0; i < 25 && !isClean(); i += 1) await setTimeout(20)
  send({ type, isClean: isClean() })
})

/** The files that a test file before was run with, and this one. */
let [previous, current] = ['', '']

init({
  post: (message) => send(message),
  on: (listener) => process.on('message', listener),
  off: (listener) => process.off('message', listener),
  setup: setupEnvironment,
  runTests: (state, traces) => {
    open ||= process.getActiveResourcesInfo().length
    ;[previous, current] = [current, state.providedContext.mutatedFile]
    return runBaseTests('run', state, traces)
  },
  collectTests: (state, traces) => runBaseTests('collect', state, traces),
  onModuleRunner: ({ evaluatedModules }: ModuleRunner) => {
    for (const file of [previous, current]) {
      for (const module of evaluatedModules.getModulesByFile(file) ?? []) evaluatedModules.invalidateModule(module)
    }
  },
})
