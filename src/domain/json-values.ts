export const [QUOTE, BACKSLASH, COMMA, ARRAY, OBJECT] = Buffer.from('"\\,[{')

/** Whether JSON text has more fields and items: each follows a comma or is the first of its array or object. */
export function hasManyValues(json: string, max: number): boolean {
  let values = 0
  let isInString = false
  for (let i = 0; i < json.length && values <= max; i += 1) {
    const code = json.charCodeAt(i)
    if (code === QUOTE) isInString = !isInString
    else if (isInString) i += code === BACKSLASH ? 1 : 0
    else if (code === COMMA || code === ARRAY || code === OBJECT) values += 1
  }
  return values > max
}
