import { run } from './run.ts'

// Each write reports its own error; without a listener the event would end the process. A server whose terminal is gone
// must still stop in order.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {})

const status = await run(process.argv.slice(2), process)
process.exitCode = status
// The work that a signal has interrupted may keep connections and streams open.
if (status > 128) process.exit()
