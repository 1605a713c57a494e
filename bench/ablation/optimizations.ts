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

const GET_MODULE = { task: 'getModule', connections: 32 } as const
const GET_ENTRY = { task: 'getEntry', connections: 32 } as const
const RECORD_KNOWN = { task: 'recordKnown', connections: 64 } as const

export const OPTIMIZATIONS: readonly Optimization[] = [
  {
    name: 'batched look-ups',
    load: GET_ENTRY,
    patches: {
      'src/database/batch-loader.ts': [
        ['await setImmediate()', 'await undefined'],
        ['    open.set(project, batch)\n', ''],
      ],
    },
  },
  {
    name: 'shared look-ups of equal keys',
    load: GET_MODULE,
    patches: { 'src/database/batch-loader.ts': [['JSON.stringify(key)', 'String(ordinals.size)']] },
  },
  {
    name: 'shared bodies and ETags',
    load: GET_MODULE,
    patches: {
      'src/http/conditional.ts': [
        ['bodies.get(result) ?? ', ''],
        ['bodies.set(result, body)', ''],
        ['etags.get(body) ?? ', ''],
        ['etags.set(body, etag)', ''],
      ],
    },
  },
  {
    name: 'page views stored as JSON',
    load: { task: 'listEntryPageViews', connections: 32 },
    patches: {
      'src/queries/entries.ts': [
        [
          "value('v.page_views').as('page_views'),",
          `sql<string>\`(SELECT json_agg(json_build_object(
               'timestamp', to_char(t.timestamp, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
               'page_id', t.page_id, 'page_key', t.page_key, 'page_index', t.page_index
             ) ORDER BY t.timestamp, t.event_id)::text
             FROM events t WHERE t.project_id = entries.project_id AND t.entry_id = entries.entry_id
               AND t.event_type = 'flowpage.viewed')\`.as('page_views'),`,
        ],
      ],
    },
  },
  {
    name: 'prepared statements',
    load: GET_ENTRY,
    patches: { 'src/database/pipelined-dialect.ts': [['name: name &&', 'name: undefined &&']] },
  },
  {
    name: 'plans for all values',
    load: GET_ENTRY,
    patches: { 'src/database/generic-plans.ts': [["'force_generic_plan'", "'auto'"]] },
  },
  {
    name: 'pipelining',
    // For statements that no batch loader combines.
    load: { task: 'listModuleVersions', connections: 32 },
    patches: {
      'src/database/open.ts': [
        ['const pool = createPool(url, { ...options, pipeline: true })', 'const pool = createPool(url, options)'],
      ],
    },
  },
  {
    name: 'API key cache',
    load: GET_ENTRY,
    patches: {
      'src/http/api-key-cache.ts': [['    const entry = this.#entries.get(name)\n', '    return load()\n']],
    },
  },
  {
    name: 'batched recording',
    load: RECORD_KNOWN,
    patches: {
      'src/recording/recorder.ts': [['const { maxBatchSize } = this.#options', 'const maxBatchSize = 1']],
    },
  },
  {
    name: "V8's own memory settings",
    load: GET_MODULE,
    v8Flags: ['--max-semi-space-size=8', '--initial-old-space-size=40', '--heap-growing-percent=30'],
  },
]
