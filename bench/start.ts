import path from 'node:path'
import { DEMO } from '../src/demo/project.ts'
import { runFlowtrail } from '../tests/support/service.ts'
import { CACHE } from './data.ts'
import { startFlowtrail } from './systems.ts'
import { currentMemory } from './usage.ts'

export interface Start {
  /** From the command to the first answer. */
  seconds: number
  /** What the process holds then. */
  memory_MB: number
}

/** What to start the service with, and a key of the demo project. */
export interface Beginning {
  settings: Record<string, string>
  key: string
}

/** Starts the service, asks it once, and stops it again. */
export async function firstAnswer({ settings, key }: Beginning): Promise<Start> {
  const begin_ms = performance.now()
  const { address, pid, stop } = await startFlowtrail(settings)
  try {
    const response = await fetch(`${address}/projects/${DEMO.projectId}/modules`, { headers: { 'x-api-key': key } })
    if (!response.ok) throw new Error(`the first answer is ${response.status}: ${await response.text()}`)
    await response.arrayBuffer()
    return { seconds: (performance.now() - begin_ms) / 1000, memory_MB: await currentMemory(pid) }
  } finally {
    await stop()
  }
}

/** An embedded database that was used before and is down, so that PostgreSQL starts with the service. */
export async function prepareEmbedded(): Promise<Beginning> {
  const settings = { DATA_DIR: path.join(CACHE, 'start') }
  const { exit, stdout, stderr } = runFlowtrail(['demo'], settings)
  if ((await exit) !== 0) throw new Error(`flowtrail demo: ${stderr()}`)
  return { settings, key: stdout().trim() }
}
