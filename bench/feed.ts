import path from 'node:path'
import { finished } from 'node:stream/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { DEMO } from '../src/demo/project.ts'
import { runFlowtrail } from '../tests/support/service.ts'
import { callsFor, chooseVisits } from './calls.ts'
import { rowsOf } from './data.ts'
import { alternate } from './sample.ts'
import { makeKeys } from './seed.ts'
import { type System, startFlowtrail, startPeer } from './systems.ts'
import { currentMemory } from './usage.ts'

/** As many requests of a project may wait for its events, by default. */
const FOLLOWERS = 1_000
/** How many entries' lists are read in a round: all would take minutes. */
const LISTED_ENTRIES = 2_000
/** After it, requests that were sent have arrived, and memory is steady. */
const SETTLE_ms = 3_000
const FEED = `/projects/${DEMO.projectId}/events?limit=1000&direction=`
const HOLD = path.join(import.meta.dirname, 'peers/hold.ts')

/** What following the feed gives and costs, by round. */
export interface Feed {
  /** Events a second: of the feed and of the lists of entries, each over one connection, and of an export. */
  feed: number[]
  lists: number[]
  export: number[]
  /** Memory of a request that waits for an event, and of one that `node:http` holds back, in KB. */
  waiting_KB: number[]
  held_KB: number[]
  /** Until 99 % of those that wait for an event have it after it was posted, in milliseconds. */
  delivery_ms: number[]
}

/** Measures on the demo project. */
export async function measureFeed(url: string, rounds: number): Promise<Feed> {
  const visits = await chooseVisits(url, { projects: [DEMO.projectId], count: LISTED_ENTRIES })
  const keys = await makeKeys(url, [DEMO.projectId])
  // As wrk, and an export: without compression.
  const headers = { 'x-api-key': keys.get(DEMO.projectId) ?? '', 'accept-encoding': 'identity' }
  const [counts] = await rowsOf<{ all: number; listed: number }>(
    url,
    `SELECT count(*)::int AS all, count(*) FILTER (WHERE entry_id = ANY ($2))::int AS listed
     FROM events WHERE project_id = $1`,
    [DEMO.projectId, visits.map(({ entry_id }) => entry_id)],
  )
  const lists = callsFor('listEntryEvents', visits, keys, 1_000).map((call) => call.path)
  const rates = await withSystem(startFlowtrail({ DATABASE_URL: url }), async ({ address }) => {
    const read = {
      feed: () => readFeed(address, headers),
      lists: async () => {
        for (const list of lists) await read200(address + list, { headers })
      },
      export: () => exportAll(url),
    }
    for (const warmUp of Object.values(read)) await warmUp()
    return alternate(['feed', 'lists', 'export'], rounds, async (name) => {
      const start_ms = performance.now()
      await read[name]()
      const events = counts?.[name === 'lists' ? 'listed' : 'all'] ?? Number.NaN
      return (events * 1000) / (performance.now() - start_ms)
    })
  })

  const [recording] = callsFor('recordKnown', visits, keys, 1)
  const body = recording?.body ?? ''
  const delivery_ms: number[] = []
  const memory = await alternate(['waiting', 'held'], rounds, (name) =>
    name === 'held'
      ? withSystem(startPeer(HOLD, url), (system) => holdOpen(system, '/', {}, async () => {}))
      : withSystem(startFlowtrail({ DATABASE_URL: url }), async (system) => {
          const newest = await read200(`${system.address}${FEED}DESC`, { headers })
          const [{ position }] = (await newest.json()) as [{ position: number }]
          return holdOpen(system, `${FEED}ASC&wait=30&after=${position}`, headers, async (responses) => {
            const posted_ms = performance.now()
            const json = { ...headers, 'content-type': 'application/json' }
            const post = read200(system.address + recording?.path, { method: 'POST', headers: json, body })
            const took_ms = responses.map(async (response) => {
              await (await response).arrayBuffer()
              return performance.now() - posted_ms
            })
            const sorted = (await Promise.all(took_ms)).sort((a, b) => a - b)
            delivery_ms.push(sorted[Math.ceil(FOLLOWERS * 0.99) - 1] ?? Number.NaN)
            await post
          })
        }),
  )
  return { ...rates, waiting_KB: memory.waiting, held_KB: memory.held, delivery_ms }
}

async function withSystem<T>(starting: Promise<System>, work: (system: System) => Promise<T>): Promise<T> {
  const system = await starting
  try {
    return await work(system)
  } finally {
    await system.stop()
  }
}

async function read200(url: string, init: RequestInit): Promise<Response> {
  const response = await fetch(url, init)
  if (!response.ok) throw new Error(`${url} responds ${response.status}: ${await response.text()}`)
  return response
}

async function readFeed(address: string, headers: Record<string, string>): Promise<void> {
  let next: string | undefined = `${FEED}ASC`
  while (next !== undefined) {
    const response = await read200(address + next, { headers })
    await response.arrayBuffer()
    next = /^<(.+)>/.exec(response.headers.get('link') ?? '')?.[1]
  }
}

async function exportAll(url: string): Promise<void> {
  const { child, exit, stderr } = runFlowtrail(['export', '--project', DEMO.projectId], { DATABASE_URL: url })
  if (child.stdout) await finished(child.stdout.resume())
  if ((await exit) !== 0) throw new Error(`flowtrail export: ${stderr()}`)
}

/**
 * Opens as many requests that get no response yet, and then runs `work` with their responses.
 * @returns the memory that each costs the system, in KB
 */
async function holdOpen(
  { address, pid }: System,
  requestPath: string,
  headers: Record<string, string>,
  work: (responses: Promise<Response>[]) => Promise<void>,
): Promise<number> {
  await sleep(SETTLE_ms)
  const before_MB = await currentMemory(pid)
  const abort = new AbortController()
  const responses = Array.from({ length: FOLLOWERS }, () =>
    fetch(address + requestPath, { headers, signal: abort.signal }),
  )
  for (const response of responses) response.catch(() => {})
  try {
    await sleep(SETTLE_ms)
    const held_MB = (await currentMemory(pid)) - before_MB
    await work(responses)
    return (held_MB * 1024) / FOLLOWERS
  } finally {
    abort.abort()
  }
}
