import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync, rmSync } from 'node:fs'
import path from 'node:path'
import { operations } from '../../support/contract.ts'
import { documentedCases, injectedFaults } from './fault-injection.ts'
import type { Exchange } from './recorder.ts'
import { type Replayer, type ReplayResult, startReplay } from './replay.ts'
import {
  type Case,
  EXPECTED_DISAGREEMENTS,
  findingsOf,
  NOT_REPLAYABLE,
  type Rule,
  reasonFor,
  reasonNotReplayable,
  reportedIssues,
} from './verdict.ts'

/**
 * `make proxy`: records every exchange of the test suite, then replays each over HTTP through `prism proxy` to a service
 * that returns the recorded response, and fails where Prism reports a response that does not match the document or disagrees
 * with the service about a request. The examples of the document are replayed too, then with injected faults, each of which
 * must be found.
 *
 * With a directory as argument the suite is not run: the directory has the exchanges of an earlier run, for which
 * `RECORD_EXCHANGES` named it.
 */
const ROOT = path.join(import.meta.dirname, '../../..')
/** Prism is one process; a few concurrent requests keep it busy. */
const CONCURRENCY = 4
const SHOWN_failures = 40

const [recorded] = process.argv.slice(2)
const directory = path.resolve(recorded ?? path.join(import.meta.dirname, '.recorded'))
if (recorded === undefined) await recordSuite()
const exchanges = readExchanges()
const replayable = exchanges.filter((exchange) => !reasonNotReplayable(exchange))
const documented = documentedCases()
const injected = injectedFaults()

const replayer = await startReplay()
const fromSuite = await replayAll(replayer, replayable.map(caseOf))
const fromDocument = await replayAll(replayer, documented)
const fromInjected = await replayAll(replayer, injected)
await replayer.close()

const notReplayable = tally(NOT_REPLAYABLE, exchanges)
const disagreements = tally(
  EXPECTED_DISAGREEMENTS,
  fromSuite.filter(isDisagreement).flatMap(({ exchange }) => reportedIssues(exchange)),
)
const cells = countCells(replayable)
const failures = [
  ...[...fromSuite, ...fromDocument].flatMap(({ name, findings }) => findings.map((finding) => `${name}: ${finding}`)),
  ...fromInjected.flatMap(({ name, findings }) => (findings.length > 0 ? [] : [`injected fault not found: ${name}`])),
  ...[...notReplayable, ...disagreements].flatMap(([reason, count]) =>
    count > 0 ? [] : [`rule no longer needed: ${reason}`],
  ),
  ...cells.flatMap(({ operationId, counts }) =>
    [...counts].flatMap(([status, count]) => (count > 0 ? [] : [`no test gets ${status} from ${operationId}`])),
  ),
]

console.log(`\n${replayable.length} exchanges of the test suite were replayed through Prism`)
for (const { operationId, counts } of cells) {
  console.log(`  ${operationId.padEnd(18)} ${[...counts].map(([status, count]) => `${status} ×${count}`).join('  ')}`)
}
console.log(`  (no operation)     ${replayable.filter(({ operationId }) => operationId === undefined).length}`)
listReasons(`${exchanges.length - replayable.length} could not be replayed`, notReplayable)
listReasons('400s by rules that Prism does not have', disagreements)
console.log(`${documented.length} examples of the document were replayed through Prism`)
console.log(`${injected.length} faults were injected into them`)
if (failures.length > 0) {
  console.error(`\n${failures.length} findings:\n${failures.slice(0, SHOWN_failures).join('\n')}`)
  process.exit(1)
}
console.log('No findings except the injected faults, which were all found.')

async function recordSuite(): Promise<void> {
  rmSync(directory, { recursive: true, force: true })
  const env = { ...process.env, RECORD_EXCHANGES: directory }
  const args = ['run', '--project', 'unit', '--reporter=dot']
  const suite = spawn('vitest', args, { cwd: ROOT, env, stdio: 'inherit' })
  const [status] = await once(suite, 'close')
  if (status !== 0) throw new Error('the test suite fails; fix it first')
}

function readExchanges(): Exchange[] {
  const files = readdirSync(directory).map((file) => readFileSync(path.join(directory, file), 'utf8'))
  return files.flatMap((lines) => lines.trimEnd().split('\n')).map((line) => JSON.parse(line))
}

function caseOf(exchange: Exchange): Case {
  const { method, url, status } = exchange
  return { name: `${method} ${url.slice(0, 200)} → ${status}`, exchange, check: findingsOf }
}

interface Verdict {
  name: string
  exchange: Exchange
  replayed: ReplayResult
  findings: string[]
}

async function replayAll(replayer: Replayer, cases: Case[]): Promise<Verdict[]> {
  const queue = cases.values()
  const work = async () => {
    const verdicts: Verdict[] = []
    for (const { name, exchange, check } of queue) {
      const replayed = await replayer.replay(exchange).catch((error: Error) => {
        throw new Error(`Prism does not respond to ${name}: ${error.message}`)
      })
      verdicts.push({ name, exchange, replayed, findings: check(exchange, replayed) })
    }
    return verdicts
  }
  return (await Promise.all(Array.from({ length: CONCURRENCY }, work))).flat()
}

/** A 400 for something that Prism accepts. */
function isDisagreement({ exchange: { operationId, status }, replayed }: Verdict): boolean {
  return operationId !== undefined && status === 400 && replayed.violations.length === 0
}

/** How often each rule applied. */
function tally<Subject>(rules: Rule<Subject>[], subjects: Subject[]): Map<string, number> {
  const reasons = Map.groupBy(subjects, (subject) => reasonFor(rules, subject))
  return new Map(rules.map(([reason]) => [reason, reasons.get(reason)?.length ?? 0]))
}

/** How often each operation returned each of its documented statuses. */
function countCells(exchanges: Exchange[]) {
  return Object.entries(operations).map(([operationId, { responses }]) => {
    const byStatus = Map.groupBy(
      exchanges.filter((exchange) => exchange.operationId === operationId),
      ({ status }) => String(status),
    )
    return {
      operationId,
      counts: new Map(Object.keys(responses).map((status) => [status, byStatus.get(status)?.length ?? 0])),
    }
  })
}

function listReasons(title: string, counts: Map<string, number>): void {
  console.log(`${title}:`)
  for (const [reason, count] of counts) console.log(`  ${String(count).padStart(4)}  ${reason}`)
}
