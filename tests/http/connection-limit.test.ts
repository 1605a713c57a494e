import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { afterEach, expect, onTestFinished, test, vi } from 'vitest'
import { createTestApp } from '../support/app.ts'

afterEach(() => void vi.useRealTimers())

test('connections beyond the limit are closed, counted, and logged once a minute', async () => {
  vi.useFakeTimers({ toFake: ['performance'] })
  const lines: { level: number; msg: string }[] = []
  const stream = { write: (line: string) => void lines.push(JSON.parse(line)) }
  const api = await createTestApp({ config: { maxConnections: 2 }, twins: false, logger: { level: 'warn', stream } })
  onTestFinished(() => api.close())
  const { hostname, port } = new URL(await api.listen())
  const open = () => connect(Number(port), hostname)
  const accept = async (): Promise<Socket> => {
    const accepted = once(api.app.server, 'connection')
    const client = open()
    await accepted
    return client
  }
  const metric = async (name: string) => {
    const { body } = await api.app.inject('/metrics')
    return Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(body)?.[1])
  }
  const counts = async () => [
    await metric('flowtrail_client_connections'),
    await metric('flowtrail_connections_dropped_total'),
  ]
  const clients = [await accept(), await accept()]
  onTestFinished(() => {
    for (const client of clients) client.destroy()
  })
  expect(await counts()).toEqual([2, 0])

  const refuse = () =>
    once(
      open().on('error', () => {}),
      'close',
    )
  await refuse()
  await refuse()
  expect(await counts()).toEqual([2, 2])
  expect(lines).toMatchObject([{ level: 40, connections: 2, msg: expect.stringContaining('MAX_CONNECTIONS') }])
  vi.advanceTimersByTime(60_000)
  await refuse()
  expect(await counts()).toEqual([2, 3])
  expect(lines).toHaveLength(2)
})
