import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import path from 'node:path'
import { untilStopped } from '../../src/stop-signals.ts'
import { useServer } from '../support/global-setup.ts'
import { createCompileCheck } from './compile-check.ts'
import { type Coverage, measureCoverage, testsOf } from './coverage.ts'
import { type Mutant, mutantsOf, mutated } from './mutants.ts'
import {
  digestOf,
  issuesOf,
  readResults,
  readSource,
  scores,
  sourceFiles,
  unexplained,
  writeResults,
} from './results.ts'
import { createSandbox, ROOT } from './sandbox.ts'
import type { Task, Verdict } from './worker.ts'

/**
 * `make mutants-code`: makes one small mistake after another in the sources and runs the tests that run the changed
 * function, until one fails. Tries the files that are new or have changed since their result in results.json, and of the others the
 * survivors without a reason; or the files of `ONLY=path,path` (a folder or file; `ONLY=src` for all); at most for
 * `MINUTES=n`. Writes the results, and fails when a mutant survives without a reason, or when the tests detect less than
 * 95 % in a folder.
 */
const { ONLY, MINUTES, VERBOSE } = process.env
const TIME_LIMIT_ms = 60_000
/** When a test that runs a mutant counts as failed: after this long, or this many times what the slowest of its file took. */
const MIN_TIMEOUT_ms = 10_000
const TIMES_SLOWEST = 3

/** What is known of a file's mutants so far. */
interface Tally {
  mutants: number
  survivors: string[]
  /** The test files that have detected mutants, the last one first: it probably detects the next mutant as well. */
  killers: string[]
  /** How many mutants are being tried, or not known yet. */
  pending: number
}
const tallies = new Map<string, Tally>()
/** Those that run. */
const workers = new Set<ChildProcess>()

const results = readResults()
const sources = new Map(sourceFiles().map((file) => [file, readSource(file)]))
for (const file of Object.keys(results)) if (!sources.has(file)) delete results[file]
const isCurrent = ([file, text]: [string, string]) => results[file]?.sha256 === digestOf(text)
const hasReason = ({ file, name }: Mutant) => Boolean(results[file]?.survivors[name]?.trim())
const isIncomplete = (source: [string, string]) => {
  const result = results[source[0]]
  return !result || !isCurrent(source) || unexplained(result).length > 0
}
const within = (place: string) => {
  const found = [...sources].filter(([file]) => file.startsWith(place))
  if (found.length === 0)
    throw new Error(`ONLY: no source begins with ${place}; a file is named like src/domain/cursor.ts`)
  return found
}
/** In the order of ONLY, so that a run that ends early has tried what matters most. */
const selected = ONLY ? ONLY.split(',').flatMap(within) : [...sources].filter(isIncomplete)
if (selected.length > 0) await untilStopped(tryMutants)
printScores()
const untried = [...sources.keys()].filter((file) => !results[file])
if (untried.length > 0) console.log(`Not tried yet (ONLY=path tries them): ${untried.join(', ')}`)
const unfinished = selected.filter(([file]) => tallies.get(file)?.pending !== 0)
const issues = [
  ...issuesOf(results),
  ...unfinished.map(
    ([file]) => `${file}: the time was too short. Run make mutants-code ONLY=${file} and commit the results`,
  ),
]
for (const issue of issues) console.log(issue)
process.exitCode = issues.length > 0 ? 1 : 0

async function tryMutants(stop: AbortSignal): Promise<void> {
  const home = realpathSync(mkdtempSync(path.join(tmpdir(), 'flowtrail-mutation-')))
  stop.addEventListener('abort', () => {
    for (const worker of workers) killGroup(worker)
  })
  const server = await useServer()
  process.env.TEST_DATABASE_URL = server.url
  try {
    // One more than cores, since tests wait for PostgreSQL, and those of mutants that hang for their timeout.
    const sandboxes = Array.from({ length: availableParallelism() + 1 }, (_, i) => path.join(home, String(i)))
    for (const sandbox of sandboxes) createSandbox(sandbox)
    const coverage = await measureCoverage(sandboxes[0] as string, [...sources.keys()])
    const remaining = trials(stop)
    const ended = await Promise.allSettled(sandboxes.map((sandbox) => work(sandbox, remaining, coverage, stop)))
    for (const one of ended) if (one.status === 'rejected') throw one.reason
  } finally {
    for (const worker of workers) killGroup(worker)
    await server.release()
    rmSync(home, { recursive: true, force: true, maxRetries: 5 })
  }
}

/**
 * What to try, file by file: the mutants that compile. The compiler decides only when the next one is asked for, while the
 * tests of others run.
 */
function* trials(stop: AbortSignal): Generator<Mutant, undefined> {
  const compiles = createCompileCheck(ROOT)
  const end_ms = MINUTES ? performance.now() + Number(MINUTES) * 60_000 : Number.POSITIVE_INFINITY
  for (const [file, text] of selected) {
    // What was detected still is: tests only become more.
    const earlier = !ONLY && isCurrent([file, text]) ? results[file] : undefined
    const retried = earlier && unexplained(earlier)
    const explained = Object.keys(earlier?.survivors ?? {}).filter((name) => !retried?.includes(name))
    const tally: Tally = { mutants: earlier?.mutants ?? 0, survivors: explained, killers: [], pending: 1 }
    tallies.set(file, tally)
    for (const mutant of mutantsOf(file, text)) {
      stop.throwIfAborted()
      if (retried && !retried.includes(mutant.name)) continue
      if (performance.now() > end_ms) {
        console.log(`The time is up at ${file}:${mutant.line}.`)
        return
      }
      if (!compiles(path.join(ROOT, file), mutated(text, mutant))) continue
      if (!earlier) tally.mutants += 1
      tally.pending += 1
      yield mutant
    }
    finish(file)
  }
}

