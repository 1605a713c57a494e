/** Spellings of identifier values are made from what they mean; the service must tell the same from different ones. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { canonicalValue } from '../../src/domain/identifier.ts'
import { runs, TEST_OPTIONS } from '../support/properties.ts'

const space = fc.array(fc.constantFrom(' ', '\t', '\n', '\r'), { maxLength: 2 }).map((some) => some.join(''))

/** A number, digits × 10^exponent, written with its point anywhere and zeros on either side. */
const number = fc
  .record({
    isNegative: fc.boolean(),
    digits: fc.oneof(fc.bigInt(0n, 30n), fc.bigInt(0n, 10n ** 25n)),
    exponent: fc.oneof(fc.integer({ min: -3, max: 3 }), fc.integer({ min: -1e9, max: 1e9 })),
    leading: fc.nat(3),
    trailing: fc.nat(3),
    point: fc.nat(6),
    e: fc.constantFrom('e', 'E'),
    plus: fc.constantFrom('', '+'),
    pad: fc.constantFrom('', '0', '00'),
  })
  .map(({ isNegative, digits, exponent, leading, trailing, point, e, plus, pad }) => {
    // The zeros before the digits all come to stand behind the point, but for one.
    const text = `${digits}${'0'.repeat(trailing)}`
    const padded = text.padStart(point + 1, '0')
    const whole = padded.slice(0, padded.length - point).replace(/^0+(?=\d)/, '')
    const fraction = padded.slice(padded.length - point)
    const scale = exponent - trailing + point
    const fractionPart = fraction === '' ? '' : `.${fraction}${'0'.repeat(leading)}`
    const scalePart = scale === 0 && pad === '' ? '' : `${e}${scale < 0 ? '-' : plus}${pad}${Math.abs(scale)}`
    return { text: `${isNegative ? '-' : ''}${whole}${fractionPart}${scalePart}`, isNegative, digits, exponent }
  })

/** Whether two numbers are equal, as integers times powers of ten. */
function areEqual(a: Numeric, b: Numeric): boolean {
  if (a.digits === 0n || b.digits === 0n) return a.digits === b.digits
  if (a.isNegative !== b.isNegative) return false
  const [low, high] = a.exponent < b.exponent ? [a, b] : [b, a]
  const shift = high.exponent - low.exponent
  // No number here has more digits than this.
  return shift <= 40 && high.digits * 10n ** BigInt(shift) === low.digits
}
type Numeric = { isNegative: boolean; digits: bigint; exponent: number }

/** A string, each of its UTF-16 units written as it is or as one of its escapes. */
const string = fc
  .array(
    fc.record({
      unit: fc.constantFrom('a', 'A', '1', ' ', '"', '\\', '/', '\n', 'é', 'e\u0301', '🦉', '\u2028', 's', 'n1e0'),
      spelling: fc.constantFrom('none', 'short', 'unicode', 'UNICODE'),
    }),
    { minLength: 1, maxLength: 4 },
  )
  .map((parts) => {
    const short: Record<string, string> = { '"': '\\"', '\\': '\\\\', '/': '\\/', '\n': '\\n' }
    const text = parts.map(({ unit, spelling }) => {
      const mustEscape = unit !== '/' && short[unit] !== undefined
      if (spelling === 'short' || (spelling === 'none' && mustEscape)) return short[unit] ?? unit
      if (spelling === 'none') return unit
      const hex = unit.split('').map((one) => one.charCodeAt(0).toString(16).padStart(4, '0'))
      return hex.map((one) => `\\u${spelling === 'UNICODE' ? one.toUpperCase() : one}`).join('')
    })
    return { text: `"${text.join('')}"`, value: parts.map(({ unit }) => unit).join('') }
  })

const canonical = (text: string) => {
  const parsed = canonicalValue(text)
  if (!parsed.ok) throw new Error(`${text}: ${parsed.issue}`)
  return parsed.canonical
}

test('numbers are the same exactly if sign, digits and exponent are, however spelt', TEST_OPTIONS, () => {
  fc.assert(
    fc.property(number, number, space, space, (a, b, before, after) => {
      expect(canonical(`${before}${a.text}${after}`) === canonical(b.text)).toBe(areEqual(a, b))
    }),
    runs(3_000),
  )
})

test('two spellings of one number are the same', TEST_OPTIONS, () => {
  fc.assert(
    fc.property(number, fc.nat(5), space, ({ text, digits, exponent, isNegative }, zeros, before) => {
      const again = `${isNegative ? '-' : ''}${digits * 10n ** BigInt(zeros)}e${exponent - zeros}`
      expect(canonical(`${before}${again}`)).toBe(canonical(text))
    }),
    runs(1_000),
  )
})

test('strings are the same exactly if their unescaped text is', TEST_OPTIONS, () => {
  fc.assert(
    fc.property(string, string, space, space, (a, b, before, after) => {
      expect(canonical(`${before}${a.text}${after}`) === canonical(b.text)).toBe(a.value === b.value)
    }),
    runs(2_000),
  )
})

test('values of different types are never the same', TEST_OPTIONS, () => {
  const boolean = fc.constantFrom('true', 'false', ' true ')
  fc.assert(
    fc.property(number, string, boolean, (number, string, boolean) => {
      expect(new Set([number.text, string.text, boolean, JSON.stringify(number.text)].map(canonical)).size).toBe(
        string.value === number.text ? 3 : 4,
      )
    }),
    runs(1_000),
  )
})
