import { readFileSync } from 'node:fs'
import { text } from 'node:stream/consumers'
import { Ajv } from 'ajv'
import formats from 'ajv-formats'

const document = JSON.parse(readFileSync(process.env.FLOWTRAIL_DOCUMENT ?? 'openapi.strict.json', 'utf8'))
const operations = Object.values(document.paths).flatMap((item) => Object.values(item))
// OpenAPI adds keywords that JSON Schema does not have.
const ajv = new Ajv({ allErrors: true, strict: false })
formats.default(ajv)

/** What is wrong with the body of a response; empty if nothing. */
export function issueOf(operationId, status, body) {
  const operation = operations.find((one) => one.operationId === operationId)
  let response = operation?.responses[status]
  if (response?.$ref) response = document.components.responses[response.$ref.split('/').pop()]
  if (!response) return `${operationId} has no status ${status}`
  // With the components beside it, the references in the schema are found.
  const schema = { ...response.content['application/json'].schema, components: document.components }
  return ajv.validate(schema, body) ? '' : ajv.errorsText()
}

const answers = JSON.parse(await text(process.stdin))
console.log(JSON.stringify(answers.map(({ operationId, status, body }) => issueOf(operationId, status, body))))
