/** JSON texts, some with slips of the pen, are checked without values; JSON.parse must accept the same ones. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { isJson } from '../../src/domain/json-syntax.ts'
import { runs, TEST_OPTIONS } from '../support/properties.ts'
import { parses } from './json-syntax.ts'

/** Characters are replaced by others, or lost. */
const slip = fc.record({
  at: fc.nat(),
  remove: fc.nat(2),
  insert: fc.oneof(
    { arbitrary: fc.constantFrom('', ...'{}[],:"\\-+.eE01 \nu'), weight: 4 },
    // Any other, lone surrogates, control characters and white space that JSON does not know among them.
    fc.nat(0xff_ff).map((unit) => String.fromCharCode(unit)),
    fc.constantFrom('\u0000', '\u001f', '\u007f', '\u00a0', '\u2028', '\ud800', '\udc00', '\ufeff'),
  ),
})

test('isJson is what JSON.parse accepts, also after a slip of the pen', TEST_OPTIONS, () => {
  fc.assert(
    fc.property(
      fc.json({ maxDepth: 4, stringUnit: 'binary' }),
      fc.constantFrom(undefined, 1, '\t'),
      fc.array(slip, { maxLength: 3 }),
      (json, indent, slips) => {
        let text = JSON.stringify(JSON.parse(json), null, indent)
        for (const { at, remove, insert } of slips) {
          const i = at % (text.length + 1)
          text = text.slice(0, i) + insert + text.slice(i + remove)
        }
        expect(isJson(text)).toBe(parses(text))
      },
    ),
    runs(1_000),
  )
})
