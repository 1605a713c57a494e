import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { toIsoTimestamp } from '../../src/domain/timestamp.ts'
import { ContactResolver } from '../../src/recording/contacts.ts'
import { importInto, type TestApp } from '../support/app.ts'
import {
  contact,
  createRecordingApp,
  customEvent,
  eventsOf,
  freshValue,
  parsedEvent,
  post,
  record,
  rowCounts,
  UUID_V7,
} from './fixture.ts'

let api: TestApp
beforeAll(async () => {
  api = await createRecordingApp()
})
afterAll(() => api.close())

const identifiers = (pairs: Record<string, string>) => Object.entries(pairs).map(([key, value]) => ({ key, value }))

/** The contact of an event with these identifiers. */
const contactOf = async (pairs: Record<string, string>) =>
  (await record(api, { identifiers: identifiers(pairs) })).contact_id

const identifiersOf = (contactId: string) =>
  api.db
    .selectFrom('contact_identifiers')
    .select(['key', 'value'])
    .where('contact_id', '=', contactId)
    .orderBy('key')
    .orderBy('value')
    .execute()

describe('the contact', () => {
  test('is new and owns all identifiers if none is known', async () => {
    const pairs = { email: freshValue(), phone: freshValue(), vip: freshValue() }
    const { contact_id, entry_id } = await record(api, { identifiers: identifiers(pairs) })
    expect(contact_id).toMatch(UUID_V7)
    expect(await identifiersOf(contact_id)).toEqual(identifiers(pairs))
    expect(await eventsOf(api, entry_id)).toHaveLength(1)
  })

  test('is the owner of the known identifiers, and gets the others', async () => {
    const [email, phone, device] = [freshValue(), freshValue(), freshValue()]
    const contactId = await contactOf({ email })
    expect(await contactOf({ phone, email })).toBe(contactId)
    expect(await contactOf({ device, phone })).toBe(contactId)
    expect(await contactOf({ device })).toBe(contactId)
    expect(await identifiersOf(contactId)).toEqual(identifiers({ device, email, phone }))
  })

  test('may own several values of a key', async () => {
    const [email, first, second] = [freshValue(), freshValue(), freshValue()]
    const contactId = await contactOf({ email, phone: first })
    expect(await contactOf({ email, phone: second })).toBe(contactId)
    expect(await contactOf({ phone: first })).toBe(contactId)
    expect(await contactOf({ phone: second })).toBe(contactId)
  })

  test('differs for the same value under another key, and for the same identifier in another project', async () => {
    const value = freshValue()
    const contactId = await contactOf({ email: value })
    expect(await contactOf({ phone: value })).not.toBe(contactId)
    expect(await contactOf({ Email: value })).not.toBe(contactId)
    const owners = api.db
      .selectFrom('contact_identifiers')
      .select('project_id')
      .where('value', '=', value)
      .where('project_id', '=', 'other')
    expect(await owners.execute()).toEqual([])
  })

  test('gets all ten identifiers of a post, and more with the next', async () => {
    const pairs = (from: number) =>
      Object.fromEntries(Array.from({ length: 10 }, (_, i) => [`k${String(from + i).padStart(2, '0')}`, freshValue()]))
    const [first, second] = [pairs(0), pairs(9)]
    const shared = { k09: first.k09 ?? '' }
    const contactId = await contactOf(first)
    expect(await identifiersOf(contactId)).toEqual(identifiers(first))
    expect(await contactOf({ ...second, ...shared })).toBe(contactId)
    expect(await identifiersOf(contactId)).toEqual(identifiers({ ...first, ...second, ...shared }))
  })

  test('keeps the text that was first sent for an identifier', async () => {
    const contactId = await contactOf({ score: '81234567890.50' })
    expect(await contactOf({ score: '8.12345678905e10' })).toBe(contactId)
    expect(await identifiersOf(contactId)).toEqual([{ key: 'score', value: '81234567890.50' }])
  })
})

describe('identifiers of different contacts', () => {
  test('are a 409 that names each and stores nothing', async () => {
    const [email, phone, device] = [freshValue(), freshValue(), freshValue()]
    const [first, second] = [await contactOf({ email }), await contactOf({ phone })]
    const before = await rowCounts(api)
    const response = await post(
      api,
      customEvent({ module_id: 'booking', identifiers: identifiers({ device, email, phone }) }),
      { 'idempotency-key': 'conflict' },
    )
    expect(response.statusCode).toBe(409)
    expect(response.json()).toMatchObject({
      error: {
        code: 'identifier_conflict',
        details: [{ pointer: '/body/identifiers/1' }, { pointer: '/body/identifiers/2' }],
      },
      projectId: 'demo',
    })
    expect(await rowCounts(api)).toEqual(before)
    expect(await contactOf({ email })).toBe(first)
    expect(await contactOf({ phone })).toBe(second)
    expect([first, second]).not.toContain(await contactOf({ device }))
  })
})

describe('a post with identifiers that cannot be those of one contact', () => {
  const one = { key: 'email', value: '"a@example.com"' }
  test.each([
    [
      'more than ten',
      Array.from({ length: 11 }, (_, i) => ({ key: `k${i}`, value: freshValue() })),
      '/body/identifiers',
      'must hold 1 to 10 items',
    ],
    ['one twice', [one, one], '/body/identifiers/1/key', 'send each key once'],
    [
      'one twice, spelt differently',
      [one, { ...one, value: ` ${one.value}` }],
      '/body/identifiers/1/key',
      'each key once',
    ],
    ['two of one key', [one, { ...one, value: '"b"' }], '/body/identifiers/1/key', 'send each key once'],
  ])('is a 400 and stores nothing: %s', async (_, identifiers, pointer, message) => {
    const before = await rowCounts(api)
    const response = await post(api, customEvent({ identifiers }))
    expect(response.statusCode).toBe(400)
    expect(response.json().error.details).toEqual([{ pointer, message: expect.stringContaining(message) }])
    expect(await rowCounts(api)).toEqual(before)
  })
})

