import { expect, test } from 'vitest'
import { customEventPropsIssue } from '../../src/domain/event.ts'

test.each(['5', '"a"', 'true', 'null', '[]', '[{}]', '', '{', '{"a":1,}'])(
  'the props %s are no JSON object',
  (text) => {
    expect(customEventPropsIssue(text)).toBe('must be the text of a JSON object, for example "{\\"plan\\":\\"pro\\"}"')
  },
)

const nested = (levels: number) => '{"a":'.repeat(levels) + 1 + '}'.repeat(levels)
const ofBytes = (count: number) => `{"a":"${'é'.repeat((count - 8) / 2)}"}`

test.each([
  ['{}', undefined],
  [' {"a":null}\n', undefined],
  [nested(64), undefined],
  [nested(65), 'must be nested at most 64 levels deep'],
  [ofBytes(32_768), undefined],
  [ofBytes(32_770), 'must be at most 32768 bytes of UTF-8'],
])('the issue with the props %.20s… is as documented', (text, issue) => {
  expect(customEventPropsIssue(text)).toBe(issue)
})
