import { DEMO } from '../src/demo/project.ts'
import { batchCalls, callsFor, chooseVisits, type Task } from './calls.ts'
import { copyEvents } from './copy-events.ts'
import { rowsOf } from './data.ts'
import { checkPeer } from './peers/check.ts'
import { PEERS, type PeerName, peerCalls } from './peers/peers.ts'
import { findPgbench, runPgbench } from './peers/pgbench.ts'
import { alternate, type Sample, type Sampler, withCpuSeconds } from './sample.ts'
import { makeKeys } from './seed.ts'
import { type System, startFlowtrail, startPeer } from './systems.ts'

/** Who takes part in a race. */
export type Contestant = 'flowtrail' | PeerName | 'pgbench'

/** A task that several contestants do, in turn. */
export interface Race {
  name: string
  task: Task
  connections: number
  against: readonly Exclude<Contestant, 'flowtrail'>[]
  /** Which visits it is about: the ones with a hundred events, or those of the demo. */
  longEntries?: boolean
}

const READ = { name: 'get module', task: 'getModule', connections: 32 } as const
export const RECORD = { name: 'record, contact known', task: 'recordKnown', connections: 64 } as const

export const RACES: readonly Race[] = [
  { ...READ, against: ['express', 'platformatic', 'bare', 'no-database'] },
  // Without a target: the demo has few modules, so that several requests often name the same one at once.
  { name: 'get entry, each another', task: 'getEntry', connections: 32, against: ['express'] },
  { name: 'list 100 events', task: 'listEntryEvents', connections: 32, against: ['express'], longEntries: true },
  { name: 'list 100 page-view records', task: 'listEntryPageViews', connections: 32, against: ['express'] },
  { ...RECORD, against: ['express', 'pgbench'] },
  { name: 'record, new contact each', task: 'recordNew', connections: 64, against: ['express'] },
  { name: 'get module, one at a time', task: 'getModule', connections: 1, against: ['bare'] },
]

/** Throughput by the number of connections. */
export const CURVES: readonly Omit<Race, 'connections'>[] = [
  { ...READ, against: ['express', 'platformatic', 'bare', 'no-database'] },
  { ...RECORD, against: ['express', 'pgbench'] },
]
export const CONNECTIONS = [1, 2, 4, 8, 16, 32, 64, 128, 256]

const PAGE = 100
/** More would not increase throughput, and a server has only a hundred connections. */
const PGBENCH_CLIENTS = 32
const VISITS = 2_000
const EVENTS_OF_BATCH = 1_000
/** For how many visits the responses are compared; it takes about a second. */
const COMPARED = 5

const NOT_ALLOWED = '42501'

/** All contestants, running. */
export interface Field {
  run: (race: Race, contestant: Contestant, duration_s: number) => Promise<Sample>
  /** The contestants that this machine has and that respond as Flowtrail does. */
  contestants: (race: Pick<Race, 'against'>) => Promise<Contestant[]>
  /** Records batches of a thousand events over four connections. @returns events a second */
  runBatches: (duration_s: number) => Promise<number>
  /** Stores as many events by COPY, a thousand a commit. @returns events a second */
  runCopies: (duration_s: number) => Promise<number>
  /** Why a contestant takes no part. */
  absences: ReadonlyMap<Contestant, string>
  /** Runs a checkpoint, so that what the last race wrote does not cost the next one. */
  settle: () => Promise<void>
  /** A key of the project that all requests are about. */
  key: string
}

