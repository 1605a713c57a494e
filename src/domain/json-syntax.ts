import { ARRAY, BACKSLASH, COMMA, OBJECT, QUOTE } from './json-values.ts'

const [COLON, MINUS, PLUS, POINT, ARRAY_END, OBJECT_END] = [0x3a, 0x2d, 0x2b, 0x2e, 0x5d, 0x7d]
const ESCAPED = '"\\/bfnrt'
const FOUR_HEX_DIGITS = /[\dA-Fa-f]{4}/y
const LITERALS = ['true', 'false', 'null']

/**
 * Whether text is JSON (RFC 8259) as JSON.parse accepts it. It makes no values: JSON.parse takes up to two seconds and 1 GB for
 * 16 MiB of brackets, and meanwhile this process serves nobody.
 */
export function isJson(text: string): boolean {
  /** The brackets that close what is open, innermost last. */
  const closers: number[] = []
  /** Where a value begins. */
  let i = afterWhitespace(text, 0)
  for (;;) {
    const code = text.charCodeAt(i)
    if (code === ARRAY || code === OBJECT) {
      const closer = code === OBJECT ? OBJECT_END : ARRAY_END
      i = afterWhitespace(text, i + 1)
      if (text.charCodeAt(i) !== closer) {
        closers.push(closer)
        // Too few characters are left to close them all.
        if (closers.length > text.length - i) return false
        if (closer === OBJECT_END) i = afterName(text, i)
        continue
      }
      i += 1
    } else {
      i = afterScalar(text, i)
    }

    // A value has ended, and so have the arrays and objects that close behind it.
    i = afterWhitespace(text, i)
    while (text.charCodeAt(i) === closers.at(-1)) {
      closers.pop()
      i = afterWhitespace(text, i + 1)
    }
    if (closers.length === 0) return i === text.length
    if (text.charCodeAt(i) !== COMMA) return false
    i = afterWhitespace(text, i + 1)
    if (closers.at(-1) === OBJECT_END) i = afterName(text, i)
  }
}

/** A place behind the text, where nothing is. */
const behind = (text: string) => text.length + 1

// Each of these returns the place after what begins at i or, if that is not valid, the place behind the text.

function afterWhitespace(text: string, i: number): number {
  let end = i
  while (isWhitespace(text.charCodeAt(end))) end += 1
  return end
}

/** The name of a field, its colon, and the whitespace between them and the value. */
function afterName(text: string, i: number): number {
  const colon = afterWhitespace(text, afterString(text, i))
  return text.charCodeAt(colon) === COLON ? afterWhitespace(text, colon + 1) : behind(text)
}

function afterScalar(text: string, i: number): number {
  const code = text.charCodeAt(i)
  if (code === QUOTE) return afterString(text, i)
  if (code === MINUS || isDigit(code)) return afterNumber(text, i)
  const literal = LITERALS.find((known) => text.startsWith(known, i))
  return literal === undefined ? behind(text) : i + literal.length
}

function afterString(text: string, i: number): number {
  if (text.charCodeAt(i) !== QUOTE) return behind(text)
  let end = i + 1
  for (;;) {
    const code = text.charCodeAt(end)
    if (code === QUOTE) return end + 1
    if (code === BACKSLASH) end = afterEscape(text, end)
    else if (code >= 0x20) end += 1
    // A control character, or the end of the text.
    else return behind(text)
  }
}

function afterEscape(text: string, i: number): number {
  const escaped = text.charAt(i + 1)
  if (escaped !== 'u') return escaped !== '' && ESCAPED.includes(escaped) ? i + 2 : behind(text)
  FOUR_HEX_DIGITS.lastIndex = i + 2
  return FOUR_HEX_DIGITS.test(text) ? i + 6 : behind(text)
}

function afterNumber(text: string, i: number): number {
  let end = text.charCodeAt(i) === MINUS ? i + 1 : i
  end = text[end] === '0' ? end + 1 : afterDigits(text, end)
  if (text.charCodeAt(end) === POINT) end = afterDigits(text, end + 1)
  if (text[end] !== 'e' && text[end] !== 'E') return end
  const sign = text.charCodeAt(end + 1)
  return afterDigits(text, sign === PLUS || sign === MINUS ? end + 2 : end + 1)
}

/** One digit or more. */
function afterDigits(text: string, i: number): number {
  let end = i
  while (isDigit(text.charCodeAt(end))) end += 1
  return end > i ? end : behind(text)
}

const isDigit = (code: number) => code >= 0x30 && code <= 0x39
const isWhitespace = (code: number) => code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09
