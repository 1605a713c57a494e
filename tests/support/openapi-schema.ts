import { Validator } from '@seriousme/openapi-schema-validator'

/**
 * fastify-openapi-glue has OpenAPI's own schema compiled anew for each app, a third of the time that an app takes to start.
 * Once this module is loaded, the apps of a worker share it.
 */
interface Compiling {
  getAjvValidator: (version: string) => unknown
}

const prototype = Validator.prototype as unknown as Compiling
const { getAjvValidator } = prototype
const compiled = new Map<string, unknown>()
prototype.getAjvValidator = function (this: Compiling, version) {
  if (!compiled.has(version)) compiled.set(version, getAjvValidator.call(this, version))
  return compiled.get(version)
}
