import type { Feed } from './feed.ts'
import type { Contestant, Results } from './race.ts'
import { costOf, type Sample } from './sample.ts'
import type { Starts } from './start.ts'
import { ratios, type Spread, spreadOf } from './statistics.ts'
import type { Visits } from './visits.ts'

/** A measured figure with its target. */
export interface Figure {
  name: string
  against: string
  measured: Spread
  bound: Bound
  /** The other's CPU time per request as a multiple of ours, where both are known. */
  cpu?: Spread
}

export type Bound = { atLeast: number } | { atMost: number; unit?: string }

/** Whether the measured median is within the bound. */
export const isReached = ({ measured, bound }: Figure): boolean =>
  'atLeast' in bound ? measured.median >= bound.atLeast : measured.median <= bound.atMost

interface RatioOf {
  race: string
  against: Contestant
  /** Its name where the race's name does not say enough. */
  name?: string
  ratio: (ours: Sample, theirs: Sample) => number
  bound: Bound
}

const throughput = (ours: Sample, theirs: Sample) => ours.perSecond / theirs.perSecond

/** The target ratios; each is the median of the ratios within the rounds of one run. */
const RATIOS: readonly RatioOf[] = [
  { race: 'get module', against: 'express', ratio: throughput, bound: { atLeast: 8 } },
  { race: 'get module', against: 'platformatic', ratio: throughput, bound: { atLeast: 3.5 } },
  { race: 'get module', against: 'bare', ratio: throughput, bound: { atLeast: 3.5 } },
  { race: 'get module', against: 'no-database', ratio: throughput, bound: { atLeast: 0.75 } },
  { race: 'list 100 events', against: 'express', ratio: throughput, bound: { atLeast: 2.5 } },
  { race: 'list 100 page-view records', against: 'express', ratio: throughput, bound: { atLeast: 2.5 } },
  { race: 'record, contact known', against: 'express', ratio: throughput, bound: { atLeast: 10 } },
  { race: 'record, contact known', against: 'pgbench', ratio: throughput, bound: { atLeast: 0.6 } },
  { race: 'record, new contact each', against: 'express', ratio: throughput, bound: { atLeast: 8 } },
  {
    race: 'get module',
    name: 'get module: p99 against p50',
    against: 'express',
    ratio: (ours, theirs) => ours.p99_ms / theirs.p50_ms,
    bound: { atMost: 0.5 },
  },
  {
    race: 'get module, one at a time',
    name: 'get module, one at a time: p50',
    against: 'bare',
    ratio: (ours, theirs) => ours.p50_ms / theirs.p50_ms,
    bound: { atMost: 1 },
  },
  {
    race: 'get module, one at a time',
    name: 'get module, one at a time: p99',
    against: 'bare',
    ratio: (ours, theirs) => ours.p99_ms / theirs.p99_ms,
    bound: { atMost: 1.5 },
  },
]

/** The figures of the races, without those of contestants that take no part. */
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

/** What is measured outside the races, by round. */
export interface Standalone {
  /** How long COPY of the same rows takes, as a multiple of what an import takes. */
  imports: readonly number[]
  starts: Starts
  feed: Feed
  batches: Batches
  visits: Visits
}

/** Events a second that are recorded in batches, in requests of their own, stored by COPY, and by pgbench if there is one. */
export interface Batches {
  batches: readonly number[]
  singles: readonly number[]
  copies: readonly number[]
  pgbench?: readonly number[]
}

/** The figures that no race measures. */
export function standaloneFigures(
  results: ReadonlyMap<string, Results>,
  { imports, starts, feed, batches, visits }: Standalone,
): Figure[] {
  const peaks = [...results.values()].flatMap(({ flowtrail = [] }) => flowtrail.map(({ peak_MB }) => peak_MB))
  const peak_MB = Math.max(...peaks)
  const startRatios = starts.flowtrail.map(
    ({ seconds }, round) => seconds / (starts['fastify-pg'][round]?.seconds ?? 0),
  )
  return [
    { name: 'import', against: 'COPY', measured: spreadOf(imports), bound: { atLeast: 0.7 } },
    {
      name: 'memory in all races',
      against: '',
      measured: { median: peak_MB, least: peak_MB, most: peak_MB },
      bound: { atMost: 400, unit: ' MB' },
    },
    {
      name: 'memory after the first response',
      against: '',
      measured: spreadOf(starts.flowtrail.map(({ memory_MB }) => memory_MB)),
      bound: { atMost: 160, unit: ' MB' },
    },
    {
      name: 'start to first response',
      against: 'fastify-pg',
      measured: spreadOf(startRatios),
      bound: { atMost: 2 },
    },
    {
      name: 'follow the feed, events a second',
      against: 'export',
      measured: ratios(feed.feed, feed.export),
      bound: { atLeast: 1 },
    },
    {
      name: 'follow the feed, events a second',
      against: 'lists of entries',
      measured: ratios(feed.feed, feed.lists),
      bound: { atLeast: 20 },
    },
    {
      name: 'record batches of 1,000, events a second',
      against: 'single events',
      measured: ratios(batches.batches, batches.singles),
      bound: { atLeast: 4 },
    },
    {
      name: 'record batches of 1,000, events a second',
      against: 'COPY',
      measured: ratios(batches.batches, batches.copies),
      bound: { atLeast: 0.25 },
    },
    ...(batches.pgbench
      ? [
          {
            name: 'record batches of 1,000, events a second',
            against: 'pgbench',
            measured: ratios(batches.batches, batches.pgbench),
            bound: { atLeast: 2 },
          },
        ]
      : []),
    {
      name: 'import 100 lines: time',
      against: 'a single event',
      measured: ratios(visits.import_ms, visits.single_ms),
      bound: { atMost: 4 },
    },
    {
      name: 'import 100 lines at a time, lines a second',
      against: 'the command',
      measured: ratios(visits.imports, visits.command),
      bound: { atLeast: 0.3 },
    },
    {
      name: 'memory of a waiting request',
      against: 'node:http',
      measured: ratios(feed.waiting_KB, feed.held_KB),
      bound: { atMost: 2 },
    },
    {
      name: 'an event reaches 1,000 followers: p99',
      against: '',
      measured: spreadOf(feed.delivery_ms),
      bound: { atMost: 1_000, unit: ' ms' },
    },
  ]
}
