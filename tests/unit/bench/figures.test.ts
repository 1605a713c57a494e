import { describe, expect, it } from 'vitest'
import { figuresOf, isReached, standaloneFigures } from '../../../bench/figures.ts'
import { type Contestant, RACES, type Results } from '../../../bench/race.ts'
import type { Sample } from '../../../bench/sample.ts'

const sample = (perSecond: number): Sample => ({
  perSecond,
  p50_ms: 10_000 / perSecond,
  p99_ms: 30_000 / perSecond,
  service_s: 100 / perSecond,
  database_s: 100 / perSecond,
  peak_MB: 150,
})

/** Races in which Flowtrail handles 900, 1000 and 1100 requests a second, and every other contestant `perSecond`. */
const racesAgainst = (perSecond: number, without?: Contestant): Map<string, Results> =>
  new Map(
    RACES.map(({ name, against }) => {
      const others = against.filter((contestant) => contestant !== without)
      const entries = others.map((contestant) => [contestant, Array(3).fill(sample(perSecond))] as const)
      return [name, { flowtrail: [900, 1000, 1100].map(sample), ...Object.fromEntries(entries) }]
    }),
  )

const STANDALONE = {
  imports: [0.6, 0.4, 0.7],
  starts: {
    flowtrail: [
      { seconds: 0.8, memory_MB: 90 },
      { seconds: 1.4, memory_MB: 92 },
    ],
    'fastify-pg': [
      { seconds: 0.4, memory_MB: 70 },
      { seconds: 0.5, memory_MB: 70 },
    ],
  },
  feed: {
    feed: [30_000, 40_000, 50_000],
    lists: [1_000, 2_000, 2_000],
    export: [20_000, 20_000, 20_000],
    waiting_KB: [12, 9, 30],
    held_KB: [6, 6, 10],
    delivery_ms: [300, 400, 200],
  },
  batches: {
    batches: [12_000, 12_000, 15_000],
    singles: [2_000, 2_000, 2_000],
    pgbench: [4_000, 4_000, 4_000],
    copies: [30_000, 30_000, 30_000],
  },
  visits: {
    import_ms: [8, 9, 12],
    single_ms: [3, 3, 3],
    imports: [6_000, 6_000, 8_000],
    command: [20_000, 20_000, 20_000],
  },
}

describe('the figures', () => {
  const figures = [...figuresOf(racesAgainst(200)), ...standaloneFigures(racesAgainst(200), STANDALONE)]

  it('are the targets of the project', () => {
    const bounds = figures.map(({ name, against, bound }) => [name, against, bound])
    expect(bounds).toEqual([
      ['get module', 'express', { atLeast: 8 }],
      ['get module', 'platformatic', { atLeast: 3.5 }],
      ['get module', 'bare', { atLeast: 3.5 }],
      ['get module', 'no-database', { atLeast: 0.75 }],
      ['list 100 events', 'express', { atLeast: 2.5 }],
      ['list 100 page-view records', 'express', { atLeast: 2.5 }],
      ['record, contact known', 'express', { atLeast: 10 }],
      ['record, contact known', 'pgbench', { atLeast: 0.6 }],
      ['record, new contact each', 'express', { atLeast: 8 }],
      ['get module: p99 against p50', 'express', { atMost: 0.5 }],
      ['get module, one at a time: p50', 'bare', { atMost: 1 }],
      ['get module, one at a time: p99', 'bare', { atMost: 1.5 }],
      ['import', 'COPY', { atLeast: 0.7 }],
      ['memory in all races', '', { atMost: 400, unit: ' MB' }],
      ['memory after the first response', '', { atMost: 160, unit: ' MB' }],
      ['start to first response', 'fastify-pg', { atMost: 2 }],
      ['follow the feed, events a second', 'export', { atLeast: 1 }],
      ['follow the feed, events a second', 'lists of entries', { atLeast: 20 }],
      ['record batches of 1,000, events a second', 'single events', { atLeast: 4 }],
      ['record batches of 1,000, events a second', 'COPY', { atLeast: 0.25 }],
      ['record batches of 1,000, events a second', 'pgbench', { atLeast: 2 }],
      ['import 100 lines: time', 'a single event', { atMost: 4 }],
      ['import 100 lines at a time, lines a second', 'the command', { atLeast: 0.3 }],
      ['memory of a waiting request', 'node:http', { atMost: 2 }],
      ['an event reaches 1,000 followers: p99', '', { atMost: 1_000, unit: ' ms' }],
    ])
  })

  it('are medians of the ratios within each round', () => {
    const [first] = figures
    expect(first?.measured).toEqual({ median: 5, least: 4.5, most: 5.5 })
    expect(first?.cpu?.median).toBe(5)
    const p99 = figures.find(({ name }) => name === 'get module: p99 against p50')
    expect(p99?.measured.median).toBe(0.6)
    const memory = figures.find(({ name }) => name === 'memory in all races')
    expect(memory?.measured.median).toBe(150)
    const start = figures.find(({ name }) => name === 'start to first response')
    expect(start?.measured).toEqual({ median: 2.4, least: 2, most: 2.8 })
    const last = figures.slice(-9).map(({ measured }) => measured.median)
    expect(last).toEqual([2, 25, 6, 0.4, 3, 3, 0.3, 2, 300])
  })

  it('count as reached at the exact bound too', () => {
    const reached = (against: number) =>
      figuresOf(racesAgainst(against))
        .filter(isReached)
        .map(({ bound }) => bound)
    expect(reached(125)).toContainEqual({ atLeast: 8 })
    expect(reached(126)).not.toContainEqual({ atLeast: 8 })
    expect(reached(1000)).toContainEqual({ atMost: 1 })
    expect(reached(1001)).not.toContainEqual({ atMost: 1 })
  })

  it('omit a contestant that did not race', () => {
    const against = figuresOf(racesAgainst(200, 'pgbench')).map((figure) => figure.against)
    expect(against).not.toContain('pgbench')
    expect(against).toHaveLength(11)
    const { pgbench: _, ...batches } = STANDALONE.batches
    const standalone = standaloneFigures(racesAgainst(200), { ...STANDALONE, batches })
    expect(standalone.map((figure) => figure.against)).not.toContain('pgbench')
  })
})

it('runs each race with the number of connections that the figures refer to', () => {
  expect(Object.fromEntries(RACES.map(({ name, connections }) => [name, connections]))).toEqual({
    'get module': 32,
    'get entry, each another': 32,
    'list 100 events': 32,
    'list 100 page-view records': 32,
    'record, contact known': 64,
    'record, new contact each': 64,
    'get module, one at a time': 1,
  })
})
