import { runFlowtrail } from '../tests/support/service.ts'
import { callsFor, chooseVisits, TASKS, type Task } from './calls.ts'
import { type BenchServer, rowsOf } from './data.ts'
import type { Call } from './load.ts'
import { alternate, costOf, type Sample, type Sampler } from './sample.ts'
import { makeKeys, type ProjectsOfSize, projectIds, projectsSet } from './seed.ts'
import { type Spread, spreadOf } from './statistics.ts'
import { type System, startFlowtrail } from './systems.ts'

/** How many different visits the requests are about. */
const VISITS = 10_000
/** Pages are full at every size: an entry has ten events, and the smallest project has at least ten entries. */
const limitOf = (task: Task) => (task === 'listEntryPageViews' ? 3 : 10)
/** For so long a service is in use again before it is measured. */
const RESUMPTION_s = 1
/** By how much a cost may grow and still count as flat. */
const FLAT = 1.15
const SIZES = [10_000, 100_000, 1_000_000, 10_000_000]

/** An amount of data to do the tasks on. */
interface Case {
  name: string
  /** The name of the case that it is compared with; the first of all is compared with none. */
  against?: string
  sizes: readonly [ProjectsOfSize, ...ProjectsOfSize[]]
  /** How many projects of the first size receive requests; all of them when absent. */
  busy?: number
}

const eventsName = (events: number) => `${events.toLocaleString('en-US')} events`

function casesUpTo(largest: number): Case[] {
  if (!SIZES.includes(largest)) throw new Error(`--events must be one of ${SIZES.join(', ')}`)
  const [smallest = 0, ...larger] = SIZES.filter((events) => events <= largest)
  const least = eventsName(smallest)
  // Many projects, or a huge neighbour, hold as much as one project of this size.
  const whole = Math.min(largest, 1_000_000)
  const ofMany = (projects: number): Case['sizes'] => [{ projects, events: whole / projects }]
  return [
    { name: least, sizes: [{ projects: 1, events: smallest }] },
    ...larger.map((events): Case => ({ name: eventsName(events), against: least, sizes: [{ projects: 1, events }] })),
    {
      name: `${least}, a neighbour of ${eventsName(whole)}`,
      against: least,
      sizes: [
        { projects: 1, events: smallest },
        { projects: 1, events: whole },
      ],
    },
    { name: '100 projects', against: eventsName(whole), sizes: ofMany(100) },
    { name: '10,000 projects, 100 busy', against: eventsName(whole), sizes: ofMany(10_000), busy: 100 },
    { name: '10,000 projects', against: eventsName(whole), sizes: ofMany(10_000) },
  ]
}

export interface GrowthOptions {
  rounds: number
  duration_s: number
  /** The most events of a data set. */
  largest: number
}

export interface Growth {
  cases: Case[]
  /** Of each task, by the name of the case. */
  samples: { task: Task; byCase: Record<string, Sample[]> }[]
  bytes: RelationBytes[]
  fairness: Fairness[]
}

/** A case's cost as a multiple of what it is compared with, round by round; and whether it counts as flat. */
export function growthOf(byCase: Record<string, Sample[]>, { name, against }: Case): Spread & { isFlat: boolean } {
  const base = byCase[against ?? name] ?? []
  const ratios = (byCase[name] ?? []).map((sample, round) => costOf(sample) / costOf(base[round] as Sample))
  const spread = spreadOf(ratios)
  return { ...spread, isFlat: spread.median <= FLAT }
}

/** Does the same tasks, a request at a time, on each amount of data in turn. */
export async function measureGrowth(server: BenchServer, sample: Sampler, options: GrowthOptions): Promise<Growth> {
  if (server.postmaster === undefined) throw new Error('the cost of growth is CPU time: the database must run here')
  await using cleanup = new AsyncDisposableStack()
  const cases = casesUpTo(options.largest)
  const stages = new Map<string, Stage>()
  for (const one of cases) stages.set(one.name, await prepare(server, one, cleanup))
  const stageOf = (name: string) => stages.get(name) as Stage

  const names = cases.map(({ name }) => name)
  const samples: Growth['samples'] = []
  for (const task of TASKS) {
    const run = (name: string, duration_s = options.duration_s) =>
      sample(stageOf(name).system, stageOf(name).calls(task), { connections: 1, duration_s })
    await alternate(names, 1, (name) => run(name))
    // What is known of keys has expired while the others were measured, as it does not in steady use.
    const measure = (name: string) => run(name, RESUMPTION_s).then(() => run(name))
    samples.push({ task, byCase: await alternate(names, options.rounds, measure) })
    process.stderr.write(`measured ${task}\n`)
  }
  const neighbours = cases.find(({ sizes }) => sizes.length > 1) as Case
  return {
    cases,
    samples,
    bytes: await relationBytes(stageOf(eventsName(options.largest)).url, options.largest),
    fairness: await measureFairness(sample, stageOf(neighbours.name), options),
  }
}

