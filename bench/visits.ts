import { randomUUID } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { DEMO } from '../src/demo/project.ts'
import { runFlowtrail } from '../tests/support/service.ts'
import { callsFor, chooseVisits } from './calls.ts'
import { alternate } from './sample.ts'
import { makeKeys } from './seed.ts'
import { median } from './statistics.ts'
import { startFlowtrail } from './systems.ts'

const LINES = 100
const CONNECTIONS = 4
const SINGLES = 100
const IMPORTS = 25
/** So many that what the command takes to start matters little. */
const LINES_OF_FILE = 50_000

/** How quick small imports are, by round. */
export interface Visits {
  /** One import of 100 lines and one custom event, nothing else under way, in milliseconds. */
  import_ms: number[]
  single_ms: number[]
  /** Lines a second: of imports of 100 lines over four connections, and of the command with a large file. */
  imports: number[]
  command: number[]
}

/** Measures on the demo project. */
export async function measureVisits(url: string, rounds: number): Promise<Visits> {
  const keys = await makeKeys(url, [DEMO.projectId])
  const chosen = await chooseVisits(url, { projects: [DEMO.projectId], count: SINGLES })
  const singles = callsFor('recordKnown', chosen, keys, 1)
  const { address, stop } = await startFlowtrail({ DATABASE_URL: url })
  const key = keys.get(DEMO.projectId) as string
  const post = async (call: { path: string; body?: string | undefined }, type: string) => {
    const headers = { 'x-api-key': key, 'content-type': type }
    const response = await fetch(address + call.path, {
      method: 'POST',
      headers,
      ...(call.body && { body: call.body }),
    })
    const text = await response.text()
    if (!response.ok) throw new Error(`${call.path} responds ${response.status}: ${text}`)
  }
  const importVisit = () =>
    post({ path: `/projects/${DEMO.projectId}/records`, body: linesOfVisit() }, 'application/x-ndjson')
  const measure = {
    import_ms: () => medianOf(IMPORTS, importVisit),
    single_ms: () => medianOf(SINGLES, (i) => post(singles[i] as (typeof singles)[number], 'application/json')),
    imports: async () => {
      const all = async () => {
        for (let i = 0; i < IMPORTS; i += 1) await importVisit()
      }
      const took_ms = await timed(() => Promise.all(Array.from({ length: CONNECTIONS }, all)))
      return (CONNECTIONS * IMPORTS * LINES * 1_000) / took_ms
    },
    command: () => commandLines(url),
  }
  try {
    await measure.import_ms()
    return await alternate(['import_ms', 'single_ms', 'imports', 'command'], rounds, (name) => measure[name]())
  } finally {
    await stop()
  }
}

async function commandLines(url: string): Promise<number> {
  const directory = await mkdtemp(path.join(tmpdir(), 'flowtrail-visits-'))
  try {
    const file = path.join(directory, 'visits.ndjson')
    await writeFile(file, Array.from({ length: LINES_OF_FILE / LINES }, linesOfVisit).join('\n'))
    const took_ms = await timed(async () => {
      const { exit, stderr } = runFlowtrail(['import', file], { DATABASE_URL: url })
      if ((await exit) !== 0) throw new Error(`flowtrail import: ${stderr()}`)
    })
    return (LINES_OF_FILE * 1_000) / took_ms
  } finally {
    await rm(directory, { recursive: true })
  }
}

/** A new contact, their entry, and its page views. */
function linesOfVisit(): string {
  const [entry_id, contact_id, project_id] = [randomUUID(), randomUUID(), DEMO.projectId]
  const [at, view_type, event_type] = ['2026-03-01T12:00:00.000Z', 'flowpage', 'flowpage.viewed']
  const entry = { entry_id, module_id: DEMO.moduleId, contact_id, created_at: at, updated_at: at }
  const views = Array.from({ length: LINES - 2 }, (_, page_index) => ({
    ...{ type: 'event', project_id, entry_id, event_id: `${entry_id}-${page_index}`, timestamp: at, event_type },
    ...{ view_type, page_id: `p${page_index}`, page_key: 'page', page_index, total_pages: LINES },
  }))
  const identifiers = [{ key: 'visitor', value: JSON.stringify(contact_id) }]
  const records = [
    { type: 'contact', project_id, contact_id, identifiers },
    { type: 'entry', project_id, ...entry },
    ...views,
  ]
  return records.map((record) => JSON.stringify(record)).join('\n')
}

async function medianOf(count: number, work: (i: number) => Promise<unknown>): Promise<number> {
  const times: number[] = []
  for (let i = 0; i < count; i += 1) times.push(await timed(() => work(i)))
  return median(times)
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const start_ms = performance.now()
  await work()
  return performance.now() - start_ms
}
