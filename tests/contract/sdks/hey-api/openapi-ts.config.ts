import { defineConfig } from '@hey-api/openapi-ts'

export default defineConfig({
  input: '../../../../openapi/openapi.yaml',
  output: { path: 'generated', module: { extension: '.ts' } },
  plugins: [
    '@hey-api/client-fetch',
    { name: '@hey-api/transformers', dates: true, bigInt: false },
    { name: '@hey-api/sdk', transformer: true },
  ],
})
