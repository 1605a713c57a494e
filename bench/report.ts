import { readFile, writeFile } from 'node:fs/promises'
import type { Ablation } from './ablation/run.ts'
import { type CitusResult, shareOf } from './citus.ts'
import { type Figure, isReached } from './figures.ts'
import { type Growth, growthOf } from './growth.ts'
import { MAX_P99, multipleOf, type ProcessesResult } from './processes.ts'
import type { Results } from './race.ts'
import { costOf, type Sample } from './sample.ts'
import { figure, median, spreadOf, withSpread } from './statistics.ts'

/** A table in Markdown, the first column to the left and the others to the right, padded so that its source is readable. */
function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((_, i) => Math.max(3, ...[head, ...rows].map((row) => row[i]?.length ?? 0)))
  const line = (row: readonly string[]) =>
    `| ${row.map((cell, i) => (i === 0 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0))).join(' | ')} |`
  const rule = `|${widths.map((width, i) => (i === 0 ? '-'.repeat(width + 2) : `${'-'.repeat(width + 1)}:`)).join('|')}|`
  return [line(head), rule, ...rows.map(line)].join('\n')
}

/** The target figures with the measured ones. @param absent contestants that did not race, whose rows are missing */
export function figuresTable(figures: readonly Figure[], absent: readonly string[] = []): string {
  const rows = figures.map((one) => {
    const { name, against, measured, bound } = one
    const wanted = 'atLeast' in bound ? `≥ ${bound.atLeast}×` : `≤ ${bound.atMost}${bound.unit ?? '×'}`
    const cpu = one.cpu ? figure(one.cpu.median) : ''
    const verdict = Number.isNaN(measured.median) ? 'unknown' : isReached(one) ? 'ok' : 'below'
    return [name, against, withSpread(measured), wanted, verdict, cpu]
  })
  const whole = table(['figure', 'against', 'measured', 'target', '', 'CPU'], rows)
  return absent.length > 0 ? `${whole}\n\nDid not race: ${absent.join(', ')}.` : whole
}

/** The results of each race by contestant. */
export function racesTable(results: ReadonlyMap<string, Results>): string {
  const rows = [...results].flatMap(([race, byContestant]) =>
    Object.entries(byContestant).map(([contestant, samples], i) => {
      const of = (field: keyof Sample) => spreadOf(samples.map((sample) => sample[field]))
      const one = (field: keyof Sample) => figure(of(field).median)
      return [
        i === 0 ? race : '',
        contestant,
        withSpread(of('perSecond')),
        ...(['p50_ms', 'p99_ms', 'service_s', 'database_s', 'peak_MB'] as const).map(one),
      ]
    }),
  )
  return table(['race', 'system', 'requests/s', 'p50 ms', 'p99 ms', 'service s', 'database s', 'peak MB'], rows)
}

/** The cost of each task on each amount of data, and its growth. */
export function growthTable({ cases, samples }: Growth): string {
  const [first, ...others] = cases
  const rows = samples.map(({ task, byCase }) => [
    task,
    figure(median((byCase[first?.name ?? ''] ?? []).map(costOf))),
    ...others.map((one) => {
      const growth = growthOf(byCase, one)
      return `${growth.median.toFixed(2)}×${growth.isFlat ? '' : ' !'}`
    }),
  ])
  return table(['task', `${first?.name}, ms`, ...others.map(({ name, against }) => `${name} / ${against}`)], rows)
}

/** Each optimisation on its own load: with all on against with this one off, medians of the rounds. */
export function ablationTable(ablations: readonly Ablation[]): string {
  const rows = ablations.map(({ optimization, samples: { on, off } }) => {
    const ratio = (of: (sample: Sample) => number) =>
      spreadOf(on.map((sample, round) => of(sample) / of(off[round] as Sample)))
    const both = (of: (sample: Sample) => number) =>
      [on, off].map((samples) => figure(median(samples.map(of)))).join(' / ')
    const { task, connections } = optimization.load
    return [
      optimization.name,
      `${task}, ${connections}`,
      withSpread(ratio(({ perSecond }) => perSecond)),
      both(({ perSecond }) => perSecond),
      both(({ p99_ms }) => p99_ms),
      both(costOf),
    ]
  })
  return table(
    ['optimisation', 'load, connections', 'gain', 'requests/s on / off', 'p99 ms on / off', 'CPU ms on / off'],
    rows,
  )
}

