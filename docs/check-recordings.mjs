// Validates recorded exchanges against openapi.yaml: node check-recordings.mjs FILE…
// Reads HAR files and the cassettes of VCR (Ruby) and vcrpy (Python); see docs/contract-testing.md of Flowtrail.
import { readFile } from 'node:fs/promises'
import { createInstance, getHttpOperationsFromSpec } from '@stoplight/prism-http'
import { parse } from 'yaml'

// Prism's proxy, with the recorded response in place of a service. Most recordings lack the key, so it is not required.
const operations = await getHttpOperationsFromSpec('openapi.yaml')
const ignore = () => {}
const logger = { info: ignore, warn: ignore, error: ignore, debug: ignore, success: ignore, child: () => logger }
const checks = { validateRequest: true, validateResponse: true, checkSecurity: false }
const prism = createInstance(
  { ...checks, isProxy: true, errors: true, upstream: {}, mock: {} },
  {
    logger,
    forward:
      ({ data }) =>
      () =>
      async () => ({ _tag: 'Right', right: data.recorded }),
  },
)

function headersOf({ headers = {} }) {
  const pairs = Array.isArray(headers) ? headers.map(({ name, value }) => [name, value]) : Object.entries(headers)
  return Object.fromEntries(pairs.map(([name, value]) => [name.toLowerCase(), [value].flat().join(', ')]))
}

function bodyOf({ postData, content, body }) {
  const { text, string, encoding } = postData ?? content ?? (typeof body === 'string' ? { text: body } : (body ?? {}))
  const decoded = Buffer.from(text ?? string ?? '', encoding === 'base64' ? 'base64' : 'utf8').toString()
  try {
    return JSON.parse(decoded)
  } catch {
    return decoded === '' ? undefined : decoded
  }
}

async function errorsIn(request, response) {
  const { pathname, searchParams } = new URL(request.url ?? request.uri)
  const status = response.status.code ?? response.status
  const outcome = await prism.request(
    {
      method: request.method.toLowerCase(),
      // The service may have a base path.
      url: { path: pathname.slice(pathname.indexOf('/projects/')), query: Object.fromEntries(searchParams) },
      headers: headersOf(request),
      body: bodyOf(request),
      recorded: { statusCode: status, headers: headersOf(response), body: bodyOf(response) },
    },
    operations,
  )()
  if (outcome._tag === 'Left') return [outcome.left.detail]
  const { input, output } = outcome.right.validations
  return [...(status < 400 ? input : []), ...output].map(({ message }) => message)
}

let count = 0
for (const file of process.argv.slice(2)) {
  const { log, http_interactions, interactions } = parse(await readFile(file, 'utf8')) // JSON is YAML
  for (const { request, response } of log?.entries ?? http_interactions ?? interactions ?? []) {
    const address = request.url ?? request.uri
    if (!address.includes('/projects/')) continue
    count += 1
    for (const error of await errorsIn(request, response)) {
      console.error(`${file}: ${request.method} ${address}: ${error}`)
      process.exitCode = 1
    }
  }
}
console.log(`${count} recorded exchanges`)
if (count === 0) process.exitCode = 1