/** Starts everything on one database. */
export async function openField(
  { url, postmaster }: { url: string; postmaster: number | undefined },
  sample: Sampler,
  cleanup: AsyncDisposableStack,
): Promise<Field> {
  const { keys, usual, long, callsOf } = await openCalls(url)
  const key = keys.get(DEMO.projectId) as string
  const batches = batchCalls(usual, key, EVENTS_OF_BATCH)

  const flowtrail = await startFlowtrail({ DATABASE_URL: url })
  cleanup.defer(flowtrail.stop)
  const peers = await startPeers(url, cleanup)
  const pgbench = await findPgbench()

  const compared = [...usual.slice(0, COMPARED), ...long.slice(0, COMPARED)]
  const whyAbsent = async (name: Exclude<Contestant, 'flowtrail'>): Promise<string | undefined> => {
    if (name === 'pgbench') return pgbench === undefined ? 'is not on this machine' : undefined
    const pair = { name, ours: flowtrail.address, theirs: peers[name].address, key, visits: compared }
    const { comparisons, differences } = await checkPeer(pair)
    if (differences.length === 0) return undefined
    return `differs from Flowtrail in ${differences.length} of ${comparisons} responses:\n${differences.join('\n')}`
  }
  const absences = new Map<Contestant, string>()

  const insert = async (program: string, clients: number, duration_s: number): Promise<Sample> => {
    const options = { databaseUrl: url, projectId: DEMO.projectId, clients, duration_s: Math.ceil(duration_s) }
    const run = () => runPgbench(program, options)
    const [load, , database_s] = await withCpuSeconds([undefined, postmaster], run)
    const { requests, perSecond, p50_ms, p99_ms } = load
    // pgbench is the client itself: there is no service.
    const none = { service_s: Number.NaN, peak_MB: Number.NaN }
    return { ...none, perSecond, p50_ms, p99_ms, database_s: (database_s * 1000) / requests }
  }
  return {
    key,
    absences,
    async contestants({ against }) {
      const found: Contestant[] = ['flowtrail']
      for (const name of against) {
        const reason = await whyAbsent(name)
        if (reason === undefined) found.push(name)
        else absences.set(name, reason)
      }
      return found
    },
    async settle() {
      // The role may lack the privilege on an operator's server; then its own settings decide.
      await rowsOf(url, 'CHECKPOINT').catch((error) => {
        if (error.code !== NOT_ALLOWED) throw error
      })
    },
    async runBatches(duration_s) {
      const { perSecond } = await sample(flowtrail, batches, { connections: 4, duration_s })
      return perSecond * EVENTS_OF_BATCH
    },
    runCopies: (duration_s) => copyEvents(url, { projectId: DEMO.projectId, rows: EVENTS_OF_BATCH, duration_s }),
    async run(race, contestant, duration_s) {
      const { task, connections, longEntries } = race
      const options = { connections, duration_s }
      if (contestant === 'flowtrail') return sample(flowtrail, callsOf(race), options)
      if (contestant !== 'pgbench') {
        const visits = longEntries ? long : usual
        return sample(peers[contestant], peerCalls(contestant, task, visits, keys, PAGE), options)
      }
      if (pgbench === undefined) throw new Error('pgbench is not on this machine')
      return insert(pgbench, Math.min(connections, PGBENCH_CLIENTS), duration_s)
    },
  }
}

/** The visits that the races are about, and the requests of each race to Flowtrail. */
export async function openCalls(url: string) {
  const projects = [DEMO.projectId]
  const keys = await makeKeys(url, projects)
  const usual = await chooseVisits(url, { projects, count: VISITS })
  const long = await chooseVisits(url, { projects, count: VISITS, valuePrefix: '"visitor' })
  const callsOf = ({ task, longEntries }: Race) => callsFor(task, longEntries ? long : usual, keys, PAGE)
  return { keys, usual, long, callsOf }
}

async function startPeers(url: string, cleanup: AsyncDisposableStack): Promise<Record<PeerName, System>> {
  const systems = new Map<string, System>()
  for (const [name, { entry }] of Object.entries(PEERS)) {
    const system = await startPeer(entry, url)
    cleanup.defer(system.stop)
    systems.set(name, system)
  }
  return Object.fromEntries(systems) as Record<PeerName, System>
}

export type Results = Partial<Record<Contestant, Sample[]>>

export interface Timing {
  rounds: number
  duration_s: number
  warmUp_s: number
}

/** Runs a race: everyone once to warm up, then in alternation. */
export async function runRace(
  field: Field,
  race: Race,
  contestants: readonly Contestant[],
  { rounds, duration_s, warmUp_s }: Timing,
): Promise<Results> {
  const run = (seconds: number) => (name: Contestant) => field.run(race, name, seconds)
  await field.settle()
  await alternate(contestants, 1, run(warmUp_s))
  return alternate(contestants, rounds, run(duration_s))
}
