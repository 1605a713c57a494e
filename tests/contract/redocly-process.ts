/**
 * Runs redocly's command line for each list of arguments that it is sent, one at a time, and sends back how that ended.
 * Loading redocly takes longer than a comparison, and its `diff` is in no library that it publishes.
 */
import path from 'node:path'

const CLI = path.join(import.meta.dirname, '../../node_modules/@redocly/cli/lib/index.js')

let runs = 0
async function run(args: string[]): Promise<void> {
  process.argv = [process.execPath, 'redocly', ...args]
  const output = { stdout: '', stderr: '' }
  for (const stream of ['stdout', 'stderr'] as const) {
    process[stream].write = (chunk: string | Uint8Array) => {
      output[stream] += chunk
      return true
    }
  }
  // It exits when nothing but our channel keeps the process alive.
  const exit = new Promise<number>((resolve) => {
    process.exit = resolve as typeof process.exit
  })
  process.channel?.unref()
  runs += 1
  await import(`${CLI}?run=${runs}`)
  const status = await exit
  process.channel?.ref()
  process.send?.({ status, ...output })
}

let last = Promise.resolve()
process.on('message', (args: string[]) => {
  last = last.then(() => run(args))
})
