/** See tests/golden/README.md: a failure here means that stored data or clients would break. */
import { expect, test } from 'vitest'
import { formatKey, hashSecret, parseKey } from '../../src/domain/api-key.ts'
import { decodeCursor, encodeCursor, fingerprint, type SortKey } from '../../src/domain/cursor.ts'
import { canonicalValue, identifierDigest } from '../../src/domain/identifier.ts'
import { limitsAt, parseLine } from '../../src/transfer/records.ts'
import { vectorsOf } from '../support/golden.ts'

test.each(vectorsOf('event_id'))('the id of the imported event $line is $event_id', ({ line, event_id }) => {
  const limits = limitsAt(new Date('2026-03-01T09:30:00.000Z'))
  expect(parseLine(JSON.stringify(line), limits)).toMatchObject({ ok: true, record: { event_id } })
  const reordered = Object.fromEntries(Object.entries(line).reverse())
  expect(parseLine(JSON.stringify(reordered), limits)).toMatchObject({ ok: true, record: { event_id } })
})

test.each(vectorsOf('identifier_digest'))(
  'the digest of $key $value is $digest',
  ({ key, value, canonical, digest }) => {
    expect(canonicalValue(value)).toEqual({ ok: true, canonical })
    expect(identifierDigest(key, canonical).toString('hex')).toBe(digest)
  },
)

test.each(vectorsOf('cursor'))('a cursor of $list at $key is $cursor', ({ scope, key, cursor }) => {
  const bound = fingerprint(scope.map((value) => value ?? undefined))
  expect(encodeCursor(bound, key)).toBe(cursor)
  expect(decodeCursor(bound, cursor, (value): value is SortKey => Array.isArray(value))).toEqual(key)
})

test.each(vectorsOf('api_key'))('the key $key is accepted', ({ key, key_id, secret, secret_hash }) => {
  expect(formatKey({ key_id, secret })).toBe(key)
  expect(parseKey(key)).toEqual({ key_id, secret })
  expect(hashSecret(secret).toString('hex')).toBe(secret_hash)
})
