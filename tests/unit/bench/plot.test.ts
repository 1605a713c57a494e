import { describe, expect, it } from 'vitest'
import { type Chart, drawChart } from '../../../bench/plot.ts'

const CHART: Chart = {
  title: 'Throughput <by> connections & more',
  x: 'connections',
  y: 'requests a second',
  lines: [
    {
      name: 'flowtrail',
      points: [
        [1, 3000],
        [8, 9000],
        [64, 12_000],
      ],
    },
    {
      name: 'node & pg',
      points: [
        [1, 2900],
        [8, 7000],
        [64, 7100],
      ],
    },
  ],
}

/** Expects every opened element to be closed, in order. */
function expectWellFormed(svg: string): void {
  const open: string[] = []
  for (const [, slash, name = '', rest] of svg.matchAll(/<(\/?)([a-z]+)([^<>]*)>/g)) {
    if (slash) expect(open.pop()).toBe(name)
    else if (!rest?.endsWith('/')) open.push(name)
  }
  expect(open).toEqual([])
  expect(svg.replaceAll(/<\/?[a-z]+[^<>]*>/g, '')).not.toMatch(/[<>]|&(?!#\d+;)/)
}

const circles = (svg: string) =>
  svg
    .matchAll(/<circle cx="([\d.]+)" cy="([\d.]+)"/g)
    .map(([, x, y]) => ({ x: Number(x), y: Number(y) }))
    .toArray()

describe('a chart', () => {
  const svg = drawChart(CHART)

  it('is a standalone SVG', () => {
    expectWellFormed(svg)
    expect(svg).toMatch(/^<svg xmlns="http:\/\/www\.w3\.org\/2000\/svg"/)
    for (const text of ['&#60;by&#62; connections &#38; more', 'flowtrail', 'node &#38; pg', 'requests a second']) {
      expect(svg).toContain(text)
    }
  })

  it('has a point for each measurement, with a logarithmic x axis and greater values higher up', () => {
    const points = circles(svg)
    expect(points).toHaveLength(6)
    const [first, second, third] = points.slice(0, 3).map(({ x }) => x) as [number, number, number]
    expect(second - first).toBeCloseTo(third - second, 0)
    const heights = points.slice(0, 3).map(({ y }) => y)
    expect(heights).toEqual(heights.toSorted((a, b) => b - a))
  })

  it('supports dark mode', () => {
    expect(svg).toContain('prefers-color-scheme: dark')
  })
})

it.each([
  ['nothing', []],
  ['a line without points', [{ name: 'a', points: [] }]],
  ['a single point', [{ name: 'a', points: [[10_000, 0.2]] }]],
  [
    'zeros',
    [
      {
        name: 'a',
        points: [
          [1, 0],
          [2, 0],
        ],
      },
    ],
  ],
  [
    'a point that could not be measured',
    [
      {
        name: 'a',
        points: [
          [1, Number.NaN],
          [2, 5],
        ],
      },
    ],
  ],
] satisfies [string, Chart['lines']][])('draws %s', (_what, lines) => {
  const svg = drawChart({ ...CHART, lines })
  expectWellFormed(svg)
  expect(svg).not.toMatch(/NaN|Infinity|undefined/)
})
