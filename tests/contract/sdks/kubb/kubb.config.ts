import { defineConfig } from '@kubb/core'
import { pluginClient } from '@kubb/plugin-client'
import { pluginOas } from '@kubb/plugin-oas'
import { pluginTs } from '@kubb/plugin-ts'

export default defineConfig({
  input: { path: '../../../../openapi/openapi.yaml' },
  output: { path: 'generated', extension: { '.ts': '.ts' }, format: false },
  plugins: [
    pluginOas({ generators: [] }),
    pluginTs({ output: { path: 'types' }, enumType: 'literal', emptySchemaType: 'void' }),
    pluginClient({
      output: { path: 'client' },
      client: 'fetch',
      bundle: true,
      dataReturnType: 'full',
      paramsType: 'object',
    }),
  ],
})
