import { createHash } from 'node:crypto'
import { expect, test } from 'vitest'
import { formatKey, generateKey, hashSecret, isAccepted, parseKey } from '../../src/domain/api-key.ts'
import { toIsoTimestamp } from '../../src/domain/timestamp.ts'

const KEY = { key_id: '0123456789ab', secret: 'ABCDEFGHIJKLMNOPQRSTUVWXYZa' }
// CRC-32 of "ft_0123456789ab_ABCDEFGHIJKLMNOPQRSTUVWXYZa" as Python's zlib.crc32 gives it, in base62.
const TEXT = 'ft_0123456789ab_ABCDEFGHIJKLMNOPQRSTUVWXYZa3WLhGl'

test('formatKey writes the format that secret scanners recognise, with its checksum', () => {
  expect(formatKey(KEY)).toBe(TEXT)
  expect(parseKey(TEXT)).toEqual(KEY)
})

test('generateKey generates valid keys, never the same twice', () => {
  const keys = Array.from({ length: 1000 }, generateKey)
  for (const key of keys) {
    expect(formatKey(key)).toMatch(/^ft_[0-9A-Za-z]{12}_[0-9A-Za-z]{33}$/)
    expect(parseKey(formatKey(key))).toEqual(key)
  }
  expect(new Set(keys.map(({ key_id }) => key_id)).size).toBe(1000)
  // Among 39,000 characters, each of the 62 occurs.
  expect(new Set(keys.flatMap(({ key_id, secret }) => [...key_id, ...secret])).size).toBe(62)
})

test('parseKey refuses every key with one character mistyped, and every neighbouring pair swapped', () => {
  const key = formatKey(generateKey())
  for (let i = 0; i < key.length; i += 1) {
    for (const typed of '0Aa_z') {
      if (typed !== key[i]) expect(parseKey(key.slice(0, i) + typed + key.slice(i + 1))).toBeUndefined()
    }
    const swapped = key.slice(0, i) + key.charAt(i + 1) + key.charAt(i) + key.slice(i + 2)
    if (swapped !== key) expect(parseKey(swapped)).toBeUndefined()
  }
})

test.each([
  '',
  'ft_',
  TEXT.slice(1),
  TEXT.slice(0, -1),
  `${TEXT}0`,
  `${TEXT}\n`,
  ` ${TEXT}`,
  `${TEXT} `,
  `${TEXT},${TEXT}`,
  // With a right checksum, by Python again.
  'xft_0123456789ab_ABCDEFGHIJKLMNOPQRSTUVWXYZa0trGZZ',
])('parseKey refuses %j', (text) => {
  expect(parseKey(text)).toBeUndefined()
})

test.each([TEXT.replace('ft_', 'FT_'), TEXT.toLowerCase(), TEXT.toUpperCase(), TEXT.replaceAll('_', '-')])(
  'parseKey refuses %s',
  (text) => {
    expect(parseKey(text)).toBeUndefined()
  },
)

test('hashSecret is SHA-256, and isAccepted checks secret, expiry and revocation', () => {
  expect(hashSecret(KEY.secret)).toEqual(createHash('sha256').update(KEY.secret).digest())
  const stored = { secret_hash: hashSecret(KEY.secret), expires_at: null, revoked_at: null }
  const now = new Date('2026-03-01T09:30:00.000Z')
  expect(isAccepted(KEY, stored, now)).toBe(true)
  expect(isAccepted({ ...KEY, secret: KEY.secret.toLowerCase() }, stored, now)).toBe(false)
  expect(isAccepted(KEY, { ...stored, expires_at: toIsoTimestamp(new Date('2026-03-01T09:30:00.001Z')) }, now)).toBe(
    true,
  )
  expect(isAccepted(KEY, { ...stored, expires_at: toIsoTimestamp(new Date('2026-03-01T09:30:00.000Z')) }, now)).toBe(
    false,
  )
  expect(isAccepted(KEY, { ...stored, revoked_at: toIsoTimestamp(new Date('2026-03-01T09:29:59.999Z')) }, now)).toBe(
    false,
  )
})
