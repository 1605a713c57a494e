/**
 * Races Flowtrail against its peers and prints the results: README.md describes the options, and docs/performance.md
 * what is measured.
 */
import { once } from 'node:events'
import { mkdir, writeFile } from 'node:fs/promises'
import { cpus, totalmem } from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { untilStopped } from '../src/stop-signals.ts'
import { CITUS_NODES } from '../tests/support/citus.ts'
import { measureAblations } from './ablation/run.ts'
import { measureCitus } from './citus.ts'
import { BenchServer } from './data.ts'
import { measureFeed } from './feed.ts'
import { type Batches, figuresOf, type Standalone, standaloneFigures } from './figures.ts'
import { type Growth, measureGrowth } from './growth.ts'
import { type Chart, drawChart } from './plot.ts'
import { measureProcesses } from './processes.ts'
import {
  CONNECTIONS,
  type Contestant,
  CURVES,
  type Field,
  openField,
  RACES,
  RECORD,
  type Results,
  runRace,
} from './race.ts'
import {
  ablationTable,
  bytesTable,
  citusTable,
  fairnessTable,
  figuresTable,
  growthTable,
  pictures,
  processesTable,
  racesTable,
  writeParts,
} from './report.ts'
import { alternate, costOf, createSampler, type Sampler } from './sample.ts'
import { demoSet } from './seed.ts'
import { measureStarts } from './start.ts'
import { median } from './statistics.ts'
import { raceImport } from './transfer.ts'
import { measureVisits } from './visits.ts'

const RESULTS = path.join(import.meta.dirname, 'results')
const DOCUMENT = path.join(import.meta.dirname, '../docs/performance.md')
const PLOTS = path.join(import.meta.dirname, '../docs/performance')

const { values: options } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    smoke: { type: 'boolean', default: false },
    growth: { type: 'boolean', default: false },
    ablation: { type: 'boolean', default: false },
    processes: { type: 'boolean', default: false },
    citus: { type: 'boolean', default: false },
    write: { type: 'boolean', default: false },
    only: { type: 'string' },
    rounds: { type: 'string' },
    seconds: { type: 'string' },
    entries: { type: 'string' },
    events: { type: 'string', default: '1000000' },
  },
})
const { quick, smoke } = options
const rounds = Number(options.rounds ?? (smoke ? 1 : quick ? 3 : 5))
const duration_s = Number(options.seconds ?? (smoke || quick ? 1 : 4))
/** On a busy machine a batch of a thousand takes most of a second. */
const MIN_BATCHES_s = 3
const entries = Number(options.entries ?? (smoke ? 1_000 : 10_000))
/** Long enough for V8 to have compiled what a task needs; a smoke run measures nothing. */
const warmUp_s = smoke ? 1 : 2

const start_ms = performance.now()
const server = await BenchServer.open(options.citus ? CITUS_NODES[0] : undefined)
await untilStopped(async (stop) => {
  const stopped = once(stop, 'abort').then(() => stop.throwIfAborted())
  try {
    await Promise.race([run(), stopped])
  } finally {
    await server.close()
  }
})

async function run(): Promise<void> {
  const { sample, generator } = await createSampler(server.postmaster)
  const about = {
    date: new Date().toISOString(),
    machine: `${cpus().length} × ${cpus()[0]?.model.trim()}, ${Math.round(totalmem() / 2 ** 30)} GB`,
    node: process.versions.node,
    postgres: server.version,
    generator,
    rounds,
    duration_s,
  }
  const instead = { growth, ablation, processes, citus }
  const chosen = (Object.keys(instead) as (keyof typeof instead)[]).find((name) => options[name])
  const measure = chosen ? instead[chosen] : race
  const { stored, parts, charts } = await measure(sample)
  const minutes = ((performance.now() - start_ms) / 60_000).toFixed(1)
  const heading = `Measured on ${about.date.slice(0, 10)} with ${about.machine}, Node ${about.node}, PostgreSQL ${about.postgres}
and ${generator}, in ${rounds} rounds of ${duration_s} s for each figure, in ${minutes} minutes.`
  const [first = ''] = Object.keys(parts)
  parts[first] = `${heading}\n\n${parts[first]}`
  process.stdout.write(
    Object.values(parts)
      .map((part) => `\n${part}\n`)
      .join(''),
  )

  await mkdir(RESULTS, { recursive: true })
  const file = path.join(RESULTS, `${about.date.replaceAll(':', '-')}.json`)
  await writeFile(file, JSON.stringify({ ...about, ...stored }, undefined, 1))
  process.stdout.write(`\nstored in ${path.relative(process.cwd(), file)}\n`)
  if (options.write) {
    // A run without plots leaves those of an earlier one.
    const plots =
      Object.keys(charts).length > 0 ? { [`${options.growth ? 'growth' : 'race'}-plots`]: pictures(charts) } : {}
    await writeParts(DOCUMENT, { ...parts, ...plots })
    await mkdir(PLOTS, { recursive: true })
    for (const [name, chart] of Object.entries(charts))
      await writeFile(path.join(PLOTS, `${name}.svg`), drawChart(chart))
    process.stdout.write(`written to ${path.relative(process.cwd(), DOCUMENT)}\n`)
  }
}

/** The results of a run. */
interface Outcome {
  stored: object
  /** Texts by the name of their place in the document. */
  parts: Record<string, string>
  /** By the name of the file. */
  charts: Record<string, Chart>
}

