/** The query of a request as sent: each parameter's values, in order. */
export type RawQuery = Record<string, string[]>

/** The key of the first pair that is not percent-encoded UTF-8. It is kept because the router's parser must not throw. */
export const MALFORMED = Symbol('malformed')

const decode = (text: string) => decodeURIComponent(text.replaceAll('+', ' '))

/** Parses a query string strictly; Node and most parsers silently replace invalid percent-encoding by U+FFFD. */
export function parseQueryString(text: string): RawQuery {
  const query: RawQuery & { [MALFORMED]?: string } = Object.create(null)
  for (const pair of text.split('&')) {
    if (pair === '') continue
    const [rawName = '', ...rest] = pair.split('=')
    try {
      const name = decode(rawName)
      const value = decode(rest.join('='))
      query[name] ??= []
      query[name].push(value)
    } catch {
      query[MALFORMED] ??= pair
    }
  }
  return query
}
