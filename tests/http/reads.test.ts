import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { expect, test, vi } from 'vitest'
import { Page } from '../../src/domain/cursor.ts'
import { rowsOf, serializeRead, startSending } from '../../src/http/reads.ts'
import { BodyStream } from '../../src/http/response-body.ts'

// How results become bodies; large.test.ts and whole-list.test.ts show the responses.

const MiB = 1024 * 1024

function exchange(page?: Page<unknown>) {
  const lease = { isExtended: true, send: vi.fn(), sent: vi.fn() }
  const request = { lease, routeOptions: {}, params: {}, originalUrl: '/' } as unknown as FastifyRequest
  if (page) rowsOf(request, page)
  const headers: Record<string, unknown> = {}
  const header = (name: string, value: unknown) => Object.assign(headers, { [name]: value })
  const reply = { statusCode: 200, raw: { destroyed: false }, header } as unknown as FastifyReply
  return { lease, headers, request, reply }
}

/** What a hook makes of a payload. */
function runHook(hook: typeof serializeRead, { request, reply }: ReturnType<typeof exchange>, payload: unknown) {
  return new Promise<unknown>((resolve, reject) => {
    const done = (error?: Error | null, result?: unknown) => (error ? reject(error) : resolve(result))
    hook.call({} as FastifyInstance, request, reply, payload, done)
  })
}

test('a page ends before it has more than 8 MiB, and a list without pages does not', async () => {
  const rows = Array<object>(9).fill({ text: 'x'.repeat(MiB) })
  const page = new Page(rows, undefined, (count) => ({ cursor: `after-${count}`, more: false }))
  const paged = exchange(page)
  expect(((await runHook(serializeRead, paged, rows)) as BodyStream).bytes).toBeLessThanOrEqual(8 * MiB)
  expect(paged.headers['next-cursor']).toBe('after-7')
  const body = (await runHook(serializeRead, exchange(), rows)) as BodyStream
  expect(body.bytes).toBe(JSON.stringify(rows).length)
})

test('only a result with a long text is serialized in parts, and not as a whole by its serializer', async () => {
  const long = { text: 'x'.repeat(128 * 1024 + 1) }
  const body = await runHook(serializeRead, exchange(), long)
  expect(body).toBeInstanceOf(BodyStream)
  expect(String(body)).toBe(JSON.stringify(long))
  const short = { text: 'x'.repeat(128 * 1024) }
  expect(await runHook(serializeRead, exchange(), short)).toBe(short)
})

test.each([
  ['a text', 'é', 2],
  ['bytes', Buffer.alloc(3), 3],
  ['nothing', null, 0],
])('what a client is to take of %s are its bytes', async (_, payload, bytes) => {
  const sending = exchange()
  expect(await runHook(startSending, sending, payload)).toBe(payload)
  expect(sending.lease.send.mock.calls).toEqual([[bytes]])
})
