import { expect, it } from 'vitest'
import { alternate } from '../../../bench/sample.ts'
import { figure, median, spreadOf, withSpread } from '../../../bench/statistics.ts'

it.each([
  [[3], 3],
  [[9, 1, 5], 5],
  [[10, 9, 1, 2], 5.5],
  [[100, 20, 3], 20],
])('takes the median of %j', (values, expected) => {
  expect(median(values)).toBe(expected)
})

it('has no median of an empty list, and does not change the values', () => {
  expect(median([])).toBeNaN()
  const values = [3, 1, 2]
  median(values)
  expect(values).toEqual([3, 1, 2])
})

it('returns the median and the range of the rounds', () => {
  expect(spreadOf([4, 1, 2])).toEqual({ median: 2, least: 1, most: 4 })
})

it.each([
  [Number.NaN, '–'],
  [0, '0'],
  [0.0714, '0.071'],
  [0.5234, '0.523'],
  [6.125, '6.13'],
  [99.96, '100'],
  [1234.5, '1,235'],
])('writes %d as %s', (value, expected) => {
  expect(figure(value)).toBe(expected)
})

it('writes the range in brackets unless it is empty', () => {
  expect(withSpread(spreadOf([6, 7, 8]))).toBe('7.00 (6.00–8.00)')
  expect(withSpread(spreadOf([413]))).toBe('413')
})

it('runs all in each round, each round starting with another one', async () => {
  const runs: string[] = []
  const results = await alternate(['a', 'b', 'c'], 3, async (name) => runs.push(name))
  expect(runs.join('')).toBe('abcbcacab')
  expect(results).toEqual({ a: [1, 6, 8], b: [2, 4, 9], c: [3, 5, 7] })
})