async function race(sample: Sampler): Promise<Outcome> {
  const { url, drop } = await server.copy(demoSet(entries))
  await using cleanup = new AsyncDisposableStack()
  cleanup.defer(drop)
  const field = await openField({ url, postmaster: server.postmaster }, sample, cleanup)
  const results = new Map<string, Results>()
  for (const one of RACES) {
    const timing = { rounds, duration_s, warmUp_s }
    results.set(one.name, await runRace(field, one, await field.contestants(one), timing))
    process.stderr.write(`raced: ${one.name}\n`)
  }
  const figures = [...figuresOf(results), ...standaloneFigures(results, await measureStandalone(url, field))]
  const charts = quick || smoke ? {} : await curves(field)
  const absences = Object.fromEntries(field.absences)
  for (const [name, reason] of field.absences) process.stderr.write(`${name} did not race: it ${reason}\n`)
  // A smoke run must show that everything starts; otherwise a program that this machine lacks is no error.
  if (Object.keys(absences).some((name) => smoke || name !== 'pgbench')) process.exitCode = 1
  return {
    stored: { figures, races: Object.fromEntries(results), charts, absences },
    parts: { figures: figuresTable(figures, Object.keys(absences)), races: racesTable(results) },
    charts,
  }
}

async function ablation(sample: Sampler): Promise<Outcome> {
  const { url, drop } = await server.copy(demoSet(entries))
  await using cleanup = new AsyncDisposableStack()
  cleanup.defer(drop)
  const only = options.only?.split(',')
  const ablations = await measureAblations({ url, rounds, duration_s, warmUp_s, only }, sample)
  return { stored: { ablations }, parts: { ablation: ablationTable(ablations) }, charts: {} }
}

async function processes(sample: Sampler): Promise<Outcome> {
  // The data set of 10,000 projects takes minutes to make.
  const found = await measureProcesses(server, sample, {
    rounds,
    duration_s,
    projects: smoke ? 64 : 10_000,
  })
  return { stored: { processes: found }, parts: { processes: processesTable(found) }, charts: {} }
}

async function citus(sample: Sampler): Promise<Outcome> {
  const found = await measureCitus(server, sample, { entries, rounds, duration_s, warmUp_s })
  return { stored: { citus: found }, parts: { citus: citusTable(found) }, charts: {} }
}

async function measureStandalone(url: string, field: Field): Promise<Standalone> {
  return {
    batches: await measureBatches(field),
    starts: await measureStarts(url, field.key, rounds),
    imports: await raceImport(server, demoSet(entries), Math.ceil(rounds / 2)),
    feed: await measureFeed(url, rounds),
    visits: await measureVisits(url, rounds),
  }
}

/** How many events are recorded in a second, a thousand in a request and each in its own, and stored by COPY. */
async function measureBatches(field: Field): Promise<Batches> {
  const single = (contestant: Contestant) => async () =>
    (await field.run({ ...RECORD, against: [] }, contestant, duration_s)).perSecond
  const record: Record<string, () => Promise<number>> = {
    batches: () => field.runBatches(Math.max(duration_s, MIN_BATCHES_s)),
    singles: single('flowtrail'),
    copies: () => field.runCopies(duration_s),
    ...(!field.absences.has('pgbench') && { pgbench: single('pgbench') }),
  }
  await record.batches?.()
  const results = await alternate(Object.keys(record), rounds, async (name) => {
    const perSecond = await (record[name] as () => Promise<number>)()
    await field.settle()
    return perSecond
  })
  return results as unknown as Batches
}

async function curves(field: Field): Promise<Record<string, Chart>> {
  const charts: Record<string, Chart> = {}
  for (const one of CURVES) {
    const lines = new Map<string, [number, number][]>()
    const contestants = await field.contestants(one)
    for (const connections of CONNECTIONS) {
      const results = await runRace(field, { ...one, connections }, contestants, {
        rounds: 3,
        duration_s: Math.min(2, duration_s),
        warmUp_s,
      })
      for (const [contestant, samples] of Object.entries(results)) {
        const points = lines.get(contestant) ?? []
        lines.set(contestant, [...points, [connections, median(samples.map(({ perSecond }) => perSecond))]])
      }
    }
    charts[`${one.task}-by-connections`] = {
      title: `${one.name}: throughput by connections`,
      x: 'connections',
      y: 'requests a second',
      lines: [...lines].map(([name, points]) => ({ name, points })),
    }
    process.stderr.write(`curve: ${one.name}\n`)
  }
  return charts
}

async function growth(sample: Sampler): Promise<Outcome> {
  const found = await measureGrowth(server, sample, { rounds, duration_s, largest: Number(options.events) })
  return {
    stored: { growth: found },
    parts: { growth: growthTable(found), bytes: bytesTable(found), fairness: fairnessTable(found) },
    charts: { 'cost-by-events': costChart(found) },
  }
}

/** The cost of each task by the size of the one project that the data set holds. */
function costChart({ cases, samples }: Growth): Chart {
  const alone = cases.filter(({ sizes }) => sizes.length === 1 && sizes[0].projects === 1)
  return {
    title: 'CPU time of a request, service and database, by the events stored',
    x: 'events',
    y: 'milliseconds',
    lines: samples.map(({ task, byCase }) => ({
      name: task,
      points: alone.map(({ name, sizes }) => [sizes[0].events, median((byCase[name] ?? []).map(costOf))]),
    })),
  }
}
