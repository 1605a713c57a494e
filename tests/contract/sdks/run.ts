import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import path from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { demoEnvironment, startDemoService } from '../../support/demo-service.ts'
import { generators, home, versionOf } from './generators.ts'

/**
 * `make sdks`: generates a client with each generator, runs the journey of journey.md with it, and prints a table. `ONLY`
 * names one generator, `VERBOSE=1` also shows the output of those that pass, and with `SDKS_REQUIRE_ALL=1` a generator
 * whose toolchain is missing counts as failed.
 */
const { ONLY, VERBOSE, SDKS_REQUIRE_ALL } = process.env

/** The outcome for a generator. */
interface Outcome {
  verdict: 'ok' | 'not run' | 'failed'
  note: string
}

/** The exit status of a script `run` whose toolchain is not installed. */
const NOT_RUN = 77

const STEPS = [...readFileSync(path.join(home, 'journey.md'), 'utf8').matchAll(/^\| `([\w-]+)` \|/gm)].map(
  ([, step]) => step,
)

/** Runs the script of a generator's folder. */
async function runScript(generator: string, args: string[], env: Record<string, string> = {}) {
  const start = performance.now()
  const child = spawn(path.join(home, generator, 'run'), args, { env: { ...process.env, ...env } })
  child.stdin.end()
  const chunks: Buffer[] = []
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => chunks.push(chunk))
  const [status]: (number | null)[] = await once(child, 'close')
  const output = Buffer.concat(chunks).toString()
  const seconds = ((performance.now() - start) / 1000).toFixed(1)
  console.log(`${[generator, 'run', ...args].join(' ')}: ${seconds} s, status ${status}`)
  if (VERBOSE) console.log(output)
  return { status, output }
}

/** Shows the output of a generator that failed. */
function failed(note: string, output: string): Outcome {
  if (!VERBOSE) console.log(output)
  return { verdict: 'failed', note }
}

/** Generates a client; returns an outcome only if that failed. */
async function prepare(generator: string): Promise<Outcome | undefined> {
  const { status, output } = await runScript(generator, ['--prepare'])
  if (status === 0) return undefined
  if (status !== NOT_RUN) return failed('to generate or compile', output)
  return { verdict: 'not run', note: /^not run: (.*)$/m.exec(output)?.[1] ?? '' }
}

/** Runs the journey with a client: every step, in order, must succeed or be reported as impossible. */
async function runJourney(generator: string, env: Record<string, string>): Promise<Outcome> {
  const { status, output } = await runScript(generator, [], env)
  const reported = [...output.matchAll(/^(?:ok|--) ([\w-]+)/gm)].map(([, step]) => step)
  if (status !== 0 || !isDeepStrictEqual(reported, STEPS)) {
    return failed(`at ${STEPS.find((step, i) => reported[i] !== step) ?? 'the end'}`, output)
  }
  const impossible = [...output.matchAll(/^-- (.*)$/gm)].map(([, step]) => step)
  const note = [`${STEPS.length - impossible.length} of ${STEPS.length} steps`, ...impossible].join('; not ')
  return { verdict: 'ok', note }
}

const chosen = generators.filter((generator) => generator === (ONLY || generator))
if (chosen.length === 0) {
  console.error(`unknown generator ONLY=${ONLY}; known are ${generators.join(', ')}`)
  process.exit(1)
}

const outcomes = new Map<string, Outcome | undefined>()
const queue = chosen.values()
const prepareNext = async () => {
  for (const generator of queue) outcomes.set(generator, await prepare(generator))
}
await Promise.all(Array.from({ length: availableParallelism() }, prepareNext))

const ready = chosen.filter((generator) => !outcomes.get(generator))
if (ready.length > 0) {
  const service = await startDemoService()
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => service.stop().finally(() => process.exit(1)))
  }
  try {
    // In sequence: each relies on no other client recording while it pages.
    for (const generator of ready) outcomes.set(generator, await runJourney(generator, demoEnvironment(service)))
  } finally {
    const failing = ready.some((generator) => outcomes.get(generator)?.verdict !== 'ok')
    if (VERBOSE || failing) console.log(service.stderr())
    await service.stop()
  }
}

const table = chosen.map((generator) => {
  const { verdict, note } = outcomes.get(generator) as Outcome
  return [generator, versionOf(generator), `${verdict}: ${note}`]
})
const widths = [0, 1].map((column) => Math.max(...table.map((row) => row[column]?.length ?? 0)))
console.log()
for (const row of table) console.log(row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(' | '))

const count = (verdict: Outcome['verdict']) => [...outcomes.values()].filter((o) => o?.verdict === verdict).length
const [failures, notRun] = [count('failed'), count('not run')]
console.log(`\n${count('ok')} of ${chosen.length} generators' clients passed; ${notRun} not run, ${failures} failed`)
process.exitCode = failures > 0 || (SDKS_REQUIRE_ALL === '1' && notRun > 0) ? 1 : 0
