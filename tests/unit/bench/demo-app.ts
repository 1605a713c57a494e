import { loadDemo } from '../../../src/cli/demo.ts'
import { createTestApp, type TestApp } from '../../support/app.ts'

/** A test app with the demo project, like the service that the bench measures. */
export const createDemoApp = (): Promise<TestApp> =>
  createTestApp({ fill: (databaseUrl) => loadDemo(databaseUrl, { entries: 60 }) })
