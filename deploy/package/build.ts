/**
 * Makes `dist` for `npm pack`: the product as JavaScript, since Node runs no TypeScript below node_modules, and the files
 * that it reads, each at its place in the checkout, so that they are found in the same way.
 */
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describeRelease } from '../../src/release.ts'

const ROOT = path.join(import.meta.dirname, '../..')
const DIST = path.join(ROOT, 'dist')
const READ_AT_RUNTIME = [
  'openapi/openapi.yaml',
  'generated/openapi.json',
  'generated/openapi.strict.json',
  'src/http/docs',
]

rmSync(DIST, { recursive: true, force: true })
execFileSync('tsc', ['-p', path.join(import.meta.dirname, 'tsconfig.json')], { stdio: 'inherit' })
for (const file of READ_AT_RUNTIME) {
  mkdirSync(path.dirname(path.join(DIST, file)), { recursive: true })
  cpSync(path.join(ROOT, file), path.join(DIST, file), { recursive: true })
}
writeFileSync(path.join(DIST, 'commit'), `${describeRelease().commit}\n`)
