import { expect, test } from 'vitest'
import { MERGE_RULES } from '../../src/transfer/merge-rules.ts'
import { FIELDS, RECORD_TYPES } from '../../src/transfer/records.ts'

// A field without a rule would be read and then never stored. Identifiers are stored as records of their own.
test.each(RECORD_TYPES)('every field of a %s has exactly one merge rule', (type) => {
  const { key, immutable, firstWins, lastWins } = MERGE_RULES[type]
  const columns = Object.keys(FIELDS[type]).filter((name) => name !== 'identifiers')
  expect([...key, ...immutable, ...firstWins, ...lastWins].sort()).toEqual(columns.sort())
})
