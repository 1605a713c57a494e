import { hash } from 'node:crypto'
import { exceedsCodePoints, hasCodePoints, isStorable } from './text.ts'

/** An identifier of a contact as posted or imported; `value` is JSON text. */
export interface Identifier {
  key: string
  value: string
}

/** The key under which a contact is also known by its own id (docs/semantics.md#contact). */
export const CONTACT_ID_KEY = 'contact_id'

const MAX_KEY_code_points = 128
const MAX_VALUE_code_points = 1024
const NUMBER = /^(-?)(0|[1-9]\d*)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/

/** `canonical` is the same text for all spellings of a JSON scalar: a letter for the type, then the value. */
export type CanonicalValue = { ok: true; canonical: string } | { ok: false; issue: string }

/**
 * Normalizes a number to sign, digits without leading and trailing zeros, and exponent. It works on the text, so that no
 * digit is lost and a huge exponent costs nothing.
 */
function canonicalNumber(sign: string, whole: string, fraction: string, exponent: string): string {
  const digits = (whole + fraction).replace(/^0+/, '')
  if (digits === '') return '0'
  const significant = digits.slice(0, lengthWithoutZeros(digits))
  const scale = BigInt(exponent) - BigInt(fraction.length) + BigInt(digits.length - significant.length)
  return `${sign}${significant}e${scale}`
}

/** A regular expression would look at each run of zeros as often as it has zeros. */
function lengthWithoutZeros(digits: string): number {
  let length = digits.length
  while (digits[length - 1] === '0') length -= 1
  return length
}

export const NOT_A_VALUE = 'must be JSON text of a non-empty string, a number or a boolean'

/**
 * Parses an identifier's value, which must be JSON text of a non-empty string, a number or a boolean, at most
 * 1024 code points long (docs/semantics.md#identifiers). Never throws.
 */
export function canonicalValue(text: string): CanonicalValue {
  if (!isStorable(text)) return { ok: false, issue: 'must not hold NUL or a lone surrogate' }
  if (exceedsCodePoints(text, MAX_VALUE_code_points)) {
    return { ok: false, issue: `must be at most ${MAX_VALUE_code_points} characters long` }
  }
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return { ok: false, issue: `must be JSON text; to send it as a string, quote it: ${JSON.stringify(text)}` }
  }
  if (typeof value === 'boolean') return { ok: true, canonical: `b${value}` }
  if (typeof value === 'number') {
    const [, sign = '', whole = '', fraction = '', exponent = '0'] = NUMBER.exec(text.trim()) ?? []
    return { ok: true, canonical: `n${canonicalNumber(sign, whole, fraction, exponent)}` }
  }
  if (typeof value !== 'string' || value === '') {
    return { ok: false, issue: NOT_A_VALUE }
  }
  if (!isStorable(value)) return { ok: false, issue: 'must not hold NUL or a lone surrogate, escaped or not' }
  return { ok: true, canonical: `s${value}` }
}

/** The issue with an identifier's key; undefined when it is valid. */
export function identifierKeyIssue(key: string): string | undefined {
  if (!isStorable(key)) return 'must not hold NUL or a lone surrogate'
  if (!hasCodePoints(key, MAX_KEY_code_points)) return `must be 1 to ${MAX_KEY_code_points} characters long`
  return undefined
}

/**
 * The 32 bytes by which an identifier is unique in its project: SHA-256 of key, NUL and canonical value. A key holds
 * no NUL, so no two identifiers share the hashed text. In SQL: `sha256(convert_to(key, 'UTF8') || '\x00' ||
 * convert_to(canonical, 'UTF8'))`.
 */
export function identifierDigest(key: string, canonical: string): Buffer {
  return hash('sha256', `${key}\0${canonical}`, 'buffer')
}

/** A number as JSON.stringify and forms have it: the same text as a string and as a number. */
const PLAIN_NUMBER = /^(?!-0$)-?(?:0|[1-9]\d*)(?:\.\d*[1-9])?$/

/** What an identifier is known by. */
export interface IdentifierNames {
  digest: Buffer
  /** That of the contact itself, if the key is {@link CONTACT_ID_KEY} and the value a string. */
  contact_id: string | undefined
}

/**
 * The identifier with the same text under another JSON type: of `"1"` that is `1`, and of `1` or `true` the string. undefined when
 * there is none. Whoever sends both probably means one contact (docs/recording.md#identifiers).
 */
export function ofOtherType({
  key,
  value,
  canonical,
}: Identifier & { canonical: string }): IdentifierNames | undefined {
  const isString = canonical.startsWith('s')
  const text = isString ? canonical.slice(1) : value.trim()
  if (!PLAIN_NUMBER.test(text) && text !== 'true' && text !== 'false') return undefined
  const other = canonicalValue(isString ? text : JSON.stringify(text))
  return other.ok ? namesOf(key, other.canonical) : undefined
}

/** @param canonical what the identifier's value is compared by, by {@link canonicalValue} */
export const namesOf = (key: string, canonical: string): IdentifierNames => ({
  digest: identifierDigest(key, canonical),
  contact_id: key === CONTACT_ID_KEY && canonical.startsWith('s') ? canonical.slice(1) : undefined,
})

/** New identifiers have the text of some of other contacts, under another JSON type. */
export interface TypeMismatch {
  project_id: string
  key: string
  /** How many identifiers. */
  count: number
}