describe('the identifier contact_id', () => {
  test('identifies the contact by its own id, which gets the other identifiers', async () => {
    const [email, phone] = [freshValue(), freshValue()]
    const contactId = await contactOf({ email })
    expect(await contactOf({ contact_id: JSON.stringify(contactId), phone })).toBe(contactId)
    expect(await contactOf({ phone })).toBe(contactId)
    expect(await identifiersOf(contactId)).toEqual(identifiers({ email, phone }))
  })

  test('is compared like any value: escapes are decoded, case counts', async () => {
    await importInto(api.databaseUrl, [contact('Ünï-1')])
    expect(await contactOf({ contact_id: '"Ünï\\u002d1"' })).toBe('Ünï-1')
    expect(await contactOf({ contact_id: '"ünï-1"' })).not.toBe('Ünï-1')
  })

  test('conflicts with an identifier of another contact', async () => {
    const email = freshValue()
    const contactId = await contactOf({ phone: freshValue() })
    await contactOf({ email })
    const body = customEvent({ identifiers: identifiers({ contact_id: JSON.stringify(contactId), email }) })
    expect((await post(api, body)).statusCode).toBe(409)
  })

  test('is a key like any other if no contact has that id', async () => {
    const [contact_id, email] = [freshValue(), freshValue()]
    const contactId = await contactOf({ contact_id, email })
    expect(contactId).toMatch(UUID_V7)
    expect(JSON.stringify(contactId)).not.toBe(contact_id)
    expect(await contactOf({ contact_id })).toBe(contactId)
    expect(await identifiersOf(contactId)).toEqual(identifiers({ contact_id, email }))
  })

  test.each([
    ['4711', '4711'],
    // The canonical form of a number.
    ['4711e0', '4711'],
    ['true', 'true'],
  ])('that is not a string does not identify the contact %s: %s', async (contactId, value) => {
    await importInto(api.databaseUrl, [contact(contactId)])
    expect(await contactOf({ contact_id: value })).not.toBe(contactId)
    expect(await contactOf({ contact_id: JSON.stringify(contactId) })).toBe(contactId)
  })
})

test('a contact that a batch adds is known by its own id to the events after it', () => {
  const resolver = new ContactResolver([], [])
  const now = toIsoTimestamp(new Date('2026-03-01T09:30:00.000Z'))
  const resolve = (pairs: Record<string, string>) =>
    resolver.resolve('demo', parsedEvent({ identifiers: identifiers(pairs) }).identifiers, now)
  const added = resolve({ email: '"a"' })
  const contact_id = JSON.stringify((added as { contact_id: string }).contact_id)
  expect(resolve({ contact_id })).toEqual(added)
  expect(resolve({ contact_id, email: '"a"' })).toEqual(added)
  expect(resolver.added.contacts).toHaveLength(1)
})

describe('two values', () => {
  const long = 'x'.repeat(1022)
  test.each([
    ['"a"', '"\\u0061"'],
    ['"é"', '"\\u00e9"'],
    ['"😀"', '"\\ud83d\\ude00"'],
    ['"/"', '"\\/"'],
    ['"b"', ' \t\n\r"b" '],
    ['1', '1.0'],
    ['1', '1e0'],
    ['1', '10E-1'],
    ['1', '0.01e+2'],
    ['0', '-0'],
    ['0', '0e999999999'],
    ['0', '-0.00E-7'],
    ['-150', '-1.5e2'],
    ['12345678901234567890', '1234567890123456789.0e1'],
    ['1e999999999', '10e999999998'],
    ['1e-999999999', '0.1e-999999998'],
    ['true', ' true '],
    [`"${long}"`, `"${long}"`],
  ])('%j and %j are equal', async (one, other) => {
    const key = `${one} = ${other}`.slice(0, 100)
    expect(await contactOf({ [key]: one })).toBe(await contactOf({ [key]: other }))
  })

  test.each([
    ['"a"', '"A"'],
    ['"a"', '"a "'],
    ['"é"', '"e\\u0301"'],
    ['12345678901234567890', '12345678901234567891'],
    ['0.1', '0.10000000000000000001'],
    ['1', '-1'],
    ['1', '"1"'],
    ['1', 'true'],
    ['"1"', 'true'],
    ['"true"', 'true'],
    ['true', 'false'],
    ['0', 'false'],
    ['1e999999999', '1e999999998'],
    ['1e999999999', '2e999999999'],
    ['1e-999999999', '0'],
    ['"s1"', '"1"'],
    ['"n1e0"', '1'],
    [`"${long}a"`.slice(2), `"${long}b"`.slice(2)].map((text) => `"${text}`) as [string, string],
  ])('%j and %j differ', async (one, other) => {
    const key = `${one} ≠ ${other}`.slice(0, 100)
    const contactId = await contactOf({ [key]: one })
    expect(await contactOf({ [key]: other })).not.toBe(contactId)
    expect(await contactOf({ [key]: one })).toBe(contactId)
  })
})
