import { expect, test } from 'vitest'
import { SerialQueue } from '../../src/recording/serial-queue.ts'

/** A task that notes when it begins and ends when told. */
function task(log: string[], name: string) {
  const { promise, resolve, reject } = Promise.withResolvers<string>()
  const run = () => {
    log.push(name)
    return promise
  }
  return { run, end: () => resolve(name), fail: () => reject(new Error(name)) }
}

test('tasks of one key run one after another, in order, also after one that failed', async () => {
  const queue = new SerialQueue(10)
  const log: string[] = []
  const [a, b, c] = [task(log, 'a'), task(log, 'b'), task(log, 'c')]
  const turns = [a, b, c].map(({ run }) => queue.run('key', run))
  c.end()
  b.fail()
  await Promise.resolve()
  expect(log).toEqual(['a'])
  a.end()
  expect(await Promise.allSettled(turns)).toMatchObject([{ value: 'a' }, { reason: { message: 'b' } }, { value: 'c' }])
  expect(log).toEqual(['a', 'b', 'c'])
})

test('tasks of different keys do not wait for each other', async () => {
  const queue = new SerialQueue(10)
  const log: string[] = []
  const [slow, fast] = [task(log, 'slow'), task(log, 'fast')]
  const first = queue.run('one', slow.run)
  fast.end()
  expect(await queue.run('another', fast.run)).toBe('fast')
  slow.end()
  expect(await first).toBe('slow')
})

test('a full queue takes no task, of any key, until one has settled', async () => {
  const queue = new SerialQueue(2)
  const log: string[] = []
  const [a, b, c, d] = [task(log, 'a'), task(log, 'b'), task(log, 'c'), task(log, 'd')]
  const turns = [queue.run('one', a.run), queue.run('one', b.run)]
  expect(queue.run('another', c.run)).toBeUndefined()
  a.fail()
  b.end()
  await Promise.allSettled(turns)
  d.end()
  expect(await queue.run('one', d.run)).toBe('d')
  expect(log).toEqual(['a', 'b', 'd'])
})
