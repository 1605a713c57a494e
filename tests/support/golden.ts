import { readFileSync } from 'node:fs'
import type { PagedList } from './lists.ts'

/** What tests/golden/README.md describes, by the kind of vector. */
interface Vectors {
  event_id: { line: Record<string, unknown>; event_id: string }
  request_digest: { body: Record<string, unknown>; digest: string }
  identifier_digest: { key: string; value: string; canonical: string; digest: string }
  cursor: {
    list: string
    scope: [operation: PagedList, project: string, ...rest: (string | null)[]]
    key: [string | number, ...(string | number)[]]
    cursor: string
  }
  api_key: { key: string; key_id: string; secret: string; secret_hash: string }
}

export const goldenFile = (name: string) => new URL(`../golden/${name}`, import.meta.url)

/** The vectors of a kind; throws when there is none. */
export function vectorsOf<Kind extends keyof Vectors>(kind: Kind): Vectors[Kind][] {
  const lines = readFileSync(goldenFile('vectors.ndjson'), 'utf8').trimEnd().split('\n')
  const vectors = lines.map((line) => JSON.parse(line)).filter(({ vector }) => vector === kind)
  if (vectors.length === 0) throw new Error(`no vector ${kind}`)
  return vectors
}
