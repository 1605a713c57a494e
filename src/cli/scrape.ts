/** Values of a server's metrics at one time. */
export interface Scrape {
  time_ms: number
  series: readonly Series[]
}

interface Series {
  name: string
  labels: Readonly<Record<string, string>>
  value: number
}

const LINE = /^([a-z_:]+)(?:\{(.*)\})? (\S+)$/
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g

/** Reads the text format of Prometheus (version 0.0.4), as our /metrics is. */
export function parseMetrics(text: string, time_ms: number): Scrape {
  const series = text.split('\n').flatMap((line): Series[] => {
    const [, name, labels = '', value] = LINE.exec(line) ?? []
    if (name === undefined) return []
    const pairs = [...labels.matchAll(LABEL)].map(([, label = '', quoted = '']) => [label, unescaped(quoted)])
    return [{ name, labels: Object.fromEntries(pairs), value: Number(value) }]
  })
  return { time_ms, series }
}

const unescaped = (quoted: string) => quoted.replaceAll(/\\(.)/g, (_, char) => (char === 'n' ? '\n' : char))

/** The sum of a metric, or of those of its series that have these labels. */
export function sum({ series }: Scrape, name: string, labels: Readonly<Record<string, string>> = {}): number {
  const wanted = Object.entries(labels)
  return series
    .filter((one) => one.name === name && wanted.every(([label, value]) => one.labels[label] === value))
    .reduce((total, { value }) => total + value, 0)
}

/** What a server had counted at the first of two scrapes, which is nothing if it has been restarted between them. */
export function sinceStart(before: Scrape, after: Scrape): Scrape {
  const [start, restart] = [before, after].map((scrape) => sum(scrape, 'process_start_time_seconds'))
  return start === restart ? before : { ...before, series: [] }
}

/** How much a counter grew in a second between two scrapes. */
export const perSecond = (before: Scrape, after: Scrape, name: string, labels: Record<string, string> = {}): number =>
  (sum(after, name, labels) - sum(before, name, labels)) / ((after.time_ms - before.time_ms) / 1_000)

/**
 * Estimates a quantile of what a histogram counted between two scrapes, as PromQL's histogram_quantile.
 *
 * @param q from 0 to 1
 * @returns undefined if nothing was counted
 */
export function quantile(before: Scrape, after: Scrape, name: string, q: number): number | undefined {
  const bounds = new Set(after.series.flatMap((one) => (one.name === `${name}_bucket` ? [one.labels.le ?? ''] : [])))
  const buckets = [...bounds]
    .map((le) => ({ le, bound: le === '+Inf' ? Number.POSITIVE_INFINITY : Number(le) }))
    .sort((a, b) => a.bound - b.bound)
    .map(({ le, bound }) => ({
      bound,
      count: sum(after, `${name}_bucket`, { le }) - sum(before, `${name}_bucket`, { le }),
    }))
  const rank = q * (buckets.at(-1)?.count ?? 0)
  if (rank <= 0) return undefined
  const index = buckets.findIndex(({ count }) => count >= rank)
  const [lower, bucket] = [buckets[index - 1] ?? { bound: 0, count: 0 }, buckets[index] ?? { bound: 0, count: 0 }]
  if (bucket.bound === Number.POSITIVE_INFINITY) return lower.bound
  return lower.bound + ((bucket.bound - lower.bound) * (rank - lower.count)) / (bucket.count - lower.count)
}
