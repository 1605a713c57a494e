import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { expect, test } from 'vitest'
import { STOP_SIGNALS } from '../../src/stop-signals.ts'

// Tools such as `make generate` clean up before a signal ends them.

const MODULE = new URL('../../src/stop-signals.ts', import.meta.url).href

/** Runs the body of a function of `stop` until it has printed a line, and sends it a signal, if any. */
async function run(body: string, signal?: NodeJS.Signals) {
  const script = `import { untilStopped } from '${MODULE}'\nawait untilStopped(async (stop) => {\n${body}\n})\nconsole.log('end')`
  const child = spawn(process.execPath, ['--input-type=module', '--eval', script], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const [exit, stdout, stderr] = [once(child, 'exit'), text(child.stdout), text(child.stderr)]
  if (signal) {
    await once(child.stdout, 'data')
    child.kill(signal)
  }
  const [code, endedBy] = await exit
  return { code, endedBy, stdout: await stdout, stderr: await stderr }
}

test.each(STOP_SIGNALS)('%s lets the work clean up, and then ends the process', async (signal) => {
  const body = `
    const stopped = new Promise((_, reject) => stop.addEventListener('abort', () => reject(stop.reason)))
    const timer = setInterval(() => {}, 1_000)
    console.log('begun')
    try { await stopped } finally { clearInterval(timer); console.log('cleaned up') }`
  expect(await run(body, signal)).toMatchObject({ endedBy: signal, stdout: 'begun\ncleaned up\n', stderr: '' })
})

test('without a signal the process goes on, or fails as the work does', async () => {
  expect(await run('')).toMatchObject({ code: 0, stdout: 'end\n' })
  expect(await run(`throw new Error('a defect')`)).toMatchObject({
    code: 1,
    stdout: '',
    stderr: expect.stringContaining('a defect'),
  })
})
