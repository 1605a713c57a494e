import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import type { Exchange } from '../proxy/recorder.ts'
import { startReplay } from '../proxy/replay.ts'
import { findingsOf, reasonNotReplayable } from '../proxy/verdict.ts'

/** How many exchanges of a mutant are replayed at most. */
const LIMIT = 300

/** Replays the recorded exchanges of each service through Prism until Prism reports something. */
export async function checkWithPrism(services: string[], exchanges: string): Promise<Map<string, string[]>> {
  const replayer = await startReplay()
  const findings = new Map<string, string[]>()
  try {
    for (const name of services) findings.set(name, await firstFindings(readExchanges(path.join(exchanges, name))))
  } finally {
    await replayer.close()
  }
  return findings

  async function firstFindings(of: Exchange[]): Promise<string[]> {
    for (const exchange of of) {
      const found = findingsOf(exchange, await replayer.replay(exchange))
      if (found.length > 0)
        return found.map((finding) => `${exchange.method} ${exchange.url} → ${exchange.status}: ${finding}`)
    }
    return []
  }
}

function readExchanges(directory: string): Exchange[] {
  return readdirSync(directory)
    .flatMap((file) => readFileSync(path.join(directory, file), 'utf8').trimEnd().split('\n'))
    .map((line): Exchange => JSON.parse(line))
    .filter((exchange) => reasonNotReplayable(exchange) === undefined)
    .slice(0, LIMIT)
}
