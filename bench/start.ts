import path from 'node:path'
import { DEMO } from '../src/demo/project.ts'
import { alternate } from './sample.ts'
import { type System, startFlowtrail, startPeer } from './systems.ts'
import { currentMemory } from './usage.ts'

export interface Start {
  /** From the command to the first response. */
  seconds: number
  /** Resident memory of the process then. */
  memory_MB: number
}

/** The starts of each, by round. */
export type Starts = Record<'flowtrail' | 'fastify-pg', Start[]>

const BASELINE = path.join(import.meta.dirname, 'peers/fastify-pg.ts')

/** Starts Flowtrail and the baseline in alternation, each on a database that is running and migrated. */
export const measureStarts = (databaseUrl: string, key: string, rounds: number): Promise<Starts> =>
  alternate(['flowtrail', 'fastify-pg'], rounds, (name) =>
    name === 'flowtrail'
      ? firstResponse(() => startFlowtrail({ DATABASE_URL: databaseUrl }), `/projects/${DEMO.projectId}/modules`, key)
      : firstResponse(() => startPeer(BASELINE, databaseUrl), '/', key),
  )

/** Starts a system, sends it one request, and stops it again. */
async function firstResponse(start: () => Promise<System>, requestPath: string, key: string): Promise<Start> {
  const start_ms = performance.now()
  const { address, pid, stop } = await start()
  try {
    const response = await fetch(address + requestPath, { headers: { 'x-api-key': key } })
    if (!response.ok) throw new Error(`the first response is ${response.status}: ${await response.text()}`)
    await response.arrayBuffer()
    return { seconds: (performance.now() - start_ms) / 1000, memory_MB: await currentMemory(pid) }
  } finally {
    await stop()
  }
}