async function work(
  sandbox: string,
  remaining: Iterator<Mutant, undefined>,
  coverage: Coverage,
  stop: AbortSignal,
): Promise<void> {
  const timeout_ms = (test: string) =>
    Math.max(MIN_TIMEOUT_ms, TIMES_SLOWEST * (coverage.slowestTests_ms.get(test) ?? 0))
  let worker = await startWorker(sandbox)
  for (let next = remaining.next(); !next.done; next = remaining.next()) {
    const mutant = next.value
    const { file, name, line } = mutant
    const text = sources.get(file) as string
    const tally = tallies.get(file) as Tally
    const { fast, slow } = testsOf(coverage, mutant, text)
    const killers = tally.killers.filter((test) => fast.includes(test) || slow.includes(test))
    // Slow tests will not find out what there is a reason for.
    const tests = [...new Set([...killers, ...fast, ...(hasReason(mutant) ? [] : slow)])]
    const task = {
      file,
      text: mutated(text, mutant),
      tests: tests.map((name) => ({ name, timeout_ms: timeout_ms(name) })),
    }
    const expected_ms = tests.reduce((sum, test) => sum + (coverage.durations_ms.get(test) ?? 0), 0)
    const attempt = async () => {
      const verdict = await judge(worker, task, Math.ceil(TIME_LIMIT_ms + TIMES_SLOWEST * expected_ms))
      stop.throwIfAborted()
      if (verdict !== 'timed out') return verdict
      killGroup(worker)
      writeFileSync(path.join(sandbox, file), text)
      worker = await startWorker(sandbox)
      return verdict
    }
    let verdict = await attempt()
    // Once can be due to a busy machine, or to a process that was killed.
    if (verdict === 'timed out') verdict = await attempt()
    if (verdict === 'timed out') {
      console.log(`${file}:${line} times out: ${name}`)
    } else if (verdict.error) {
      throw new Error(verdict.error)
    } else if (verdict.killer !== undefined) {
      tally.killers = [...new Set([verdict.killer, ...tally.killers])]
    } else {
      tally.survivors.push(name)
      if (!hasReason(mutant)) console.log(`${file}:${line} survives ${tests.length} test files: ${name}`)
    }
    if (VERBOSE)
      console.log(`${file}:${line} ${name}: ${verdict === 'timed out' ? verdict : (verdict.failure ?? 'survives')}`)
    finish(file)
  }
  worker.disconnect()
  await once(worker, 'exit')
  // What tests have left behind.
  killGroup(worker)
}

/** Saves the result of a file once all its mutants are tried. */
function finish(file: string): void {
  const tally = tallies.get(file) as Tally
  tally.pending -= 1
  if (tally.pending > 0) return
  const reasons = results[file]?.survivors ?? {}
  const survivors = Object.fromEntries(tally.survivors.sort().map((name) => [name, reasons[name] ?? '']))
  results[file] = { sha256: digestOf(sources.get(file) as string), mutants: tally.mutants, survivors }
  writeResults(results)
  console.log(`${file}: ${tally.mutants - tally.survivors.length} of ${tally.mutants}`)
}

async function startWorker(sandbox: string): Promise<ChildProcess> {
  const worker = fork(path.join(import.meta.dirname, 'worker.ts'), {
    cwd: sandbox,
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    // With a process group of its own, since a test process that loops does not notice when its worker is killed.
    detached: true,
  })
  workers.add(worker)
  worker.once('exit', () => workers.delete(worker))
  const [event] = await Promise.race([once(worker, 'message'), once(worker, 'exit')])
  if (event !== 'ready') throw new Error(`a worker ended with ${event} at its start`)
  return worker
}

function killGroup({ pid }: ChildProcess): void {
  try {
    process.kill(-(pid as number), 'SIGKILL')
  } catch {
    // All of its processes have ended.
  }
}

/** What a worker finds out, or `timed out` when it takes too long or ends: a mutant may loop for ever, or take all memory. */
async function judge(worker: ChildProcess, task: Task, limit_ms: number): Promise<Verdict | 'timed out'> {
  const settled = new AbortController()
  const signal = AbortSignal.any([settled.signal, AbortSignal.timeout(limit_ms)])
  worker.send(task, () => {}) // a worker that has ended is noticed below
  try {
    return await Promise.race([
      once(worker, 'message', { signal }).then(([verdict]) => verdict as Verdict),
      once(worker, 'exit', { signal }).then(() => 'timed out' as const),
    ])
  } catch {
    return 'timed out'
  } finally {
    settled.abort()
  }
}

function printScores(): void {
  for (const { folder, mutants, detected } of scores(results).filter(({ mutants }) => mutants > 0)) {
    const percent = `${((100 * detected) / mutants).toFixed(1)} %`
    console.log(
      `src/${folder.padEnd(10)} ${String(detected).padStart(4)} of ${String(mutants).padStart(4)}  ${percent}`,
    )
  }
}
