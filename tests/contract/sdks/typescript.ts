import assert from 'node:assert/strict'

/** What the journeys of the TypeScript clients share: nothing that a generator should give. */

function setting(name: string): string {
  const value = process.env[name]
  assert(value, `${name} is not set; see tests/support/with-demo-service.ts`)
  return value
}

/** Where the service is, and the keys, as tests/support/with-demo-service.ts names them. */
export const service = {
  url: setting('FLOWTRAIL_URL'),
  limitedUrl: setting('FLOWTRAIL_LIMITED_URL'),
  key: setting('FLOWTRAIL_KEY'),
  readKey: setting('FLOWTRAIL_READ_KEY'),
  otherKey: setting('FLOWTRAIL_OTHER_KEY'),
}

/** Tells that a step of the journey was taken. */
export const ok = (step: string): void => console.log(`ok ${step}`)

/** A call's outcome, as both clients put it. */
interface Outcome<Data, Fault> {
  data?: Data | undefined
  error?: Fault | undefined
  response?: Response | undefined
}

/** The answer of a call that must succeed. */
export function dataOf<Data>({ data, error }: Outcome<Data, unknown>): Data {
  assert(data !== undefined, `the call failed: ${JSON.stringify(error)}`)
  return data
}

/** What both clients must know of an error. */
interface Fault {
  error: { code: string; message: string }
  projectId?: string
}

/** Holds the error of a call that must fail against its status and code, and against what it says of the request. */
export function assertError<Known extends Fault>(
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

/** A response's header that must be there. */
export function headerOf({ response }: Outcome<unknown, unknown>, name: string): string {
  const value = response?.headers.get(name)
  assert(value, `the header ${name} is missing`)
  return value
}

/** Where a list goes on: its next page's address and its cursor. */
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

/** All records of a list, page by page to its end. */
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

/** Sends a client's request to where a `Link` points instead. */
export const following =
  ({ link }: Next): typeof fetch =>
  (input, init) => {
    const request = new Request(input, init)
    return fetch(new Request(new URL(link, request.url), request))
  }
