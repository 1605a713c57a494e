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
  refusalIssues,
} from './verdict.ts'

/**
 * `make proxy`: records every exchange of the test suite, then sends each over HTTP through `prism proxy` to a service
 * that answers as recorded, and fails where Prism finds an answer that is not as documented or judges a request unlike the
 * service did. What the document shows goes the same way, and then faults are planted in it, each of which must be found.
 *
 * With a directory as argument the suite is not run: the directory has what a run of it left there, to which
 * `RECORD_EXCHANGES` named the directory.
 */
const ROOT = path.join(import.meta.dirname, '../../..')
/** Prism is one process; a few at a time keep it busy. */
const AT_ONCE = 4
const SHOWN_complaints = 40

const [recorded] = process.argv.slice(2)
const directory = path.resolve(recorded ?? path.join(import.meta.dirname, '.recorded'))
if (recorded === undefined) await recordSuite()
const exchanges = readExchanges()
const replayable = exchanges.filter((exchange) => !reasonNotReplayable(exchange))
const documented = documentedCases()
const injected = injectedFaults()

const replayer = await startReplay()
const fromSuite = await judgeAll(replayer, replayable.map(caseOf))
const fromDocument = await judgeAll(replayer, documented)
const fromInjected = await judgeAll(replayer, injected)
await replayer.close()

const notReplayable = tally(NOT_REPLAYABLE, exchanges)
const disagreements = tally(
  EXPECTED_DISAGREEMENTS,
  fromSuite.filter(isDisagreement).flatMap(({ exchange }) => refusalIssues(exchange)),
)
const cells = countCells(replayable)
const complaints = [
  ...[...fromSuite, ...fromDocument].flatMap(({ name, findings }) => findings.map((finding) => `${name}: ${finding}`)),
  ...fromInjected.flatMap(({ name, findings }) => (findings.length > 0 ? [] : [`planted and not found: ${name}`])),
  ...[...notReplayable, ...disagreements].flatMap(([reason, count]) =>
    count > 0 ? [] : [`not needed any more: ${reason}`],
  ),
  ...cells.flatMap(({ operationId, counts }) =>
    [...counts].flatMap(([status, count]) => (count > 0 ? [] : [`no test has ${operationId} answer ${status}`])),
  ),
]

console.log(`\n${replayable.length} exchanges of the test suite went through Prism`)
for (const { operationId, counts } of cells) {
  console.log(`  ${operationId.padEnd(18)} ${[...counts].map(([status, count]) => `${status} ×${count}`).join('  ')}`)
}
console.log(`  of no operation    ${replayable.filter(({ operationId }) => operationId === undefined).length}`)
listReasons(`${exchanges.length - replayable.length} could not`, notReplayable)
listReasons('400s by rules that Prism does not know', disagreements)
console.log(`${documented.length} answers that the document shows went through Prism`)
console.log(`${injected.length} faults were planted in them`)
if (complaints.length > 0) {
  console.error(`\n${complaints.length} findings:\n${complaints.slice(0, SHOWN_complaints).join('\n')}`)
  process.exit(1)
}
console.log('No finding but what was injected, and all of that.')

async function recordSuite(): Promise<void> {
  rmSync(directory, { recursive: true, force: true })
  const env = { ...process.env, RECORD_EXCHANGES: directory }
  const args = ['run', '--project', 'unit', '--reporter=dot']
  const suite = spawn('vitest', args, { cwd: ROOT, env, stdio: 'inherit' })
  const [status] = await once(suite, 'close')
  if (status !== 0) throw new Error('the test suite fails; mend that first')
}

function readExchanges(): Exchange[] {
  const files = readdirSync(directory).map((file) => readFileSync(path.join(directory, file), 'utf8'))
  return files.flatMap((lines) => lines.trimEnd().split('\n')).map((line) => JSON.parse(line))
}

function caseOf(exchange: Exchange): Case {
  const { method, url, status } = exchange
  return { name: `${method} ${url.slice(0, 200)} → ${status}`, exchange, judge: findingsOf }
}

interface Judged {
  name: string
  exchange: Exchange
  replayed: ReplayResult
  findings: string[]
}

async function judgeAll(replayer: Replayer, cases: Case[]): Promise<Judged[]> {
  const queue = cases.values()
  const work = async () => {
    const judged: Judged[] = []
    for (const { name, exchange, judge } of queue) {
      const replayed = await replayer.replay(exchange).catch((error: Error) => {
        throw new Error(`Prism does not answer ${name}: ${error.message}`)
      })
      judged.push({ name, exchange, replayed, findings: judge(exchange, replayed) })
    }
    return judged
  }
  return (await Promise.all(Array.from({ length: AT_ONCE }, work))).flat()
}

/** A 400 for something that Prism let pass. */
function isDisagreement({ exchange: { operationId, status }, replayed }: Judged): boolean {
  return operationId !== undefined && status === 400 && replayed.violations.length === 0
}

/** How often each rule was the reason. */
function tally<Subject>(rules: Rule<Subject>[], subjects: Subject[]): Map<string, number> {
  const reasons = Map.groupBy(subjects, (subject) => reasonFor(rules, subject))
  return new Map(rules.map(([reason]) => [reason, reasons.get(reason)?.length ?? 0]))
}

/** How often each operation gave each of its documented statuses. */
function countCells(exchanges: Exchange[]) {
  return Object.entries(operations).map(([operationId, { responses }]) => {
    const answered = Map.groupBy(
      exchanges.filter((exchange) => exchange.operationId === operationId),
      ({ status }) => String(status),
    )
    return {
      operationId,
      counts: new Map(Object.keys(responses).map((status) => [status, answered.get(status)?.length ?? 0])),
    }
  })
}

function listReasons(title: string, counts: Map<string, number>): void {
  console.log(`${title}:`)
  for (const [reason, count] of counts) console.log(`  ${String(count).padStart(4)}  ${reason}`)
}
