import type { IConfiguration, IRegularForbiddenRuleType } from 'dependency-cruiser'

/** What the files of a folder may import, besides each other and Node's own modules. */
export interface ImportRule {
  /** Folders and files of the repository; `type …` for types alone. A folder with a rule of its own is not part of another. */
  imports: readonly string[]
  /** npm packages; `type …` for types alone. */
  packages: readonly string[]
  /** The only files of the folder that its other files may import; all of them when left out. */
  shared?: readonly string[]
}

/** In a list: everything. */
export const ANYTHING = '*'

/**
 * The import rules, by folder or file. `make check` refuses every import that no rule allows, type-only ones too, every
 * cycle, and every file of `src` or `db` that has no rule. `make generate` writes them into ARCHITECTURE.md and its picture.
 */
export const IMPORT_RULES: Readonly<Record<string, ImportRule>> = {
  'src/cli': {
    imports: [
      'src/server',
      'src/doctor',
      'src/backup',
      'src/demo',
      'src/transfer',
      'src/feed',
      'src/queries',
      'src/database',
      'db',
      'type generated',
      'src/config.ts',
      'src/domain',
      'src/release.ts',
      'src/stop-signals.ts',
    ],
    packages: ['commander', 'cli-progress'],
  },
  'src/server': {
    imports: [
      'src/app.ts',
      'src/http',
      'src/tracing',
      'src/database',
      'src/config.ts',
      'src/logger.ts',
      'src/release.ts',
      'src/stop-signals.ts',
    ],
    packages: ['type fastify'],
  },
  'src/app.ts': {
    imports: [
      'src/handlers/index.ts',
      'src/feed',
      'src/http',
      'src/recording',
      'src/transfer',
      'type src/tracing',
      'src/queries',
      'src/database',
      'src/config.ts',
      'src/domain',
      'src/release.ts',
    ],
    packages: ['fastify', 'type pg'],
  },
  'src/handlers/index.ts': {
    imports: ['src/handlers', 'type src/http/operations.ts'],
    packages: [],
  },
  'src/handlers': {
    imports: [
      'type src/http/operations.ts',
      'src/feed',
      'src/recording',
      'src/transfer',
      'src/queries',
      'src/database',
      'type generated',
      'src/domain',
    ],
    packages: [],
    shared: ['src/handlers/context.ts'],
  },
  'src/feed': {
    imports: ['src/queries', 'src/database', 'type generated', 'src/domain'],
    packages: [],
  },
  'src/http': {
    imports: [
      'src/queries',
      'src/database',
      'type src/recording',
      'type generated',
      'src/domain',
      'type src/release.ts',
    ],
    packages: [
      'fastify',
      '@fastify/compress',
      '@fastify/cors',
      '@fastify/swagger',
      '@fastify/swagger-ui',
      'fastify-openapi-glue',
      'ajv',
      'prom-client',
      'rate-limiter-flexible',
    ],
  },
  'src/tracing': {
    imports: ['src/http', 'src/database', 'type src/recording', 'type src/config.ts', 'type src/release.ts'],
    packages: [
      '@opentelemetry/api',
      '@opentelemetry/exporter-trace-otlp-http',
      '@opentelemetry/exporter-trace-otlp-proto',
      '@opentelemetry/resources',
      '@opentelemetry/sdk-trace',
      'type fastify',
    ],
  },
  'src/recording': {
    imports: ['src/queries', 'src/database', 'src/config.ts', 'type generated', 'src/domain'],
    packages: ['type pg', 'uuid'],
  },
  'src/doctor': { imports: ['src/database', 'db', 'src/config.ts', 'src/release.ts'], packages: ['type pg'] },
  'src/demo': { imports: ['src/transfer', 'type generated', 'src/domain'], packages: [] },
  'src/transfer': { imports: ['src/database', 'type generated', 'src/domain'], packages: ['pg', 'pg-copy-streams'] },
  'src/backup': {
    imports: ['db', 'src/transfer', 'src/database', 'src/release.ts'],
    packages: ['pg', 'pg-copy-streams'],
  },
  'src/queries': { imports: ['src/database', 'type generated', 'src/domain'], packages: ['kysely', 'pg', 'uuid'] },
  'src/database': {
    imports: ['db', 'db/embedded', 'type generated', 'src/config.ts', 'src/domain', 'src/release.ts'],
    packages: ['kysely', 'pg'],
  },
  // It has pg's own parser judge a connection string.
  'src/config.ts': { imports: ['src/release.ts'], packages: ['envalid', 'pg'] },
  'src/logger.ts': { imports: ['type src/config.ts'], packages: ['pino', 'pino-pretty'] },
  'src/release.ts': { imports: ['package.json'], packages: [] },
  'src/stop-signals.ts': { imports: [], packages: [] },
  'src/domain': { imports: [], packages: [] },
  generated: { imports: ['type src/domain/timestamp.ts'], packages: ['type kysely'] },
  db: {
    imports: ['db/embedded', 'src/stop-signals.ts'],
    packages: ['kysely', 'pg', 'openapi-typescript', 'openapi-format', 'typescript', 'yaml'],
  },
  // A migration stays as it was written, whatever becomes of the code around it.
  'db/migrations': { imports: [], packages: ['kysely'], shared: [] },
  'db/embedded': { imports: [], packages: ['pg'] },
  deploy: { imports: ['src/release.ts'], packages: [] },
  openapi: { imports: [], packages: ['yaml'] },
  docs: { imports: ['.dependency-cruiser.ts'], packages: [ANYTHING] },
  bench: { imports: [ANYTHING], packages: [ANYTHING] },
  tests: { imports: [ANYTHING], packages: [ANYTHING] },
}

