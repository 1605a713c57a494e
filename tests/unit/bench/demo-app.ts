import { loadDemo } from '../../../src/cli/demo.ts'
import { createTestApp, type TestApp } from '../../support/app.ts'

/** A test app on the demo project, as what the bench measures is. */
export const createDemoApp = (): Promise<TestApp> =>
  createTestApp({ fill: (databaseUrl) => loadDemo(databaseUrl, { entries: 60 }) })
