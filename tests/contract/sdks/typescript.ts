import assert from 'node:assert/strict'

/** Shared by the journeys of the TypeScript clients: nothing that a generator should provide. */

function setting(name: string): string {
  const value = process.env[name]
  assert(value, `${name} is not set; see tests/support/with-demo-service.ts`)
  return value
}

/** The URLs and keys of the service, from the environment that tests/support/with-demo-service.ts sets. */
export const service = {
  url: setting('FLOWTRAIL_URL'),
  limitedUrl: setting('FLOWTRAIL_LIMITED_URL'),
  key: setting('FLOWTRAIL_KEY'),
  readKey: setting('FLOWTRAIL_READ_KEY'),
  otherKey: setting('FLOWTRAIL_OTHER_KEY'),
}

/** Reports that a step of the journey succeeded. */
export const ok = (step: string): void => console.log(`ok ${step}`)

/** The result of a call, in both clients. */
interface Outcome<Data, Failure> {
  data?: Data | undefined
  error?: Failure | undefined
  response?: Response | undefined
}

/** The data of a call that must succeed. */
export function dataOf<Data>({ data, error }: Outcome<Data, unknown>): Data {
  assert(data !== undefined, `the call failed: ${JSON.stringify(error)}`)
  return data
}

/** The least that the error type of both clients must have. */
interface ErrorBody {
  error: { code: string; message: string }
  projectId?: string
}

/** Checks status, code and further fields of the error of a call that must fail. */
export function assertError<Known extends ErrorBody>(
  { error, response }: Outcome<unknown, Known>,
  status: number,
  code: string,
  context: Partial<Omit<NoInfer<Known>, 'error'>> = {},
): Known {
  assert.equal(response?.status, status)
  assert(error?.error.message)
  assert.equal(error.error.code, code)
  assert.partialDeepStrictEqual(error, { projectId: 'demo', ...context })
  return error
}

/** A header that the response must have. */
export function headerOf({ response }: Outcome<unknown, unknown>, name: string): string {
  const value = response?.headers.get(name)
  assert(value, `the header ${name} is missing`)
  return value
}

/** The URL of the next page of a list, and its cursor. */
export interface Next {
  link: string
  cursor: string
}

function nextOf(outcome: Outcome<unknown, unknown>): Next | undefined {
  if (!outcome.response?.headers.has('Link')) return undefined
  const [, link] = /^<([^>]+)>; rel="next"$/.exec(headerOf(outcome, 'Link')) ?? []
  assert(link)
  return { link, cursor: headerOf(outcome, 'Next-Cursor') }
}

/** All records of a list, read page by page. */
export async function walk<Data>(getPage: (next?: Next) => Promise<Outcome<Data[], unknown>>): Promise<Data[]> {
  const records: Data[] = []
  let next: Next | undefined
  do {
    const outcome = await getPage(next)
    records.push(...dataOf(outcome))
    next = nextOf(outcome)
  } while (next)
  return records
}

/** A `fetch` that sends the request to the URL of a `Link` instead. */
export const following =
  ({ link }: Next): typeof fetch =>
  (input, init) => {
    const request = new Request(input, init)
    return fetch(new Request(new URL(link, request.url), request))
  }
