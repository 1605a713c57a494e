import { defineConfig } from 'orval'

const input = '../../../../openapi/openapi.yaml'

export default defineConfig({
  client: {
    input,
    output: {
      client: 'fetch',
      target: 'generated/client.ts',
      schemas: 'generated/model',
      headers: true,
      urlEncodeParameters: true,
      override: { fetch: { useRuntimeFetcher: true } },
    },
  },
  // Optional: schemas that check at run time what the service returns.
  schemas: {
    input,
    output: { client: 'zod', target: 'generated/schemas.ts' },
  },
})
