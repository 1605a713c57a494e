import type { Handler } from '../http/operations.ts'
import { parseCustomEvent } from '../recording/custom-event.ts'
import type { Context } from './context.ts'

export const recordCustomEvent: Handler<'recordCustomEvent', Context> = ({ path, headers, body }, { recorder }) =>
  recorder.record(path.projectId, parseCustomEvent(body, new Date()), headers['Idempotency-Key'])
