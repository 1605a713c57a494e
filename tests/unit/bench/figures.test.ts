import { describe, expect, it } from 'vitest'
import { figuresOf, isReached, loneFigures } from '../../../bench/figures.ts'
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

/** Races in which we do 900, 1000 and 1100 a second, and everyone else as much as they do. */
const racesAgainst = (perSecond: number, without?: Contestant): Map<string, Results> =>
  new Map(
    RACES.map(({ name, against }) => {
      const others = against.filter((contestant) => contestant !== without)
      const entries = others.map((contestant) => [contestant, Array(3).fill(sample(perSecond))] as const)
      return [name, { flowtrail: [900, 1000, 1100].map(sample), ...Object.fromEntries(entries) }]
    }),
  )

const LONE = {
  imports: [0.6, 0.4, 0.7],
  starts: {
    embedded: [
      { seconds: 0.8, memory_MB: 90 },
      { seconds: 1.4, memory_MB: 92 },
    ],
    beside: [{ seconds: 0.6, memory_MB: 80 }],
  },
}

describe('the figures', () => {
  const figures = [...figuresOf(racesAgainst(200)), ...loneFigures(racesAgainst(200), LONE)]

  it('are those that the project means to reach', () => {
    const bounds = figures.map(({ name, against, bound }) => [name, against, bound])
    expect(bounds).toEqual([
      ['get module', 'express', { atLeast: 6 }],
      ['get module', 'platformatic', { atLeast: 4 }],
      ['get module', 'bare', { atLeast: 1.3 }],
      ['get module', 'no-database', { atLeast: 0.45 }],
      ['list 100 events', 'express', { atLeast: 4 }],
      ['list 100 page-view records', 'express', { atLeast: 4 }],
      ['record, contact known', 'express', { atLeast: 6 }],
      ['record, contact known', 'pgbench', { atLeast: 1.2 }],
      ['record, new contact each', 'express', { atLeast: 4 }],
      ['get module: p99 against p50', 'express', { atMost: 1 }],
      ['get module, one at a time: latency', 'bare', { atMost: 1.25 }],
      ['import', 'COPY', { atLeast: 0.5 }],
      ['memory under full load', '', { atMost: 200, unit: ' MB' }],
      ['memory after the first answer', '', { atMost: 200, unit: ' MB' }],
      ['serve to first answer, warm embedded database', '', { atMost: 1, unit: ' s' }],
      ['serve to first answer, DATABASE_URL', '', { atMost: 1, unit: ' s' }],
    ])
  })

  it('are medians of the ratios within each round', () => {
    const [first] = figures
    expect(first?.measured).toEqual({ median: 5, least: 4.5, most: 5.5 })
    expect(first?.cpu?.median).toBe(5)
    const p99 = figures.find(({ name }) => name === 'get module: p99 against p50')
    expect(p99?.measured.median).toBe(0.6)
    const memory = figures.find(({ name }) => name === 'memory under full load')
    expect(memory?.measured.median).toBe(150)
  })

  it('know what is reached, also when it is reached exactly', () => {
    const reached = (against: number) =>
      figuresOf(racesAgainst(against))
        .filter(isReached)
        .map(({ bound }) => bound)
    expect(reached(250)).toContainEqual({ atLeast: 4 })
    expect(reached(251)).not.toContainEqual({ atLeast: 4 })
    expect(reached(250)).toContainEqual({ atMost: 1.25 })
  })

  it('are none of a contestant that did not race', () => {
    const against = figuresOf(racesAgainst(200, 'pgbench')).map((figure) => figure.against)
    expect(against).not.toContain('pgbench')
    expect(against).toHaveLength(10)
  })
})

it('has connections as many as the figures are about', () => {
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