/** A copy of a case's data and a service on it. */
interface Stage {
  url: string
  system: System
  /** The ids of the projects that receive requests, by size. */
  projects: string[][]
  /** The task in the projects of the first size, or of another. */
  calls: (task: Task, size?: number) => Call[]
}

async function prepare(server: BenchServer, { sizes, busy }: Case, cleanup: AsyncDisposableStack): Promise<Stage> {
  const { url, drop } = await server.copy(projectsSet(sizes))
  cleanup.defer(drop)
  const projects = sizes.map((size, i) => projectIds(i === 0 && busy ? { ...size, projects: busy } : size))
  const keys = await makeKeys(url, projects.flat())
  const visits = await Promise.all(projects.map((ids) => chooseVisits(url, { projects: ids, count: VISITS })))
  const system = await startFlowtrail({ DATABASE_URL: url })
  cleanup.defer(system.stop)
  return { url, system, projects, calls: (task, size = 0) => callsFor(task, visits[size] ?? [], keys, limitOf(task)) }
}

/** What a table or index takes. */
export interface RelationBytes {
  table: string
  /** The index, or nothing for the table itself. */
  index: string
  bytes: number
  /** Its share in what an event takes. */
  perEvent: number
}

async function relationBytes(url: string, events: number): Promise<RelationBytes[]> {
  const rows = await rowsOf<Omit<RelationBytes, 'perEvent'>>(
    url,
    `SELECT relname AS "table", '' AS index, pg_table_size(oid) AS bytes
     FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
     UNION ALL
     SELECT indrelid::regclass::text, indexrelid::regclass::text, pg_relation_size(indexrelid)
     FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE relnamespace = 'public'::regnamespace
     ORDER BY bytes DESC`,
  )
  return rows.map((row) => ({ ...row, perEvent: row.bytes / events })).filter(({ perEvent }) => perEvent >= 1)
}

/** What a small project's requests take, one at a time, while a huge project on the same service is at work. */
export interface Fairness {
  meanwhile: string
  task: Task
  samples: Sample[]
}

/** What the huge project, the second of the stage, does for that time. */
type Work = (stage: Stage, duration_s: number, sample: Sampler) => Promise<unknown>

const NEIGHBOUR: Record<string, Work> = {
  nothing: async () => {},
  'recording on 64 connections': ({ system, calls }, duration_s, sample) =>
    sample(system, calls('recordKnown', 1), { connections: 64, duration_s }),
  'listing page views on 8 connections': ({ system, calls }, duration_s, sample) =>
    sample(system, calls('listEntryPageViews', 1), { connections: 8, duration_s }),
  'an export': async ({ url, projects }, duration_s) => {
    const { child, exit, stderr } = runFlowtrail(['export', '--project', projects[1]?.[0] ?? ''], { DATABASE_URL: url })
    child.stdout?.resume()
    const timer = setTimeout(() => child.kill('SIGTERM'), duration_s * 1000)
    const status = await exit
    clearTimeout(timer)
    const BY_SIGTERM = 143
    if (status !== 0 && status !== 'SIGTERM' && status !== BY_SIGTERM)
      throw new Error(`the export ended with ${status}: ${stderr()}`)
  },
}

async function measureFairness(
  sample: Sampler,
  stage: Stage,
  { rounds, duration_s }: GrowthOptions,
): Promise<Fairness[]> {
  const found: Fairness[] = []
  for (const task of ['getEntry', 'recordKnown'] as const) {
    const results = await alternate(Object.keys(NEIGHBOUR), rounds, async (meanwhile) => {
      // A little longer, so that it outlasts the measurement.
      const work = NEIGHBOUR[meanwhile]?.(stage, duration_s + 1, sample)
      const taken = await sample(stage.system, stage.calls(task), { connections: 1, duration_s })
      await work
      return taken
    })
    for (const [meanwhile, samples] of Object.entries(results)) found.push({ meanwhile, task, samples })
  }
  return found
}
