import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'

// Which packages may be installed, judged by the lock files alone.

interface LockedPackage {
  version: string
  /** Where it comes from, if not from whatever registry npm is set to. */
  resolved?: string
  integrity?: string
  license?: string
  dev?: boolean
  hasInstallScript?: boolean
}

const REGISTRY = 'https://registry.npmjs.org/'
const ROOT = path.join(import.meta.dirname, '../..')
const read = (file: string) => readFileSync(path.join(ROOT, file), 'utf8')
const tracked = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], { cwd: ROOT })
  .toString()
  .split('\n')
const lockFiles = tracked.filter((file) => path.basename(file) === 'package-lock.json')

/** The packages of a lock file, without its own. */
const packagesOf = (lockFile: string): [string, LockedPackage][] =>
  Object.entries<LockedPackage>(JSON.parse(read(lockFile)).packages)
    .filter(([place]) => place !== '')
    .map(([place, locked]) => [place.replace(/^.*node_modules\//, ''), locked])

const manifest = JSON.parse(read('package.json'))
const inProduction = packagesOf('package-lock.json').filter(([, { dev }]) => !dev)

test.each(lockFiles)('every package of %s comes from the npm registry, and is checked by its hash', (lockFile) => {
  const packages = packagesOf(lockFile)
  expect(packages).not.toEqual([])
  expect(
    packages.filter(
      ([, { resolved = REGISTRY, integrity }]) => !resolved.startsWith(REGISTRY) || !integrity?.startsWith('sha512-'),
    ),
  ).toEqual([])
})

test('only the packages that allowScripts in package.json names have install scripts', () => {
  const withScript = packagesOf('package-lock.json').filter(([, { hasInstallScript }]) => hasInstallScript)
  expect(withScript.map(([name]) => [name, true])).toEqual(Object.entries(manifest.allowScripts))
})

test('install scripts run for the root alone', () => {
  const installs = tracked
    .filter((file) => /(^|\/)(Makefile|run-\w+|run\.ts)$/.test(file))
    .flatMap((file) => read(file).match(/^.*\bnpm(', \[')? ?ci['\s].*$/gm) ?? [])
    .filter((line) => !line.startsWith('#') && !line.includes('echo'))
  const unchecked = installs.filter((line) => {
    const [, folder] = /--prefix (\S+)/.exec(line) ?? []
    const settings = folder && existsSync(path.join(ROOT, folder, '.npmrc')) ? read(`${folder}/.npmrc`) : ''
    return !line.includes('--ignore-scripts') && !settings.includes('ignore-scripts=true')
  })
  expect(installs).toHaveLength(5)
  expect(unchecked).toEqual(['\tnpm ci --no-audit --no-fund --no-update-notifier --loglevel=error'])
})

test('every package in production has a permissive licence', () => {
  const PERMISSIVE = ['MIT', 'ISC', '0BSD', 'BSD-2-Clause', 'BSD-3-Clause', 'Apache-2.0', 'BlueOak-1.0.0']
  expect(inProduction.filter(([, { license = '' }]) => !PERMISSIVE.includes(license))).toEqual([])
})

test('make sbom lists every package, and marks those of development', () => {
  const sbom = JSON.parse(execFileSync('make', ['--silent', 'sbom'], { cwd: ROOT, stdio: 'pipe' }).toString())
  const listed: { name: string; version: string; properties: { name: string }[] }[] = sbom.components
  const production = listed.filter(({ properties }) => !properties.some(({ name }) => name.endsWith(':development')))
  const names = (packages: string[]) => [...new Set(packages)].sort()
  expect(sbom.bomFormat).toBe('CycloneDX')
  expect(listed.length).toBeGreaterThan(production.length)
  expect(names(production.map(({ name, version }) => `${name}@${version}`))).toEqual(
    names(inProduction.map(([name, { version }]) => `${name}@${version}`)),
  )
})
