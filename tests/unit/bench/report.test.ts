import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Figure } from '../../../bench/figures.ts'
import type { ProcessesResult } from '../../../bench/processes.ts'
import { figuresTable, pictures, processesTable, racesTable, writeParts } from '../../../bench/report.ts'
import type { Sample } from '../../../bench/sample.ts'
import { spreadOf } from '../../../bench/statistics.ts'

const FIGURES: Figure[] = [
  {
    name: 'get module',
    against: 'express',
    measured: spreadOf([5, 6.5, 7]),
    bound: { atLeast: 6 },
    cpu: spreadOf([4]),
  },
  { name: 'get module', against: 'bare', measured: spreadOf([1.2]), bound: { atLeast: 1.3 } },
  { name: 'latency', against: 'bare', measured: spreadOf([1.25]), bound: { atMost: 1.25 } },
  { name: 'memory', against: '', measured: spreadOf([230]), bound: { atMost: 200, unit: ' MB' } },
]

/** The cells of the rows below the header. */
const cellsOf = (table: string) =>
  table
    .split('\n')
    .filter((line) => line.startsWith('|'))
    .slice(2)
    .map((line) =>
      line
        .slice(1, -1)
        .split('|')
        .map((cell) => cell.trim()),
    )

describe('the table of figures', () => {
  it('shows the bound beside the measured value, and marks what misses it', () => {
    expect(cellsOf(figuresTable(FIGURES))).toEqual([
      ['get module', 'express', '6.50 (5.00–7.00)', '≥ 6×', 'ok', '4.00'],
      ['get module', 'bare', '1.20', '≥ 1.3×', 'below', ''],
      ['latency', 'bare', '1.25', '≤ 1.25×', 'ok', ''],
      ['memory', '', '230', '≤ 200 MB', 'below', ''],
    ])
  })

  it('does not judge what could not be measured', () => {
    const [latency] = cellsOf(figuresTable([{ ...(FIGURES[2] as Figure), measured: spreadOf([Number.NaN]) }]))
    expect(latency?.slice(2)).toEqual(['–', '≤ 1.25×', 'unknown', ''])
  })

  it('has lines of equal width, so that the source is readable', () => {
    expect(
      new Set(
        figuresTable(FIGURES)
          .split('\n')
          .map((line) => line.length),
      ).size,
    ).toBe(1)
  })

  it('names the contestants that did not race', () => {
    expect(figuresTable(FIGURES, ['pgbench', 'bare'])).toMatch(/\n\nDid not race: pgbench, bare\.$/)
    expect(figuresTable(FIGURES)).not.toContain('Did not race')
  })
})

it('shows the results of each contestant by race', () => {
  const sample: Sample = { perSecond: 5000, p50_ms: 5, p99_ms: 20, service_s: 0.12, database_s: 0.05, peak_MB: 180 }
  const insert = { ...sample, service_s: Number.NaN, peak_MB: Number.NaN }
  const races = new Map([['record', { flowtrail: [sample, { ...sample, perSecond: 7000 }], pgbench: [insert] }]])
  expect(cellsOf(racesTable(races))).toEqual([
    ['record', 'flowtrail', '6,000 (5,000–7,000)', '5.00', '20.0', '0.120', '0.050', '180'],
    ['', 'pgbench', '5,000', '5.00', '20.0', '–', '0.050', '–'],
  ])
})

it('compares several processes with one, round by round, and judges throughput and p99', () => {
  const recorded = (...rounds: [perSecond: number, p99_ms: number][]) =>
    rounds.map(([perSecond, p99_ms]) => ({ perSecond, p99_ms }))
  const one = recorded([1000, 10], [2000, 20])
  const of = (projects: number, others: Partial<ProcessesResult['recorded']>) => ({
    projects,
    connections: 63,
    atLeast: 0.9,
    recorded: { one, ...others },
  })
  const table = processesTable([
    of(1, { shared: recorded([900, 10], [1800, 20]) }),
    of(10_000, { shared: recorded([850, 10], [1800, 20]), routed: recorded([1000, 20], [2000, 40]) }),
  ])
  expect(cellsOf(table)).toEqual([
    ['1', '63', 'all of them', '1,500', '0.900', '≥ 0.9×', '1.00', '≤ 1.5×', 'ok'],
    ['10,000', '63', 'all of them', '1,500', '0.875 (0.850–0.900)', '≥ 0.9×', '1.00', '≤ 1.5×', 'below'],
    ['10,000', '63', 'a third', '1,500', '1.00', '≥ 0.9×', '2.00', '≤ 1.5×', 'below'],
  ])
})

it('links to the plots relative to the document', () => {
  expect(pictures({ curve: { title: 'A curve' }, growth: { title: 'Growth' } })).toBe(
    '![A curve](performance/curve.svg)\n\n![Growth](performance/growth.svg)',
  )
})

describe('the document', () => {
  const BEFORE =
    '# Title\n\n<!-- one -->\n\nold\n\n<!-- /one -->\n\nbetween\n\n<!-- two -->\n\nkept\n\n<!-- /two -->\n\nend\n'
  let directory: string
  let file: string

  beforeAll(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'flowtrail-report-'))
    file = path.join(directory, 'document.md')
  })
  afterAll(() => rm(directory, { recursive: true }))

  it('gets the part between its markers and keeps the rest', async () => {
    await writeFile(file, BEFORE)
    await writeParts(file, { one: 'new' })
    const once = await readFile(file, 'utf8')
    expect(once).toBe(BEFORE.replace('old', 'new'))
    await writeParts(file, { one: 'new' })
    expect(await readFile(file, 'utf8')).toBe(once)
  })

  it('is unchanged when a marker is missing, and the error names it', async () => {
    await writeFile(file, BEFORE)
    await expect(writeParts(file, { one: 'new', three: 'more' })).rejects.toThrow('lacks the markers of three')
    expect(await readFile(file, 'utf8')).toBe(BEFORE)
  })

  it('has the markers of every part that the bench writes', async () => {
    const document = await readFile(new URL('../../../docs/performance.md', import.meta.url), 'utf8')
    const growth = ['growth', 'growth-plots', 'fairness', 'bytes']
    const marks = ['figures', 'races', 'ablation', 'race-plots', 'processes', ...growth]
    for (const mark of marks) expect(document).toMatch(new RegExp(`<!-- ${mark} -->\\n[^]*<!-- /${mark} -->`))
  })
})
