import { callsFor, chooseVisits, type Visit } from './calls.ts'
import type { BenchServer } from './data.ts'
import type { Call } from './load.ts'
import { alternate, type Sampler } from './sample.ts'
import { makeKeys, type ProjectsOfSize, projectId, projectsSet } from './seed.ts'
import { type Spread, spreadOf } from './statistics.ts'
import { type System, startFlowtrail } from './systems.ts'

const PROCESSES = 3
/** In all, however many processes there are. */
const CONNECTIONS = 63
const WARM_UP_s = 3
/** Enough that none of the events of a batch need have the same contact. */
const LEAST_VISITS = 2_000

/** The projects that are recorded in, and the least that several processes are to reach of what one does. */
const CASES: readonly { size: ProjectsOfSize; atLeast: number }[] = [
  { size: { projects: 1, events: 20_000 }, atLeast: 0.8 },
  { size: { projects: 64, events: 1_000 }, atLeast: 0.95 },
  { size: { projects: 10_000, events: 100 }, atLeast: 0.95 },
]

/** One process; several that each record in all projects; several that each record in projects of their own. */
type Spreading = 'one' | 'shared' | 'routed'

/** Events recorded in a second, and the p99 of the slowest process. */
interface Recorded {
  perSecond: number
  p99_ms: number
}

export interface ProcessesResult {
  projects: number
  atLeast: number
  recorded: Partial<Record<Spreading, Recorded[]>>
}

export interface ProcessesOptions {
  rounds: number
  duration_s: number
  /** The most projects that are recorded in. */
  projects: number
}

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
    const projects = Array.from({ length: size.projects }, (_, i) => projectId(size, i + 1))
    const keys = await makeKeys(url, projects)
    const visits = await chooseVisits(url, { projects, count: Math.max(LEAST_VISITS, size.projects) })
    const systems: System[] = []
    for (let i = 0; i <= PROCESSES; i += 1) {
      const system = await startFlowtrail({ DATABASE_URL: url })
      cleanup.defer(system.stop)
      systems.push(system)
    }
    const [alone, ...several] = systems as [System, ...System[]]
    const calls = (some: Visit[]) => callsFor('recordKnown', some, keys, 1)
    const owner = new Map(projects.map((id, i) => [id, i % PROCESSES]))
    const loads: Record<Spreading, [System, Call[]][]> = {
      one: [[alone, calls(visits)]],
      // Each begins elsewhere, so that they do not record for the same contacts at the same time.
      shared: several.map((system, i) => [system, calls(rotated(visits, i / PROCESSES))]),
      routed: several.map((system, i) => [system, calls(visits.filter((visit) => owner.get(visit.project_id) === i))]),
    }
    const run = (seconds: number) => async (name: Spreading) => {
      const load = { connections: CONNECTIONS / loads[name].length, duration_s: seconds }
      const samples = await Promise.all(loads[name].map(([system, requests]) => sample(system, requests, load)))
      return {
        perSecond: samples.reduce((sum, { perSecond }) => sum + perSecond, 0),
        p99_ms: Math.max(...samples.map(({ p99_ms }) => p99_ms)),
      }
    }
    const names: Spreading[] = size.projects < PROCESSES ? ['one', 'shared'] : ['one', 'shared', 'routed']
    await alternate(names, 1, run(WARM_UP_s))
    results.push({ projects: size.projects, atLeast, recorded: await alternate(names, rounds, run(duration_s)) })
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
  const one = of(recorded.one)
  return spreadOf(of(recorded[spreading]).map((value, round) => value / (one[round] as number)))
}
