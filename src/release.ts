import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import packageJson from '../package.json' with { type: 'json' }

const ROOT = new URL('../', import.meta.url)

/** Whether this is no installed package, which is JavaScript, since Node runs no TypeScript below node_modules. */
export const isCheckout = import.meta.filename.endsWith('.ts')

/** What calls the command line, for messages. */
export const FLOWTRAIL = isCheckout ? 'npm run -s flowtrail --' : 'flowtrail'

/** What identifies a release. */
export interface Release {
  /** Of the package. */
  version: string
  /** Of the contract, openapi/openapi.yaml. */
  document: string
  /** In full; followed by `-dirty` if there were changes beside it, or `unknown` without git. */
  commit: string
}

let release: Release | undefined

/** Describes the release that runs: an installed package by what was packed, a checkout by what git says of it. */
export function describeRelease(): Release {
  release ??= readRelease()
  return release
}

function readRelease(): Release {
  const document = JSON.parse(readFileSync(new URL('generated/openapi.json', ROOT), 'utf8')) as {
    info: { version: string }
  }
  return { version: packageJson.version, document: document.info.version, commit: commitOf(ROOT) }
}

function commitOf(root: URL): string {
  const packed = new URL('commit', root)
  if (existsSync(packed)) return readFileSync(packed, 'utf8').trim()
  // A checkout that lies in another one has no commit of its own.
  if (!existsSync(new URL('.git', root))) return 'unknown'
  try {
    const args = ['describe', '--always', '--dirty', '--abbrev=40', '--exclude=*']
    return execFileSync('git', args, { cwd: fileURLToPath(root), encoding: 'utf8', stdio: 'pipe' }).trim()
  } catch {
    return 'unknown'
  }
}
