import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['tests/**/*.test.ts'],
    globalSetup: ['tests/support/global-setup.ts'],
    // A test that hangs should say so; what a test waits for is always an event.
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
})
