import { expect, test } from 'vitest'
import { callerSpan } from '../../src/http/trace-context.ts'

test('the flags of a traceparent are hexadecimal', () => {
  const [traceId, spanId] = ['4bf92f3577b34da6a3ce929d0e0e4736', '00f067aa0ba902b7']
  expect(callerSpan({ traceparent: `00-${traceId}-${spanId}-1b` })).toEqual({ traceId, spanId, traceFlags: 27 })
})

test.each([
  ['00', '', true],
  ['00', '-', false],
  ['00', '-more', false],
  ['01', '-more', true],
  ['01', 'more', false],
  ['ff', '', false],
])('a traceparent of version %s that ends in "%s" is well-formed: %s', (version, end, isWellFormed) => {
  const traceparent = `${version}-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01${end}`
  expect(callerSpan({ traceparent }) !== undefined).toBe(isWellFormed)
})
