import { execFile } from 'node:child_process'
import path from 'node:path'
import { isDeepStrictEqual, promisify } from 'node:util'
import type { ApiDocument } from './document.ts'
import { type Change, judge, type RedoclyChange } from './judge.ts'
import { unseenChanges } from './unseen.ts'

const ROOT = path.join(import.meta.dirname, '../..')

/** Runs redocly's command line in the checkout. Resolves to its output; rejects if it fails. */
export type Redocly = (args: readonly string[]) => Promise<string>

const runRedocly: Redocly = async (args) => {
  const { stdout } = await promisify(execFile)(path.join(ROOT, 'node_modules/.bin/redocly'), args, {
    cwd: ROOT,
    env: { ...process.env, REDOCLY_TELEMETRY: 'off' },
    maxBuffer: 2 ** 26,
  })
  return stdout
}

/** The differences that `redocly diff` reports between two files. @param base path of the older one */
export async function reportedChanges(base: string, revision: string, redocly = runRedocly): Promise<RedoclyChange[]> {
  const options = ['--config', 'openapi/redocly.yaml', '--format', 'json', '--fail-on', 'none']
  return (JSON.parse(await redocly(['diff', base, revision, ...options])) as { changes: RedoclyChange[] }).changes
}

const withoutVersion = ({ info, ...rest }: ApiDocument) => ({ ...rest, info: { ...info, version: '' } })

/**
 * All differences between two documents, rated. The version itself does not count. A difference that no check sees is rated as
 * breaking, but is found only if there is no other.
 * @param reported the differences that redocly reports between them
 */
export function compare(older: ApiDocument, newer: ApiDocument, reported: readonly RedoclyChange[]): Change[] {
  const changes = [
    ...reported
      .filter(({ typeName, property }) => !(typeName === 'Info' && property === 'version'))
      .map((change) => judge(change, older, newer)),
    ...unseenChanges(older, newer),
  ]
  if (changes.length > 0 || isDeepStrictEqual(withoutVersion(older), withoutVersion(newer))) return changes
  const what = 'the documents differ where no check compares them: add one to openapi/diff/unseen.ts'
  return [{ rating: 'breaking', pointer: '#', place: 'document', what }]
}
