import { createWriteStream, fstatSync } from 'node:fs'
import type { Output } from './context.ts'
import { flush } from './output.ts'
import { run } from './run.ts'

const STDOUT = 1

// Of a write to a file of which a full disk takes only a part, Node's own stream says that it has been done.
const stdout: Output = fstatSync(STDOUT).isFile()
  ? createWriteStream('', { fd: STDOUT, autoClose: false })
  : process.stdout

// Each write reports its own error; without a listener the event would end the process. A server whose terminal is gone
// must still stop in order.
for (const stream of [stdout, process.stdout, process.stderr]) stream.on('error', () => {})

const { env, stdin, stderr } = process
const status = await run(process.argv.slice(2), { env, stdin, stdout, stderr })
process.exitCode = status
// The work that a signal has interrupted may keep connections and streams open.
if (status > 128) {
  await flush(stdout).catch(() => {})
  process.exit()
}
