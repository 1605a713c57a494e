import { CITUS_NODES } from '../tests/support/citus.ts'
import { createMigrated, onNodes } from '../tests/support/global-setup.ts'
import { callsFor, chooseVisits } from './calls.ts'
import type { BenchServer, DataSet } from './data.ts'
import type { Call } from './load.ts'
import { openCalls, RACES, RECORD, type Timing } from './race.ts'
import { alternate, type Sample, type Sampler } from './sample.ts'
import { demoSet, makeKeys, projectIds, projectsSet } from './seed.ts'
import { ratios, type Spread } from './statistics.ts'
import { type System, startFlowtrail } from './systems.ts'

const DATABASE = 'flowtrail_bench_cluster'

/** What a service on a cluster does, and the least that it is to reach of one on a plain database of the coordinator's server. */
interface Case {
  name: string
  connections: number
  /** None where projects share commits on the plain database, but not on the cluster. */
  atLeast?: number
  callsOf: (url: string) => Promise<Call[]>
}

const TARGETS: Record<string, number> = { 'get module': 0.5, 'list 100 events': 0.5, 'record, contact known': 0.4 }

const CASES_OF_DEMO = RACES.filter(({ name }) => name in TARGETS).map((race): Case => {
  const { name, connections } = race
  return {
    name,
    connections,
    atLeast: TARGETS[name] ?? 0,
    callsOf: async (url) => (await openCalls(url)).callsOf(race),
  }
})

const PROJECTS = { projects: 64, events: 1_000 }
const VISITS = 2_000

const IN_PROJECTS: Case = {
  name: `record, in ${PROJECTS.projects} projects`,
  connections: RECORD.connections,
  async callsOf(url) {
    const projects = projectIds(PROJECTS)
    return callsFor(RECORD.task, await chooseVisits(url, { projects, count: VISITS }), await makeKeys(url, projects), 1)
  },
}

type Side = 'plain' | 'cluster'

export interface CitusResult extends Pick<Case, 'name' | 'connections' | 'atLeast'> {
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
  const results: CitusResult[] = []
  for (const { data, cases } of [
    { data: demoSet(entries), cases: CASES_OF_DEMO },
    { data: projectsSet([PROJECTS]), cases: [IN_PROJECTS] },
  ]) {
    await using cleanup = new AsyncDisposableStack()
    const plain = await server.copy(data)
    cleanup.defer(plain.drop)
    const urls = { plain: plain.url, cluster: await createCluster(data, cleanup) }
    const systems = { plain: await start(urls.plain, cleanup), cluster: await start(urls.cluster, cleanup) }
    for (const { name, connections, atLeast, callsOf } of cases) {
      const calls = { plain: await callsOf(urls.plain), cluster: await callsOf(urls.cluster) }
      const run = (seconds: number) => (side: Side) =>
        sample(systems[side], calls[side], { connections, duration_s: seconds })
      await alternate(['plain', 'cluster'], 1, run(warmUp_s))
      const samples = await alternate(['plain', 'cluster'], rounds, run(duration_s))
      results.push({ name, connections, ...(atLeast !== undefined && { atLeast }), samples })
      process.stderr.write(`measured: ${name}\n`)
    }
  }
  return results
}

/** A database on all nodes, with the same data as the plain one. */
async function createCluster(data: DataSet, cleanup: AsyncDisposableStack): Promise<string> {
  const [coordinator] = CITUS_NODES
  if (coordinator === undefined) throw new Error('Set TEST_CITUS_URL to the nodes of a Citus cluster: CONTRIBUTING.md')
  const drop = () => onNodes(coordinator, `DROP DATABASE IF EXISTS ${DATABASE} WITH (FORCE)`)
  await drop()
  cleanup.defer(drop)
  const url = await createMigrated(coordinator, DATABASE)
  await data.fill(url)
  return url
}

async function start(url: string, cleanup: AsyncDisposableStack): Promise<System> {
  const system = await startFlowtrail({ DATABASE_URL: url })
  cleanup.defer(system.stop)
  return system
}

/** What the cluster reaches of the plain database's throughput. */
export function shareOf({ samples }: CitusResult): Spread {
  const perSecond = (side: Side) => samples[side].map((one) => one.perSecond)
  return ratios(perSecond('cluster'), perSecond('plain'))
}