/** What several processes record, and their p99, as multiples of one process's. */
export function processesTable(results: readonly ProcessesResult[]): string {
  const rows = results.flatMap((result) =>
    (['shared', 'routed'] as const)
      .filter((spreading) => result.recorded[spreading])
      .map((spreading) => {
        const perSecond = multipleOf(result, spreading, 'perSecond')
        const p99 = multipleOf(result, spreading, 'p99_ms')
        const isOnTarget = perSecond.median >= result.atLeast && p99.median <= MAX_P99
        return [
          result.projects.toLocaleString('en-US'),
          String(result.connections),
          spreading === 'shared' ? 'all of them' : 'a third',
          figure(median((result.recorded.one ?? []).map((one) => one.perSecond))),
          withSpread(perSecond),
          `≥ ${result.atLeast}×`,
          withSpread(p99),
          `≤ ${MAX_P99}×`,
          isOnTarget ? 'ok' : 'below',
        ]
      }),
  )
  return table(
    [
      'projects',
      'connections',
      'each process records in',
      'events/s of one',
      'of three',
      'target',
      'p99 of three',
      'target',
      '',
    ],
    rows,
  )
}

/** What the service does on a cluster, as a share of what it does on a plain database. */
export function citusTable(results: readonly CitusResult[]): string {
  const rows = results.map((result) => {
    const { name, connections, atLeast, samples } = result
    const share = shareOf(result)
    const both = (of: (sample: Sample) => number) =>
      [samples.plain, samples.cluster].map((side) => figure(median(side.map(of)))).join(' / ')
    return [
      `${name}, ${connections}`,
      withSpread(share),
      ...(atLeast === undefined ? ['', ''] : [`≥ ${atLeast}×`, share.median >= atLeast ? 'ok' : 'below']),
      both(({ perSecond }) => perSecond),
      both(({ p99_ms }) => p99_ms),
    ]
  })
  return table(
    ['load, connections', 'of plain', 'target', '', 'requests/s plain / Citus', 'p99 ms plain / Citus'],
    rows,
  )
}

export function bytesTable({ bytes }: Growth): string {
  const rows = bytes.map((one) => [one.index || `${one.table} (table)`, figure(one.bytes / 1e6), figure(one.perEvent)])
  const sum = (of: (one: Growth['bytes'][number]) => number) => figure(bytes.reduce((all, one) => all + of(one), 0))
  rows.push(['together', sum(({ bytes }) => bytes / 1e6), sum(({ perEvent }) => perEvent)])
  return table(['', 'MB', 'bytes an event'], rows)
}

export function fairnessTable({ fairness }: Growth): string {
  const rows = fairness.map(({ task, meanwhile, samples }) => [
    task,
    meanwhile,
    withSpread(spreadOf(samples.map(({ p50_ms }) => p50_ms))),
    withSpread(spreadOf(samples.map(({ p99_ms }) => p99_ms))),
  ])
  return table(['task in the small project', 'the huge one meanwhile does', 'p50 ms', 'p99 ms'], rows)
}

/** The plots as the document shows them. */
export const pictures = (charts: Readonly<Record<string, { title: string }>>): string =>
  Object.entries(charts)
    .map(([name, { title }]) => `![${title}](performance/${name}.svg)`)
    .join('\n\n')

/** Puts each part between its two markers in the document, `<!-- name -->` and `<!-- /name -->`. */
export async function writeParts(file: string, parts: Readonly<Record<string, string>>): Promise<void> {
  let text = await readFile(file, 'utf8')
  for (const [name, part] of Object.entries(parts)) {
    const [begin, end] = [`<!-- ${name} -->\n`, `<!-- /${name} -->`]
    const [from, to] = [text.indexOf(begin), text.indexOf(end)]
    if (from < 0 || to < 0) throw new Error(`${file} lacks the markers of ${name}`)
    text = `${text.slice(0, from + begin.length)}\n${part}\n\n${text.slice(to)}`
  }
  await writeFile(file, text)
}
