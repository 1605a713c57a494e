import { type Call, findGenerator, load } from './load.ts'
import type { System } from './systems.ts'
import { cpuSeconds, peakMemory, resetPeakMemory } from './usage.ts'

/** One measurement of one system. */
export interface Sample {
  perSecond: number
  p50_ms: number
  p99_ms: number
  /** CPU seconds of a thousand requests; none of the database where it runs on another machine. */
  service_s: number
  database_s: number
  /** The most memory that the service has held meanwhile. */
  peak_MB: number
}

/** CPU time of one request, service and database together, in milliseconds. */
export const costOf = ({ service_s, database_s }: Sample): number => service_s + database_s

export interface LoadOptions {
  connections: number
  duration_s: number
}

export type Sampler = (system: System, calls: readonly Call[], options: LoadOptions) => Promise<Sample>

/** @param postmaster of the database, where it runs on this machine */
export async function createSampler(postmaster: number | undefined): Promise<{ sample: Sampler; generator: string }> {
  const generator = await findGenerator()
  const sample: Sampler = async ({ pid, address }, calls, { connections, duration_s }) => {
    await resetPeakMemory(pid)
    const [result, service_s, database_s] = await withCpuSeconds([pid, postmaster], () =>
      load(generator, address, calls, connections, duration_s),
    )
    const { requests, perSecond, p50_ms, p99_ms } = result
    const each = (seconds: number) => (seconds * 1000) / requests
    return {
      perSecond,
      p50_ms,
      p99_ms,
      service_s: each(service_s),
      database_s: each(database_s),
      peak_MB: await peakMemory(pid),
    }
  }
  return { sample, generator: generator.name }
}

/** The result of work with the CPU seconds that each of the processes has used meanwhile; none of a remote one. */
export async function withCpuSeconds<T>(
  [first, second]: readonly [number | undefined, number | undefined],
  work: () => Promise<T>,
): Promise<[result: T, first_s: number, second_s: number]> {
  const used = async () => [await cpuSeconds(first), await cpuSeconds(second)] as const
  const before = await used()
  const result = await work()
  const after = await used()
  const between = (i: 0 | 1) => (after[i] ?? Number.NaN) - (before[i] ?? Number.NaN)
  return [result, between(0), between(1)]
}

/**
 * Runs the contestants in alternation, each round starting with another one, so that noise of the machine affects all alike.
 *
 * @returns the results of each, by round
 */
export async function alternate<Name extends string, T>(
  names: readonly Name[],
  rounds: number,
  run: (name: Name) => Promise<T>,
): Promise<Record<Name, T[]>> {
  const results = Object.fromEntries(names.map((name) => [name, [] as T[]])) as Record<Name, T[]>
  for (let round = 0; round < rounds; round += 1) {
    for (let i = 0; i < names.length; i += 1) {
      const name = names[(round + i) % names.length] as Name
      results[name].push(await run(name))
    }
  }
  return results
}
