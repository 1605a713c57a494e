import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { DEMO } from '../../src/demo/project.ts'
import { callsFor, chooseVisits } from '../calls.ts'
import { checkFlowtrail } from '../peers/check.ts'
import { alternate, type Sample, type Sampler } from '../sample.ts'
import { makeKeys } from '../seed.ts'
import { startFlowtrail } from '../systems.ts'
import { OPTIMIZATIONS, type Optimization } from './optimizations.ts'

const PRELOAD = pathToFileURL(path.join(import.meta.dirname, 'disable.ts')).href
const PAGE = 100
const VISITS = 2_000
const COMPARED = 2

/** An optimisation with what was measured with all on, and with this one off. */
export interface Ablation {
  optimization: Optimization
  samples: Record<'on' | 'off', Sample[]>
}

export interface AblationOptions {
  url: string
  rounds: number
  duration_s: number
  warmUp_s: number
  /** Optimisations to measure, by name; all of them when absent. */
  only?: readonly string[]
}

/**
 * Switches one optimisation off at a time and measures it against all on, in alternation, on the load that it is for.
 * @throws Error when the service responds differently without an optimisation
 */
export async function measureAblations(
  { url, rounds, duration_s, warmUp_s, only }: AblationOptions,
  sample: Sampler,
): Promise<Ablation[]> {
  const names = OPTIMIZATIONS.map(({ name }) => name)
  const unknown = only?.find((name) => !names.includes(name))
  if (unknown !== undefined) throw new Error(`there is no optimisation ${unknown}; there are ${names.join(', ')}`)
  const projects = [DEMO.projectId]
  const keys = await makeKeys(url, projects)
  const visits = await chooseVisits(url, { projects, count: VISITS })
  const long = await chooseVisits(url, { projects, count: VISITS, valuePrefix: '"visitor' })
  const ablations: Ablation[] = []
  for (const optimization of OPTIMIZATIONS.filter(({ name }) => only?.includes(name) ?? true)) {
    await using cleanup = new AsyncDisposableStack()
    const on = await startFlowtrail({ DATABASE_URL: url })
    cleanup.defer(on.stop)
    const off = await startFlowtrail({
      DATABASE_URL: url,
      NODE_OPTIONS: `--import=${PRELOAD}`,
      FLOWTRAIL_ABLATION: optimization.name,
    })
    cleanup.defer(off.stop)

    const key = keys.get(DEMO.projectId) as string
    const { differences } = await checkFlowtrail({
      ours: on.address,
      theirs: off.address,
      key,
      visits: visits.slice(0, COMPARED),
    })
    if (differences.length > 0) throw new Error(`without ${optimization.name}:\n${differences.join('\n')}`)

    const { task, connections, longEntries } = optimization.load
    const calls = callsFor(task, longEntries ? long : visits, keys, PAGE)
    const run = (seconds: number) => (name: 'on' | 'off') =>
      sample(name === 'on' ? on : off, calls, { connections, duration_s: seconds })
    await alternate(['on', 'off'], 1, run(warmUp_s))
    ablations.push({ optimization, samples: await alternate(['on', 'off'], rounds, run(duration_s)) })
    process.stderr.write(`ablation: ${optimization.name}\n`)
  }
  return ablations
}
