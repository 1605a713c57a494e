import { availableParallelism } from 'node:os'
import { defineConfig } from 'vitest/config'

const EXCLUDED = [
  'tests/browser/**',
  'tests/citus/**',
  'tests/connectors/**',
  'tests/deploy/**',
  'tests/contract/proxy/mock.test.ts',
  'tests/faults/trials/**',
  '**/node_modules/**',
]

/** What `make test-quick` leaves out: tests that start processes or clusters, and the rest of those that take longest. */
const SLOW = [
  'tests/cli/{backup,demo,demo-live,doctor,erase,import-export,keys,managed,migrate,readme,serve,status,tail,traces}.test.ts',
  'tests/cli/{tuning,usage}.test.ts',
  'tests/contract/{checks-bite,diff,examples,release}.test.ts',
  'tests/database/{embedded,migrate,open,pipelined-dialect,plans,replicas,standbys,upgrade}.test.ts',
  'tests/faults/**',
  'tests/feed/**',
  'tests/http/{docs,import,large,sockets}.test.ts',
  'tests/queries/erasures.test.ts',
  'tests/recording/{concurrency,idempotency-pruner,recorder,soak}.test.ts',
  'tests/transfer/{chunks,demo,distributed,export,import,isolation,small}.test.ts',
  'tests/unit/{bench/**,imports.test.ts,mutation/worker.test.ts}',
]

/**
 * Tests of what a cluster does not have: backups; triggers, which hold commits; replicas (ADR 0032); turns (ADR 0033); and one server
 * whose statistics count the rows that are read. Also those of faults that start a PostgreSQL of their own or take long.
 */
const NOT_ON_CITUS = [
  'tests/cli/backup.test.ts',
  'tests/faults/{kill.test.ts,trials/**}',
  'tests/feed/histories.property.test.ts',
  'tests/http/replicas.test.ts',
  'tests/recording/turns.test.ts',
  'tests/transfer/small.test.ts',
]

// A worker evaluates the modules that its files share once: a third of the whole run. No test replaces a module.
const SHARED = { include: ['tests/**/*.test.ts'], isolate: false, unstubEnvs: true }

export default defineConfig({
  test: {
    globalSetup: ['tests/support/global-setup.ts'],
    // The first two are idle unless FLOWTRAIL_MUTANT or RECORD_EXCHANGES is set.
    setupFiles: [
      'tests/contract/mutants/setup.ts',
      'tests/contract/proxy/setup.ts',
      'tests/support/restore-globals.ts',
    ],
    // Files wait for PostgreSQL and for processes more than they compute, so there is one worker more than cores.
    maxWorkers: availableParallelism() + 1,
    // A test that hangs should say so; what a test waits for is always an event.
    testTimeout: 60_000,
    hookTimeout: 120_000,
    // Read by path, so that `make test-quick` cannot know which tests they concern.
    forceRerunTriggers: [
      '**/{db,openapi,generated,bin}/**',
      '**/tests/**/*.{json,ndjson}',
      '**/{package.json,vitest.config.ts}',
    ],
    expect: { poll: { timeout: 30_000 } },
    reporters: ['default', './tests/support/summary.ts'],
    projects: [
      { extends: true, test: { name: 'unit', ...SHARED, exclude: EXCLUDED } },
      { extends: true, test: { name: 'quick', ...SHARED, exclude: [...EXCLUDED, ...SLOW] } },
      // A browser on a busy machine may be late for what a test does next, as for a reader who is too quick.
      { extends: true, test: { name: 'browser', include: ['tests/browser/**/*.test.ts'], retry: 1 } },
      {
        extends: true,
        test: { name: 'trials', include: ['tests/faults/trials/**/*.test.ts'], fileParallelism: false },
      },
      {
        extends: true,
        test: {
          name: 'connectors',
          include: ['tests/connectors/**/*.test.ts'],
          globalSetup: ['tests/connectors/install.ts'],
        },
      },
      { extends: true, test: { name: 'deploy', include: ['tests/deploy/**/*.test.ts'] } },
      {
        extends: true,
        test: {
          name: 'citus',
          ...SHARED,
          include: ['tests/{citus,cli,faults,feed,http,recording,transfer}/**/*.test.ts'],
          exclude: NOT_ON_CITUS,
        },
      },
      { extends: true, test: { name: 'mock', include: ['tests/contract/proxy/mock.test.ts'] } },
    ],
  },
})
