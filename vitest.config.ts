import { availableParallelism } from 'node:os'
import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    globalSetup: ['tests/support/global-setup.ts'],
    // Idle unless FLOWTRAIL_MUTANT or RECORD_EXCHANGES is set.
    setupFiles: ['tests/contract/mutants/setup.ts', 'tests/contract/proxy/setup.ts'],
    // Files wait for PostgreSQL and for processes more than they compute, so there is one worker more than cores.
    maxWorkers: availableParallelism() + 1,
    // A test that hangs should say so; what a test waits for is always an event.
    testTimeout: 60_000,
    hookTimeout: 120_000,
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: ['tests/**/*.test.ts'],
          exclude: ['tests/browser/**', 'tests/contract/proxy/mock.test.ts', '**/node_modules/**'],
        },
      },
      {
        extends: true,
        test: { name: 'browser', include: ['tests/browser/**/*.test.ts'], expect: { poll: { timeout: 30_000 } } },
      },
      { extends: true, test: { name: 'mock', include: ['tests/contract/proxy/mock.test.ts'] } },
    ],
  },
})