const TYPE_ONLY = 'type '
const NPM = '(^|/)node_modules/'
const isFile = (place: string) => /\.\w+$/.test(place)
const escaped = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')

/** The rules' places that lie within another. */
const within = (place: string) => Object.keys(IMPORT_RULES).filter((other) => other.startsWith(`${place}/`))

/** Matches the files of a place, without those within it that have a rule of their own. */
function filesOf(place: string): string {
  if (place === ANYTHING) return ''
  if (isFile(place)) return `^${escaped(place)}$`
  const others = within(place).map((other) => escaped(other.slice(place.length + 1)) + (isFile(other) ? '$' : '/'))
  return `^${escaped(place)}/${others.length > 0 ? `(?!${others.join('|')})` : ''}`
}

const packageFiles = (name: string) => (name === ANYTHING ? NPM : `${NPM}(@types/)?${escaped(name)}/`)

/** Splits a list into what may be imported in full and what only for its types. */
export function split(list: readonly string[]): { values: string[]; types: string[] } {
  const [types, values] = [true, false].map((isType) => list.filter((name) => name.startsWith(TYPE_ONLY) === isType))
  return { values: values ?? [], types: (types ?? []).map((name) => name.slice(TYPE_ONLY.length)) }
}

function rulesOf([place, { imports, packages, shared = [place] }]: [string, ImportRule]): IRegularForbiddenRuleType[] {
  const files = split([...imports, ...shared])
  const npm = split(packages)
  const from = { path: filesOf(place) }
  const rule = (what: string, to: IRegularForbiddenRuleType['to']): IRegularForbiddenRuleType => ({
    name: `${place}: ${what}`,
    severity: 'error',
    from,
    to,
  })
  const anyFile = [...files.values, ...files.types].map(filesOf)
  const anyPackage = [...npm.values, ...npm.types].map(packageFiles)
  return [
    rule('may not import this', { pathNot: [...anyFile, NPM], dependencyTypesNot: ['core'] }),
    rule('may not import this package', { path: NPM, pathNot: anyPackage }),
    ...[
      { path: files.types.map(filesOf), pathNot: files.values.map(filesOf) },
      { path: npm.types.map(packageFiles), pathNot: npm.values.map(packageFiles) },
    ]
      .filter(({ path }) => path.length > 0)
      .map((to) => rule('may import only types of this', { ...to, dependencyTypesNot: ['type-only'] })),
  ]
}

const config: IConfiguration = {
  forbidden: [
    ...Object.entries(IMPORT_RULES).flatMap(rulesOf),
    { name: 'no cycles', severity: 'error', from: {}, to: { circular: true } },
  ],
  required: [
    {
      name: 'has no rule in .dependency-cruiser.ts',
      severity: 'error',
      module: { path: '^(src|db)/', pathNot: Object.keys(IMPORT_RULES).map(filesOf) },
      // Nothing matches this, so no file without a rule passes, whatever it imports.
      to: { path: '^$' },
    },
  ],
  options: {
    // Types are erased before the code runs, but who knows them depends on them all the same.
    tsPreCompilationDeps: true,
    doNotFollow: { path: 'node_modules' },
    enhancedResolveOptions: { exportsFields: ['exports'], conditionNames: ['node', 'import', 'types'] },
    // Programs that have packages of their own: generated clients, and what a client team copies.
    exclude: { path: ['^tests/contract/sdks/[^/]+/', '^docs/check-recordings.mjs$', '^bench/.cache/'] },
  },
}

export default config
