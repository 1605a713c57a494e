import { expect, test } from 'vitest'
import {
  entryNotFound,
  internalError,
  invalidRequest,
  moduleDoesNotExist,
  moduleVersionDoesNotExist,
  serviceUnavailable,
} from '../../src/domain/errors.ts'

const issues = (count: number) =>
  Array.from({ length: count }, (_, i) => ({ pointer: `/body/${i}`, message: 'is wrong' }))

test.each([
  [1, 'The request is not valid: /body/0 is wrong'],
  [2, 'The request is not valid: /body/0 is wrong; 1 more issue, see details'],
  [3, 'The request is not valid: /body/0 is wrong; 2 more issues, see details'],
  [20, 'The request is not valid: /body/0 is wrong; 19 more issues, see details'],
  [21, 'The request is not valid: /body/0 is wrong; 20 more issues, see details'],
])('invalidRequest of %i issues counts them all and lists at most 20', (count, message) => {
  const { error } = invalidRequest(issues(count)).envelope(undefined)
  expect(error).toEqual({ code: 'invalid_request', message, details: issues(Math.min(count, 20)) })
})

test.each([
  [moduleDoesNotExist('a"b'), 404, 'The project has no module "a\\"b".', { moduleId: 'a"b' }],
  [
    moduleVersionDoesNotExist('a"b', 3),
    404,
    'The module "a\\"b" has no version 3.',
    { moduleId: 'a"b', versionNumber: 3 },
  ],
  [entryNotFound('a"b'), 404, 'The entry "a\\"b" does not exist or may not be accessed.', { entryId: 'a"b' }],
  [internalError(), 500, "Internal error. It is logged under this request's X-Request-Id.", {}],
  [serviceUnavailable(), 503, 'Service unavailable; retry after Retry-After seconds.', {}],
])('%s', (error, status, message, resource) => {
  expect(error.status).toBe(status)
  expect(error.envelope('demo')).toEqual({ error: { code: error.errorCode, message }, projectId: 'demo', ...resource })
})
