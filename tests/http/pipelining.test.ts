import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import fastify from 'fastify'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { serveInTurn } from '../../src/http/pipelining.ts'

const app = fastify()
app.addHook('onRequest', serveInTurn)
/** The requests that are being handled, in the order in which they came; calling one sends its response. */
let handled: { n: string; respond: () => void }[] = []
let onHandled = () => {}
app.get('/:n', (request) => {
  const { n } = request.params as { n: string }
  return new Promise((resolve) => {
    handled.push({ n, respond: () => resolve(n) })
    onHandled()
  })
})

let port: number
beforeAll(async () => {
  port = Number(new URL(await app.listen({ port: 0, host: '127.0.0.1' })).port)
})
beforeEach(() => {
  handled = []
})
afterAll(() => app.close())

const get = (n: number, ...headers: string[]) => [`GET /${n} HTTP/1.1`, 'Host: x', ...headers, '', ''].join('\r\n')

/** Sends requests at once. */
function send(count: number): Socket {
  const socket = connect(port, '127.0.0.1')
  const last = get(count, 'Connection: close')
  socket.write(Array.from({ length: count - 1 }, (_, i) => get(i + 1)).join('') + last)
  return socket
}

/** The nth request that is handled, once it is. */
const nth = async (n: number) => {
  while (handled.length < n) {
    await new Promise<void>((resolve) => {
      onHandled = resolve
    })
  }
  return handled[n - 1] as (typeof handled)[number]
}

test('requests that are sent at once are handled one at a time, in order', async () => {
  const socket = send(3)
  const received = text(socket)
  for (const n of [1, 2, 3]) {
    const { respond } = await nth(n)
    expect(handled.map((one) => one.n)).toEqual(['1', '2', '3'].slice(0, n))
    respond()
  }
  expect([...(await received).matchAll(/\r\n\r\n(\d)/g)].map(([, body]) => body)).toEqual(['1', '2', '3'])
})

test('other connections do not wait', async () => {
  const [one, other] = [send(2), send(1)]
  await nth(2)
  expect(handled.map(({ n }) => n)).toEqual(['1', '1'])
  for (const socket of [one, other]) socket.destroy()
})

test('a hundred requests may wait, again and again', async () => {
  for (let round = 0; round < 2; round += 1) {
    handled = []
    const received = text(send(101))
    for (let n = 1; n <= 101; n += 1) (await nth(n)).respond()
    expect((await received).match(/HTTP\/1\.1 200/g)).toHaveLength(101)
  }
})

test('a client that sends more is disconnected', async () => {
  const socket = send(102)
  socket.resume()
  await once(socket, 'close')
  expect(handled.map(({ n }) => n)).toEqual(['1'])
})

test('only those that still wait count', async () => {
  const socket = connect(port, '127.0.0.1')
  let received = ''
  socket.on('data', (chunk) => {
    received += chunk
  })
  const write = (count: number) => socket.write(Array.from({ length: count }, (_, i) => get(i)).join(''))
  const respond = async (from: number, to: number) => {
    for (let n = from; n <= to; n += 1) (await nth(n)).respond()
  }
  write(101)
  await respond(1, 51)
  await nth(52)
  // 49 wait, and 51 more may.
  write(51)
  await respond(52, 152)
  while (received.match(/HTTP\/1\.1 200/g)?.length !== 152) await once(socket, 'data')

  write(101)
  await respond(153, 203)
  await nth(204)
  write(52)
  await once(socket, 'close')
  expect(handled).toHaveLength(204)
})
