import { afterAll, vi } from 'vitest'

// A Vitest setup file: test files share their worker's globals, so a clock that a failed test leaves faked must not
// reach the next file. Vitest itself restores spies and, by its configuration, environment variables.
afterAll(() => void vi.useRealTimers())
