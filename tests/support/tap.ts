import { Readable } from 'node:stream'
import { BodyStream } from '../../src/http/response-body.ts'

/** Passes the parts of a body on, and tells what they were once all are read, unless they are longer. */
export async function* tapped(
  parts: AsyncIterable<Buffer>,
  tell: (text: string) => void,
  maxLength = Number.POSITIVE_INFINITY,
): AsyncGenerator<Buffer> {
  const read: Buffer[] = []
  let length = 0
  for await (const part of parts) {
    length += part.length
    if (length <= maxLength) read.push(part)
    yield part
  }
  if (length <= maxLength) tell(Buffer.concat(read).toString())
}

/** The payload of a response to send on, and tells its text: at once, or when a stream that is read meanwhile has ended. */
export function tapPayload(payload: unknown, tell: (text: string) => void, maxLength?: number): unknown {
  if (payload instanceof Readable && !(payload instanceof BodyStream)) {
    return Readable.from(tapped(payload, tell, maxLength), { objectMode: false })
  }
  tell(String(payload ?? ''))
  return payload
}
