import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { findingsOf, whyUnpassable } from '../proxy/judgement.ts'
import { openWay } from '../proxy/passage.ts'
import type { Exchange } from '../proxy/recorder.ts'

/** As many exchanges of a mutant as are sent through Prism before it is believed to find nothing. */
const ENOUGH = 300

/** Sends what the suite exchanged with each service through Prism, until Prism finds something. */
export async function askPrism(services: string[], exchanges: string): Promise<Map<string, string[]>> {
  const way = await openWay()
  const findings = new Map<string, string[]>()
  try {
    for (const name of services) findings.set(name, await firstFindings(recorded(path.join(exchanges, name))))
  } finally {
    await way.close()
  }
  return findings

  async function firstFindings(of: Exchange[]): Promise<string[]> {
    for (const exchange of of) {
      const found = findingsOf(exchange, await way.pass(exchange))
      if (found.length > 0)
        return found.map((finding) => `${exchange.method} ${exchange.url} → ${exchange.status}: ${finding}`)
    }
    return []
  }
}

function recorded(directory: string): Exchange[] {
  return readdirSync(directory)
    .flatMap((file) => readFileSync(path.join(directory, file), 'utf8').trimEnd().split('\n'))
    .map((line): Exchange => JSON.parse(line))
    .filter((exchange) => whyUnpassable(exchange) === undefined)
    .slice(0, ENOUGH)
}
