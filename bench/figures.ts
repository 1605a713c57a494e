import type { Contestant, Results } from './race.ts'
import { costOf, type Sample } from './sample.ts'
import type { Start } from './start.ts'
import { type Spread, spreadOf } from './statistics.ts'

/** A figure that the project means to reach. */
export interface Figure {
  name: string
  against: string
  measured: Spread
  bound: Bound
  /** How many times our CPU time a request of the other takes, where both are known. */
  cpu?: Spread
}

export type Bound = { atLeast: number } | { atMost: number; unit?: string }

/** Whether the measured median keeps the bound. */
export const isReached = ({ measured, bound }: Figure): boolean =>
  'atLeast' in bound ? measured.median >= bound.atLeast : measured.median <= bound.atMost

interface RatioOf {
  race: string
  against: Contestant
  /** How it is named where the race's name does not tell. */
  name?: string
  ratio: (ours: Sample, theirs: Sample) => number
  bound: Bound
}

const throughput = (ours: Sample, theirs: Sample) => ours.perSecond / theirs.perSecond

/** The ratios to reach, all of rounds of one run. */
const RATIOS: readonly RatioOf[] = [
  { race: 'get module', against: 'express', ratio: throughput, bound: { atLeast: 6 } },
  { race: 'get module', against: 'platformatic', ratio: throughput, bound: { atLeast: 4 } },
  { race: 'get module', against: 'bare', ratio: throughput, bound: { atLeast: 1.3 } },
  { race: 'get module', against: 'no-database', ratio: throughput, bound: { atLeast: 0.45 } },
  { race: 'list 100 events', against: 'express', ratio: throughput, bound: { atLeast: 4 } },
  { race: 'list 100 page-view records', against: 'express', ratio: throughput, bound: { atLeast: 4 } },
  { race: 'record, contact known', against: 'express', ratio: throughput, bound: { atLeast: 6 } },
  { race: 'record, contact known', against: 'pgbench', ratio: throughput, bound: { atLeast: 1.2 } },
  { race: 'record, new contact each', against: 'express', ratio: throughput, bound: { atLeast: 4 } },
  {
    race: 'get module',
    name: 'get module: p99 against p50',
    against: 'express',
    ratio: (ours, theirs) => ours.p99_ms / theirs.p50_ms,
    bound: { atMost: 1 },
  },
  {
    race: 'get module, one at a time',
    name: 'get module, one at a time: latency',
    against: 'bare',
    ratio: (ours, theirs) => ours.p50_ms / theirs.p50_ms,
    bound: { atMost: 1.25 },
  },
]

/** The figures that the races tell; none of a contestant that did not start. */
export function figuresOf(results: ReadonlyMap<string, Results>): Figure[] {
  return RATIOS.flatMap(({ race, against, name = race, ratio, bound }) => {
    const ours = results.get(race)?.flowtrail ?? []
    const theirs = results.get(race)?.[against]
    if (!theirs) return []
    const byRound = (of: RatioOf['ratio']) => spreadOf(ours.map((one, round) => of(one, theirs[round] as Sample)))
    const cpu = ratio === throughput && { cpu: byRound((one, other) => costOf(other) / costOf(one)) }
    return [{ name, against, measured: byRound(ratio), bound, ...cpu }]
  })
}

/** What is measured of Flowtrail alone, round by round. */
export interface Lone {
  /** How long COPY of the same rows takes, as a multiple of what an import takes. */
  imports: readonly number[]
  starts: Record<'embedded' | 'beside', readonly Start[]>
}

/** The figures for which there is no race. */
export function loneFigures(results: ReadonlyMap<string, Results>, { imports, starts }: Lone): Figure[] {
  const peaks = [...results.values()].flatMap(({ flowtrail = [] }) => flowtrail.map(({ peak_MB }) => peak_MB))
  const most = Math.max(...peaks)
  const seconds = (of: readonly Start[]) => spreadOf(of.map((start) => start.seconds))
  const atRest = [...starts.embedded, ...starts.beside].map(({ memory_MB }) => memory_MB)
  const alone = (name: string, measured: Spread, atMost: number, unit: string): Figure => ({
    name,
    against: '',
    measured,
    bound: { atMost, unit },
  })
  return [
    { name: 'import', against: 'COPY', measured: spreadOf(imports), bound: { atLeast: 0.5 } },
    alone('memory under full load', { median: most, least: most, most }, 200, ' MB'),
    alone('memory after the first answer', spreadOf(atRest), 200, ' MB'),
    alone('serve to first answer, warm embedded database', seconds(starts.embedded), 1, ' s'),
    alone('serve to first answer, DATABASE_URL', seconds(starts.beside), 1, ' s'),
  ]
}
