import { JsonText } from '../domain/json-text.ts'

/** Serializes a result, whose rows may be {@link JsonText}s. */
export function serialize(result: unknown): string {
  if (!Array.isArray(result) || !(result[0] instanceof JsonText)) return JSON.stringify(result)
  return `[${(result as JsonText[]).map(({ text }) => text)}]`
}
