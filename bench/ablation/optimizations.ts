import type { Race } from '../race.ts'

/** An exact text of a file that appears in it once, and what replaces it. */
export type Replacement = readonly [from: string, to: string]

/** An optimisation, the load that it is for, and how to switch it off. */
export interface Optimization {
  name: string
  load: Pick<Race, 'task' | 'connections' | 'longEntries'>
  /** Replacements by file, relative to the root of the checkout. */
  patches?: Readonly<Record<string, readonly Replacement[]>>
  /** V8 flags of the process with the optimisation off. */
  v8Flags?: readonly string[]
}

/**
 * The source with all replacements made.
 * @throws Error when a text is not found exactly once: the optimisation has changed, and its entry must follow
 */
export function patched(source: string, replacements: readonly Replacement[]): string {
  return replacements.reduce((text, [from, to]) => {
    const found = text.split(from).length - 1
    if (found !== 1) throw new Error(`found ${found} times instead of once: ${from}`)
    return text.replace(from, () => to)
  }, source)
}

export const OPTIMIZATIONS: readonly Optimization[] = []
