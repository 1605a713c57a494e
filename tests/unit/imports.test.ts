import { appendFile, cp, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import type { ICruiseResult, IViolation } from 'dependency-cruiser'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ANYTHING, IMPORT_RULES } from '../../.dependency-cruiser.ts'
import { ROOT, shell } from '../cli/run.ts'

// Adds imports to a copy of the code and runs `npm run check:imports` on it.

type Plant = [place: string, target: string]

/** One for each rule: a file that its folder may not import. */
const FORBIDDEN_FILES: Plant[] = [
  ['src/cli', 'src/http/auth.ts'],
  ['src/server', 'src/queries/projects.ts'],
  ['src/app.ts', 'src/demo/project.ts'],
  ['src/handlers/index.ts', 'src/recording/custom-event.ts'],
  ['src/handlers', 'src/handlers/events.ts'],
  ['src/feed', 'src/recording/custom-event.ts'],
  ['src/http', 'src/handlers/context.ts'],
  ['src/tracing', 'src/queries/projects.ts'],
  ['src/recording', 'src/http/operations.ts'],
  ['src/doctor', 'src/queries/projects.ts'],
  ['src/demo', 'src/queries/projects.ts'],
  ['src/transfer', 'src/demo/project.ts'],
  ['src/backup', 'src/queries/projects.ts'],
  ['src/queries', 'src/recording/custom-event.ts'],
  ['src/database', 'src/queries/projects.ts'],
  ['src/config.ts', 'src/domain/text.ts'],
  ['src/logger.ts', 'src/domain/text.ts'],
  ['src/release.ts', 'src/domain/text.ts'],
  ['src/stop-signals.ts', 'src/domain/text.ts'],
  ['src/domain', 'src/config.ts'],
  ['generated', 'src/domain/text.ts'],
  ['db', 'src/config.ts'],
  ['db/migrations', 'db/migrate.ts'],
  ['db/embedded', 'db/migrate.ts'],
  ['deploy', 'src/config.ts'],
  ['openapi', 'src/http/operations.ts'],
  ['docs', 'src/domain/text.ts'],
]

const FORBIDDEN_EVERYWHERE: Plant[] = ['tests/planted.ts', 'bench/planted.ts', 'src/new/planted.ts'].map((target) => [
  'src/cli',
  target,
])

const FORBIDDEN_PACKAGES: Plant[] = [
  ['src/handlers', 'fastify'],
  ['src/http', 'pg'],
  ['src/recording', 'kysely'],
  ['src/demo', 'commander'],
  ['src/domain', 'uuid'],
]

const ONLY_TYPES: Plant[] = [
  ['src/handlers', 'src/http/operations.ts'],
  ['src/queries', 'generated/database.ts'],
  ['src/recording', 'pg'],
]

const ALLOWED: Plant[] = [
  ['src/cli', 'src/server/serve.ts'],
  ['src/handlers', 'src/handlers/context.ts'],
  ['src/queries', 'kysely'],
  ['src/domain', 'node:crypto'],
]

let copy: string
let violations: IViolation[]

/** The file that has the import: the place itself, or a file in it that has no other. */
const fileOf = ([place, target]: Plant, keyword: string) =>
  place.endsWith('.ts') ? place : `${place}/planted-${`${keyword}-${target}`.replace(/\W+/g, '-')}.ts`

async function plant([place, target]: Plant, keyword: string): Promise<void> {
  const file = fileOf([place, target], keyword)
  const specifier = target.endsWith('.ts') ? `./${path.relative(path.dirname(file), target)}` : target
  await appendFile(path.join(copy, file), `${keyword} * as planted_${keyword.length} from '${specifier}'\n`)
}

/** The rules that the import violates. */
const refusals = ([place, target]: Plant, keyword: string) =>
  violations
    .filter(
      ({ from, to, unresolvedTo }) => from === fileOf([place, target], keyword) && [to, unresolvedTo].includes(target),
    )
    .map(({ rule }) => rule.name)

beforeAll(async () => {
  copy = await mkdtemp(path.join(tmpdir(), 'flowtrail-imports-'))
  for (const name of [
    'src',
    'db',
    'deploy',
    'generated',
    'openapi',
    'docs',
    'package.json',
    '.dependency-cruiser.ts',
  ]) {
    await cp(path.join(ROOT, name), path.join(copy, name), { recursive: true })
  }
  await symlink(path.join(ROOT, 'node_modules'), path.join(copy, 'node_modules'))
  for (const name of ['tests', 'bench', 'src/new']) {
    await mkdir(path.join(copy, name))
    await writeFile(path.join(copy, name, 'planted.ts'), '')
  }
  for (const keyword of ['import', 'import type']) {
    const plants = [...FORBIDDEN_FILES, ...FORBIDDEN_EVERYWHERE, ...FORBIDDEN_PACKAGES, ...ONLY_TYPES, ...ALLOWED]
    for (const each of plants) await plant(each, keyword)
  }
  await writeFile(
    path.join(copy, 'src/queries/one.ts'),
    "import type { Two } from './two.ts'\nexport type One = Two[]\n",
  )
  await writeFile(
    path.join(copy, 'src/queries/two.ts'),
    "import type { One } from './one.ts'\nexport type Two = One[]\n",
  )
  const { stdout } = await shell(`cd '${copy}' && npm run --silent check:imports -- --output-type json`)
  const { summary }: ICruiseResult = JSON.parse(stdout)
  violations = summary.violations
})
afterAll(() => rm(copy, { recursive: true }))

test('each rule that forbids any import has a test case', () => {
  const rules = Object.entries(IMPORT_RULES).filter(([, { imports }]) => !imports.includes(ANYTHING))
  expect(FORBIDDEN_FILES.map(([place]) => place)).toEqual(rules.map(([place]) => place))
})

describe.each(['import', 'import type'])('%s', (keyword) => {
  test.each([...FORBIDDEN_FILES, ...FORBIDDEN_EVERYWHERE])('is refused in %s of %s', (...planted) => {
    expect(refusals(planted, keyword)).toContain(`${planted[0]}: may not import this`)
  })

  test.each(FORBIDDEN_PACKAGES)('is refused in %s of the package %s', (...planted) => {
    expect(refusals(planted, keyword)).toContain(`${planted[0]}: may not import this package`)
  })

  test.each(ALLOWED)('is allowed in %s of %s', (...planted) => {
    expect(refusals(planted, keyword)).toEqual([])
  })
})

test.each(ONLY_TYPES)('%s may import types of %s, but no values', (...planted) => {
  expect(refusals(planted, 'import type')).toEqual([])
  expect(refusals(planted, 'import')).toEqual([`${planted[0]}: may import only types of this`])
})

test('a cycle of types is refused', () => {
  const cycle = violations.find(({ from }) => from === 'src/queries/one.ts')
  expect(cycle?.rule.name).toBe('no cycles')
})

test('a file in a new folder is refused, even if it imports nothing', () => {
  const found = violations.find(({ from }) => from === 'src/new/planted.ts')
  expect(found?.rule.name).toBe('has no rule in .dependency-cruiser.ts')
})
