import { CITUS_NODES } from '../tests/support/citus.ts'
import { createMigrated, onNodes } from '../tests/support/global-setup.ts'
import type { BenchServer } from './data.ts'
import { openCalls, RACES, type Race, type Timing } from './race.ts'
import { alternate, type Sample, type Sampler } from './sample.ts'
import { demoSet } from './seed.ts'
import { ratios, type Spread } from './statistics.ts'
import { startFlowtrail } from './systems.ts'

const DATABASE = 'flowtrail_bench_cluster'

/** What requests to a service on a cluster must reach of those to one on a plain database of the coordinator's server. */
const TARGETS: Record<string, number> = { 'get module': 0.5, 'list 100 events': 0.5, 'record, contact known': 0.4 }
const CASES = RACES.filter(({ name }) => name in TARGETS)

type Side = 'plain' | 'cluster'

export interface CitusResult {
  race: Race
  atLeast: number
  samples: Record<Side, Sample[]>
}

export interface CitusOptions extends Timing {
  entries: number
}

/** Measures the service on the Citus cluster of TEST_CITUS_URL and on a plain database of its coordinator's server. */
export async function measureCitus(
  server: BenchServer,
  sample: Sampler,
  { entries, rounds, duration_s, warmUp_s }: CitusOptions,
): Promise<CitusResult[]> {
  await using cleanup = new AsyncDisposableStack()
  const plain = await server.copy(demoSet(entries))
  cleanup.defer(plain.drop)
  const sides = {
    plain: await open(plain.url, cleanup),
    cluster: await open(await createCluster(entries, cleanup), cleanup),
  }
  const results: CitusResult[] = []
  for (const race of CASES) {
    const run = (seconds: number) => (side: Side) => {
      const { system, callsOf } = sides[side]
      return sample(system, callsOf(race), { connections: race.connections, duration_s: seconds })
    }
    await alternate(['plain', 'cluster'], 1, run(warmUp_s))
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
  const url = await createMigrated(coordinator, DATABASE)
  await demoSet(entries).fill(url)
  return url
}

/** A service on a database, and the requests of a race to it. */
async function open(url: string, cleanup: AsyncDisposableStack) {
  const { callsOf } = await openCalls(url)
  const system = await startFlowtrail({ DATABASE_URL: url })
  cleanup.defer(system.stop)
  return { system, callsOf }
}

/** What the cluster reaches of the plain database's throughput. */
export function shareOf({ samples }: CitusResult): Spread {
  const perSecond = (side: Side) => samples[side].map((one) => one.perSecond)
  return ratios(perSecond('cluster'), perSecond('plain'))
}
