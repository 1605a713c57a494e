import { callsFor, chooseVisits } from './calls.ts'
import { type BenchServer, rowsOf } from './data.ts'
import type { Call } from './load.ts'
import { alternate, type Sampler } from './sample.ts'
import { makeKeys, type ProjectsOfSize, projectIds, projectsSet } from './seed.ts'
import { ratios, type Spread } from './statistics.ts'
import { type System, startFlowtrail } from './systems.ts'

const PROCESSES = 3
/**
 * In all, however many processes there are: of three, each has a third. A batch has no more events than its process has
 * connections, as each sends its next event after the response. So the larger number shows what several processes do under load.
 */
const CONNECTIONS = [63, 252]
/**
 * A process that has just started accepts a connection in each turn of its event loop, which are slow at first, and V8 compiles
 * what is called often. So several processes, each with its share of the requests, warm up for as many times as long.
 */
const WARM_UP_s = { one: 4, shared: 4 * PROCESSES, routed: 4 * PROCESSES }
/** So many that few of the events of a batch have the same contact, and few of the projects have none. */
const MIN_VISITS = 2_000
const VISITS_PER_PROJECT = 3

/** The projects that are recorded in, and the least that several processes are to reach of what one does. */
const CASES: readonly { size: ProjectsOfSize; atLeast: number }[] = [
  { size: { projects: 1, events: 25_000 }, atLeast: 0.8 },
  { size: { projects: 64, events: 1_000 }, atLeast: 0.95 },
  { size: { projects: 10_000, events: 100 }, atLeast: 0.95 },
]

/** One process; several that each record in all projects; several that each record in projects of their own. */
type Spreading = 'one' | 'shared' | 'routed'

/** Events recorded in a second, and the p99 of the load generator that saw the longest. */
interface Recorded {
  perSecond: number
  p99_ms: number
}

export interface ProcessesResult {
  projects: number
  connections: number
  atLeast: number
  recorded: Partial<Record<Spreading, Recorded[]>>
}

export interface ProcessesOptions {
  rounds: number
  duration_s: number
  /** The most projects that are recorded in. */
  projects: number
}

/** The most that the p99 of several processes may be, as a multiple of one's. */
export const MAX_P99 = 1.5

/** Records one event a request in one process and in several on the same database, at the same number of connections. */
export async function measureProcesses(
  server: BenchServer,
  sample: Sampler,
  { rounds, duration_s, projects: most }: ProcessesOptions,
): Promise<ProcessesResult[]> {
  const results: ProcessesResult[] = []
  for (const { size, atLeast } of CASES.filter(({ size }) => size.projects <= most)) {
    await using cleanup = new AsyncDisposableStack()
    const { url, drop } = await server.copy(projectsSet([size]))
    cleanup.defer(drop)
    const projects = projectIds(size)
    const keys = await makeKeys(url, projects)
    const count = Math.max(MIN_VISITS, VISITS_PER_PROJECT * size.projects)
    const visits = await chooseVisits(url, { projects, count })
    const start = async () => {
      const system = await startFlowtrail({ DATABASE_URL: url })
      cleanup.defer(system.stop)
      return system
    }
    const parts = Array.from({ length: PROCESSES }, (_, i) => i)
    const owner = new Map(projects.map((id, i) => [id, i % PROCESSES]))
    // Each begins elsewhere, so that they do not record for the same contacts at the same time.
    const everywhere = (part: number) => callsFor('recordKnown', rotated(visits, part / PROCESSES), keys, 1)
    const ofPart = (part: number) => {
      const own = visits.filter((visit) => owner.get(visit.project_id) === part)
      return callsFor('recordKnown', own, keys, 1)
    }
    const alone = await start()
    // As many load generators for each, which share the cores with the processes.
    const loads: Record<Spreading, [System, Call[]][]> = { one: [], shared: [], routed: [] }
    for (const part of parts) {
      loads.one.push([alone, everywhere(part)])
      loads.shared.push([await start(), everywhere(part)])
      // Processes of their own: those that have just recorded in the same projects take turns for a while.
      if (size.projects >= PROCESSES) loads.routed.push([await start(), ofPart(part)])
    }
    const run = (connections: number, seconds: number) => async (name: Spreading) => {
      const load = { connections: connections / PROCESSES, duration_s: seconds }
      const samples = await Promise.all(loads[name].map(([system, calls]) => sample(system, calls, load)))
      return {
        perSecond: samples.reduce((sum, { perSecond }) => sum + perSecond, 0),
        p99_ms: Math.max(...samples.map(({ p99_ms }) => p99_ms)),
      }
    }
    const names = (['one', 'shared', 'routed'] as const).filter((name) => loads[name].length > 0)
    for (const connections of CONNECTIONS) {
      await alternate(names, 1, (name) => run(connections, WARM_UP_s[name])(name))
      await rowsOf(url, 'CHECKPOINT')
      const recorded = await alternate(names, rounds, run(connections, duration_s))
      results.push({ projects: size.projects, connections, atLeast, recorded })
    }
    process.stderr.write(`recorded in ${size.projects} projects\n`)
  }
  return results
}

/** Begins at this fraction of the values instead of the first. */
function rotated<T>(values: readonly T[], fraction: number): T[] {
  const from = Math.floor(values.length * fraction)
  return [...values.slice(from), ...values.slice(0, from)]
}

/** What several processes reach as a multiple of one, round by round. */
export function multipleOf(
  { recorded }: ProcessesResult,
  spreading: Exclude<Spreading, 'one'>,
  field: keyof Recorded,
): Spread {
  const of = (samples: Recorded[] = []) => samples.map((one) => one[field])
  return ratios(of(recorded[spreading]), of(recorded.one))
}
