import { afterAll, beforeAll, expect, test } from 'vitest'
import { createTestApp, type TestApp } from '../support/app.ts'
import { exampleCall, isWrite, operationIds } from '../support/example-call.ts'

// For a database that is distributed by project the queries have another form (ADR 0033). Plain PostgreSQL can run it, too.

let apps: TestApp[]
beforeAll(async () => {
  apps = await Promise.all([false, true].map((isDistributed) => createTestApp({ isDistributed })))
})
afterAll(() => Promise.all(apps.map((api) => api.close())))

const ABSENT = { moduleId: 'absent', versionNumber: '99', entryId: 'absent' }

test.each(operationIds.filter((operationId) => !isWrite(operationId)))(
  '%s has the same responses in both forms',
  async (operationId) => {
    for (const path of [{}, ...Object.entries(ABSENT).map(([name, value]) => ({ [name]: value }))]) {
      const responses = await Promise.all(apps.map((api) => api.call(exampleCall(operationId, { path }))))
      const [plain, distributed] = responses.map(({ statusCode, headers, body }) => {
        // The examples have come into each database at a time of their own.
        return { statusCode, body: body.replace(/"(recorded_at|position)":[^,}]+/g, ''), etag: headers.etag }
      })
      expect(distributed).toEqual(plain)
    }
  },
)
