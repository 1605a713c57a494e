import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { isDeepStrictEqual, promisify } from 'node:util'
import { parse } from 'yaml'
import type { ApiDocument } from './document.ts'
import { type Change, judge, type RedoclyChange } from './judge.ts'
import { unseenChanges } from './unseen.ts'

const ROOT = path.join(import.meta.dirname, '../..')
const run = promisify(execFile)

async function reportedChanges(base: string, revision: string): Promise<RedoclyChange[]> {
  const { stdout } = await run(
    path.join(ROOT, 'node_modules/.bin/redocly'),
    ['diff', base, revision, '--config', 'openapi/redocly.yaml', '--format', 'json', '--fail-on', 'none'],
    { cwd: ROOT, env: { ...process.env, REDOCLY_TELEMETRY: 'off' }, maxBuffer: 2 ** 26 },
  )
  return (JSON.parse(stdout) as { changes: RedoclyChange[] }).changes
}

const withoutVersion = ({ info, ...rest }: ApiDocument) => ({ ...rest, info: { ...info, version: '' } })

/**
 * All differences between two OpenAPI files, rated. The version itself does not count.
 * @param base path of the older one
 */
export async function compareFiles(base: string, revision: string): Promise<Change[]> {
  const read = async (file: string) => parse(await readFile(file, 'utf8')) as ApiDocument
  const [older, newer, reported] = await Promise.all([read(base), read(revision), reportedChanges(base, revision)])
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
