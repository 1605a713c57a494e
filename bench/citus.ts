import { migrate } from '../db/migrate.ts'
import { connect } from '../src/database/open.ts'
import { DEMO } from '../src/demo/project.ts'
import { CITUS_NODES } from '../tests/support/citus.ts'
import { databaseUrl, distribute, onNodes } from '../tests/support/global-setup.ts'
import { callsFor, chooseVisits } from './calls.ts'
import type { BenchServer } from './data.ts'
import type { Call } from './load.ts'
import { RACES, type Race } from './race.ts'
import { alternate, type Sample, type Sampler } from './sample.ts'
import { demoSet, makeKeys } from './seed.ts'
import { type Spread, spreadOf } from './statistics.ts'
import { type System, startFlowtrail } from './systems.ts'

const DATABASE = 'flowtrail_bench_cluster'
const PAGE = 100
const VISITS = 2_000
const WARM_UP_s = 2

/** What requests to a service on a cluster must reach of those to one on a plain database of the coordinator's server. */
const TARGETS: Record<string, number> = { 'get module': 0.5, 'list 100 events': 0.5, 'record, contact known': 0.4 }
const CASES = RACES.filter(({ name }) => name in TARGETS)

type Side = 'plain' | 'cluster'

export interface CitusResult {
  race: Race
  atLeast: number
  samples: Record<Side, Sample[]>
}

export interface CitusOptions {
  entries: number
  rounds: number
  duration_s: number
}

/** Measures the service on the Citus cluster of TEST_CITUS_URL and on a plain database of its coordinator's server. */
export async function measureCitus(
  server: BenchServer,
  sample: Sampler,
  { entries, rounds, duration_s }: CitusOptions,
): Promise<CitusResult[]> {
  await using cleanup = new AsyncDisposableStack()
  const plain = await server.copy(demoSet(entries))
  cleanup.defer(plain.drop)
  const urls: Record<Side, string> = { plain: plain.url, cluster: await createCluster(entries, cleanup) }
  const sides: Record<Side, { system: System; calls: (race: Race) => Call[] }> = {
    plain: await open(urls.plain, cleanup),
    cluster: await open(urls.cluster, cleanup),
  }
  const results: CitusResult[] = []
  for (const race of CASES) {
    const run = (seconds: number) => (side: Side) => {
      const { system, calls } = sides[side]
      return sample(system, calls(race), { connections: race.connections, duration_s: seconds })
    }
    await alternate(['plain', 'cluster'], 1, run(WARM_UP_s))
    const samples = await alternate(['plain', 'cluster'], rounds, run(duration_s))
    results.push({ race, atLeast: TARGETS[race.name] ?? 0, samples })
    process.stderr.write(`measured: ${race.name}\n`)
  }
  return results
}

/** A database on all nodes, with the same data as the plain one. */
async function createCluster(entries: number, cleanup: AsyncDisposableStack): Promise<string> {
  const [coordinator] = CITUS_NODES
  if (coordinator === undefined) throw new Error('Set TEST_CITUS_URL to the nodes of a Citus cluster: CONTRIBUTING.md')
  const drop = () => onNodes(coordinator, `DROP DATABASE IF EXISTS ${DATABASE} WITH (FORCE)`)
  await drop()
  cleanup.defer(drop)
  await onNodes(coordinator, `CREATE DATABASE ${DATABASE}`)
  await distribute(DATABASE)
  const url = databaseUrl(coordinator, DATABASE)
  const db = connect(url, { max: 1 })
  await migrate(db).finally(() => db.destroy())
  await demoSet(entries).fill(url)
  return url
}

/** A service on a database, and the requests of a race to it. */
async function open(url: string, cleanup: AsyncDisposableStack) {
  const projects = [DEMO.projectId]
  const keys = await makeKeys(url, projects)
  const usual = await chooseVisits(url, { projects, count: VISITS })
  const long = await chooseVisits(url, { projects, count: VISITS, valuePrefix: '"visitor' })
  const system = await startFlowtrail({ DATABASE_URL: url })
  cleanup.defer(system.stop)
  return {
    system,
    calls: ({ task, longEntries }: Race) => callsFor(task, longEntries ? long : usual, keys, PAGE),
  }
}

/** What the cluster reaches of the plain database's throughput, round by round. */
export const shareOf = ({ samples: { plain, cluster } }: CitusResult): Spread =>
  spreadOf(cluster.map(({ perSecond }, round) => perSecond / (plain[round]?.perSecond ?? Number.NaN)))
