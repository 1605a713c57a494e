import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { EventEmitter } from 'node:events'
import type { ServerResponse } from 'node:http'
import { setImmediate } from 'node:timers/promises'
import fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { type Lease, READ_WAIT_CHANNEL, ReadGate, type ReadGateOptions } from '../../src/http/read-gate.ts'

/** A response, as far as the gate knows it. */
class FakeResponse extends EventEmitter {
  destroyed = false
  destroy(): void {
    if (this.destroyed) return
    this.destroyed = true
    this.emit('close')
  }
}

const OPTIONS: ReadGateOptions = {
  reads: { all: 4, project: 2 },
  reading_bytes: { all: 100, project: 50 },
  unsent_bytes: { all: 200, project: 100 },
  unsentOfWrites_bytes: { all: 200, project: 100 },
  waiting: { all: 4, project: 2 },
  maxWait_ms: 5_000,
  maxStall_ms: 30_000,
  maxStallUnderPressure_ms: 2_000,
}

let gate: ReadGate
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'performance'] })
  gate = new ReadGate(OPTIONS)
})
afterEach(() => {
  gate.close()
  vi.useRealTimers()
})

interface Read {
  project: string
  response: FakeResponse
  admission: Promise<Lease>
  lease?: Lease
  /** The code of the error that refused it. */
  error?: string
}

function read(project: string, bytes = 1): Read {
  const response = new FakeResponse()
  const one: Read = {
    project,
    response,
    admission: Promise.resolve(gate.admit(project, bytes, response as unknown as ServerResponse)),
  }
  one.admission.then(
    (lease) => {
      one.lease = lease
    },
    (error) => {
      one.error = error.errorCode
    },
  )
  return one
}

/** A write with a large response, which is admitted at once. */
const write = (project: string, bytes: number) => {
  const response = new FakeResponse()
  return { response, lease: gate.leaseResponse(project, bytes, response as unknown as ServerResponse) }
}

const isRefused = (project: string, bytes: number) => {
  try {
    write(project, bytes)
    return false
  } catch (error) {
    return (error as { errorCode: string }).errorCode === 'service_unavailable'
  }
}

const reads = (count: number, project: string, bytes?: number) =>
  Array.from({ length: count }, () => read(project, bytes))
const lease = async (one: Read) => one.admission
/** Which of the reads were admitted, and which refused. */
async function states(all: Read[]): Promise<string[]> {
  await setImmediate()
  return all.map((one) => (one.lease ? 'admitted' : (one.error ?? 'waits')))
}
/** Ends a read, with its response. */
async function end(one: Read): Promise<void> {
  ;(await lease(one)).send(0)
  one.response.destroy()
}
const IDLE = { reads: 0, waiting: 0, unsent_bytes: 0 }

test('a project has half of the reads, and another project the other half', async () => {
  const a = reads(3, 'a')
  const b = reads(2, 'b')
  expect(await states([...a, ...b])).toEqual(['admitted', 'admitted', 'waits', 'admitted', 'admitted'])
  await end(a[0] as Read)
  expect(await states(a)).toEqual(['admitted', 'admitted', 'admitted'])
  expect(gate.counts).toEqual({ admitted: 5, refused: 0, cancelled: 0, cut: 0 })
})

test('a project has half of the bytes, however much one read asks for', async () => {
  const a = [read('a', 1_000), read('a', 1)]
  const b = [read('b', 30), read('b', 20), read('b', 1)]
  expect(await states([...a, ...b])).toEqual(['admitted', 'waits', 'admitted', 'admitted', 'waits'])
  await end(a[0] as Read)
  await end(b[1] as Read)
  expect(await states([...a, ...b])).toEqual(['admitted', 'admitted', 'admitted', 'admitted', 'admitted'])
})

test('the projects that wait take turns, and each its reads in order', async () => {
  const first = [...reads(2, 'x'), ...reads(2, 'y')]
  const waiting = [read('a'), read('a'), read('b'), read('b')]
  const order: number[] = []
  for (const [i, one] of waiting.entries()) one.admission.then(() => order.push(i))
  for (const one of first) {
    await end(one)
    await setImmediate()
  }
  expect(order).toEqual([0, 2, 1, 3])
})

test('a read that does not fit does not keep back those of other projects', async () => {
  const running = [read('a', 50), read('b', 30)]
  const large = [read('a', 10), read('b', 40)]
  const small = read('c', 5)
  expect(await states([...running, ...large, small])).toEqual(['admitted', 'admitted', 'waits', 'waits', 'admitted'])
})

test('a read is refused when too many of its project wait, or of all', async () => {
  const [a, b] = [reads(5, 'a'), reads(5, 'b')]
  expect(await states(a)).toEqual(['admitted', 'admitted', 'waits', 'waits', 'service_unavailable'])
  expect(await states(b)).toEqual(['admitted', 'admitted', 'waits', 'waits', 'service_unavailable'])
  expect(await states(reads(1, 'c'))).toEqual(['service_unavailable'])
  expect(gate.counts.refused).toBe(3)
})

test('a read that has waited too long is refused, and those behind it go on', async () => {
  const all = reads(4, 'a')
  await vi.advanceTimersByTimeAsync(4_999)
  expect(await states(all)).toEqual(['admitted', 'admitted', 'waits', 'waits'])
  await vi.advanceTimersByTimeAsync(1)
  expect(await states(all)).toEqual(['admitted', 'admitted', 'service_unavailable', 'service_unavailable'])
  expect(gate.usage.waiting).toBe(0)
})

test('a read whose client goes while it waits leaves the queue', async () => {
  const all = reads(4, 'a')
  all[2]?.response.destroy()
  expect(await states(all)).toEqual(['admitted', 'admitted', 'service_unavailable', 'waits'])
  expect(gate.counts).toMatchObject({ cancelled: 1, refused: 0 })
  await end(all[0] as Read)
  expect(await states(all.slice(3))).toEqual(['admitted'])
})

test('a read whose client goes makes room for a smaller one behind it', async () => {
  const all = [read('a', 30), read('a', 40), read('a', 10)]
  all[1]?.response.destroy()
  expect(await states(all)).toEqual(['admitted', 'service_unavailable', 'admitted'])
})

test('a read whose client is gone already is not admitted', async () => {
  const response = new FakeResponse()
  response.destroy()
  const admission = async () => gate.admit('a', 1, response as unknown as ServerResponse)
  await expect(admission).rejects.toMatchObject({ errorCode: 'service_unavailable' })
  expect(gate.counts.cancelled).toBe(1)
  expect(gate.usage).toEqual(IDLE)
})

test('a read goes on when its client goes, and keeps its place until it is over', async () => {
  const [one, other] = [read('a', 50), read('a', 50)] as [Read, Read]
  const admitted = await lease(one)
  one.response.destroy()
  expect(await states([other])).toEqual(['waits'])
  admitted.send(70)
  expect(await states([other])).toEqual(['admitted'])
  expect(gate.usage.unsent_bytes).toBe(0)
})

describe('a lease that is extended', () => {
  test('waits until the bytes are free, without those that it had', async () => {
    const [one, other] = [read('a', 10), read('a', 20)] as [Read, Read]
    const extended = (await lease(one)).extend(50)
    const third = read('a', 30)
    expect(await states([third])).toEqual(['waits'])
    await end(other)
    await extended
    expect(await states([third])).toEqual(['waits'])
    await end(one)
    expect(await states([third])).toEqual(['admitted'])
  })

  test('is refused when the client is gone', async () => {
    const one = read('a')
    const admitted = await lease(one)
    one.response.destroy()
    await expect(admitted.extend(1)).rejects.toThrow()
    admitted.send(0)
    expect(gate.usage).toEqual(IDLE)
  })

  test('is refused when it has waited too long, and then uses nothing', async () => {
    const [one, other] = [read('a', 30), read('a', 10)] as [Read, Read]
    await lease(one)
    const refused = expect((await lease(other)).extend(50)).rejects.toThrow()
    await vi.advanceTimersByTimeAsync(5_000)
    await refused
    await end(one)
    expect(gate.usage).toEqual(IDLE)
  })
})

describe('bodies that are not sent', () => {
  test('keep back the project whose they are, and no other', async () => {
    const one = read('a', 50)
    ;(await lease(one)).send(90)
    const [own, other] = [read('a', 20), read('b', 20)]
    expect(await states([own, other])).toEqual(['waits', 'admitted'])
    one.lease?.sent(10)
    expect(await states([own])).toEqual(['admitted'])
    expect(gate.usage.unsent_bytes).toBe(80)
  })

  test('are counted until the response ends', async () => {
    const one = read('a')
    ;(await lease(one)).send(90)
    one.lease?.sent(30)
    one.response.destroy()
    one.lease?.sent(60)
    expect(gate.usage).toEqual(IDLE)
  })

  test('are dropped with their connection when the client takes nothing for 30 seconds', async () => {
    const [stalled, slow] = [read('a'), read('a')] as [Read, Read]
    for (const one of [stalled, slow]) (await lease(one)).send(40)
    await vi.advanceTimersByTimeAsync(29_000)
    slow.lease?.sent(1)
    await vi.advanceTimersByTimeAsync(900)
    expect(stalled.response.destroyed).toBe(false)
    await vi.advanceTimersByTimeAsync(700)
    expect([stalled, slow].map(({ response }) => response.destroyed)).toEqual([true, false])
    expect(gate.counts.cut).toBe(1)
    expect(gate.usage.unsent_bytes).toBe(39)
  })

  test('are dropped for their last byte, and not once all is taken', async () => {
    const [begun, taken] = [read('a'), read('a')] as [Read, Read]
    for (const one of [begun, taken]) (await lease(one)).send(40)
    begun.lease?.sent(39)
    taken.lease?.sent(40)
    await vi.advanceTimersByTimeAsync(30_000)
    expect([begun, taken].map(({ response }) => response.destroyed)).toEqual([true, false])
    expect(gate.counts.cut).toBe(1)
  })

  test('of other projects are not dropped sooner because one has used up its share', async () => {
    const [own, foreign] = [read('a'), read('b')] as [Read, Read]
    for (const [i, one] of [own, foreign].entries()) (await lease(one)).send([90, 40][i] as number)
    read('a', 50)
    await vi.advanceTimersByTimeAsync(2_500)
    expect([own, foreign].map(({ response }) => response.destroyed)).toEqual([true, false])
  })

  test('are not dropped sooner while a read of their project waits for anything else', async () => {
    const stalled = read('a')
    ;(await lease(stalled)).send(40)
    expect(await states(reads(3, 'a'))).toEqual(['admitted', 'admitted', 'waits'])
    await vi.advanceTimersByTimeAsync(4_000)
    expect(stalled.response.destroyed).toBe(false)
  })

  test('are dropped after 2 seconds when others wait for their memory', async () => {
    const stalled = [read('a'), read('b')]
    for (const one of stalled) (await lease(one)).send(90)
    await vi.advanceTimersByTimeAsync(10_000)
    expect(stalled.map(({ response }) => response.destroyed)).toEqual([false, false])
    // Others may wait for something else meanwhile.
    expect(await states(reads(3, 'd'))).toEqual(['admitted', 'admitted', 'waits'])
    const waiting = read('c', 50)
    expect(await states([waiting])).toEqual(['waits'])
    await vi.advanceTimersByTimeAsync(500)
    expect(await states([waiting])).toEqual(['admitted'])
    expect(gate.counts.cut).toBe(2)
  })
})

test('a client that goes cancels what its read waits for', async () => {
  const cancel = vi.fn()
  const one = read('a')
  const ended = (await lease(one)).pause({ ended: Promise.resolve('nothing'), cancel })
  expect(cancel).not.toHaveBeenCalled()
  one.response.destroy()
  expect(cancel).toHaveBeenCalledOnce()
  expect(await ended).toBe('nothing')
  expect(gate.usage).toEqual(IDLE)
})

test('whoever subscribes gets how long each read has waited, admitted or not', async () => {
  const waits: unknown[] = []
  const onWait = (wait: unknown) => void waits.push(wait)
  subscribe(READ_WAIT_CHANNEL, onWait)
  onTestFinished(() => void unsubscribe(READ_WAIT_CHANNEL, onWait))
  await vi.advanceTimersByTimeAsync(300)
  const [first] = reads(2, 'a')
  const [admitted, refused] = reads(2, 'a')
  await vi.advanceTimersByTimeAsync(1_000)
  expect(await states([admitted as Read, refused as Read])).toEqual(['waits', 'waits'])
  expect(waits).toEqual([])
  first?.response.destroy()
  ;(await lease(first as Read)).send(0)
  expect(await states([admitted as Read])).toEqual(['admitted'])
  await vi.advanceTimersByTimeAsync(5_000)
  expect(await states([refused as Read])).toEqual(['service_unavailable'])
  expect(waits).toEqual([{ duration_ms: 1_000 }, { duration_ms: 5_000 }])
})

test('a row that may be larger than a string is not read', async () => {
  const one = await gate.admit('a', 1, new FakeResponse() as unknown as ServerResponse)
  await expect(one.extend(2 ** 28 + 1)).rejects.toThrow('a row of 268435457 bytes is too large to be read')
  await one.extend(2 ** 28)
})

describe('writes with large responses', () => {
  test('keep their memory from their admission until their responses end', () => {
    const { response, lease } = write('a', 60)
    expect(gate.usage).toEqual({ ...IDLE, unsent_bytes: 60 })
    lease.send(90)
    expect(gate.usage).toEqual({ ...IDLE, unsent_bytes: 90 })
    response.destroy()
    expect(gate.usage).toEqual(IDLE)
  })

  test('keep none for a client that is gone before', () => {
    const response = new FakeResponse()
    response.destroy()
    gate.leaseResponse('a', 60, response as unknown as ServerResponse).send(90)
    expect(gate.usage).toEqual(IDLE)
  })

  test('are refused while the clients of their project, or all, have too much to take', () => {
    write('a', 90).lease.send(90)
    expect([isRefused('a', 11), isRefused('a', 10), isRefused('b', 90)]).toEqual([true, false, false])
    expect([isRefused('c', 11), isRefused('c', 10)]).toEqual([true, false])
  })

  test('are not disconnected before there is something to take', async () => {
    const { response, lease } = write('a', 10)
    await vi.advanceTimersByTimeAsync(60_000)
    lease.send(10)
    await vi.advanceTimersByTimeAsync(29_000)
    expect(response.destroyed).toBe(false)
    await vi.advanceTimersByTimeAsync(1_500)
    expect(response.destroyed).toBe(true)
  })

  test('have memory of their own: they need none of what readers leave, nor leave readers less', async () => {
    const readers = [read('a'), read('a'), read('b'), read('b')]
    for (const one of readers) (await lease(one)).send(50)
    expect(isRefused('a', 100)).toBe(false)
    expect(gate.usage).toEqual({ ...IDLE, unsent_bytes: 300 })
    for (const one of readers) await end(one)
    expect(gate.usage).toEqual({ ...IDLE, unsent_bytes: 100 })
    expect(await states([read('a', 50)])).toEqual(['admitted'])
  })

  test('and their refusal disconnects no reader sooner, nor does a read that waits one of their clients', async () => {
    const readers = [read('a'), read('b')]
    for (const one of readers) (await lease(one)).send(100)
    const writers = [write('a', 100), write('b', 99)]
    for (const [i, { lease }] of writers.entries()) lease.send([100, 99][i] as number)
    // Both lack room: the write of its own kind, and the read of its own.
    expect(isRefused('c', 2)).toBe(true)
    await vi.advanceTimersByTimeAsync(2_500)
    expect(readers.map(({ response }) => response.destroyed)).toEqual([false, false])
    expect(writers.map(({ response }) => response.destroyed)).toEqual([true, true])
    const later = [write('a', 90), write('b', 90)]
    for (const { lease } of later) lease.send(90)
    await vi.advanceTimersByTimeAsync(5_000)
    const waiting = read('c', 50)
    expect(await states([waiting])).toEqual(['waits'])
    await vi.advanceTimersByTimeAsync(2_500)
    expect(readers.map(({ response }) => response.destroyed)).toEqual([true, true])
    expect(later.map(({ response }) => response.destroyed)).toEqual([false, false])
  })

  test('have stalled clients of their own project disconnected sooner when its share is used up', async () => {
    const [own, foreign] = [write('a', 90), write('b', 40)]
    for (const [i, { lease }] of [own, foreign].entries()) lease.send([90, 40][i] as number)
    expect(isRefused('a', 50)).toBe(true)
    await vi.advanceTimersByTimeAsync(2_500)
    expect([own, foreign].map(({ response }) => response.destroyed)).toEqual([true, false])
  })

  test('have all stalled clients disconnected sooner when there is no room, and only as long as they may come again', async () => {
    await vi.advanceTimersByTimeAsync(4_000)
    const stalled = [write('a', 90), write('b', 90)]
    for (const { lease } of stalled) lease.send(90)
    expect(isRefused('c', 50)).toBe(true)
    await vi.advanceTimersByTimeAsync(2_500)
    expect(stalled.map(({ response }) => response.destroyed)).toEqual([true, true])
    await vi.advanceTimersByTimeAsync(4_000)
    const later = [write('a', 90), write('b', 90)]
    for (const { lease } of later) lease.send(90)
    await vi.advanceTimersByTimeAsync(10_000)
    expect(later.map(({ response }) => response.destroyed)).toEqual([false, false])
  })
})

test('a read that began, found something large and begins again is admitted at once', async () => {
  const one = gate.lease('a', new FakeResponse() as unknown as ServerResponse)
  await one.begin(10)
  await one.extend(50)
  expect(one.isExtended).toBe(true)
  await one.begin(20)
  expect(one.isExtended).toBe(false)
  expect(gate.usage).toEqual({ ...IDLE, reads: 1 })
})

test('a list that waits to read more is not disconnected for what it waits for itself', async () => {
  const [one, other] = [read('a'), read('b')]
  const list = await lease(one)
  list.send(60)
  ;(await lease(other)).send(100)
  const [first, second] = reads(2, 'a')
  const next = list.begin(1)
  // Since it waits for memory, clients have two seconds.
  const waiting = read('c', 50)
  expect(await states([waiting])).toEqual(['waits'])
  await vi.advanceTimersByTimeAsync(4_000)
  expect([one.response.destroyed, other.response.destroyed]).toEqual([false, true])
  await end(first as Read)
  await next
  list.send(60)
  for (const each of [second, waiting]) await end(each as Read)
  // Now its client is what it waits for.
  await vi.advanceTimersByTimeAsync(30_000)
  expect(one.response.destroyed).toBe(true)
  expect(gate.usage).toEqual(IDLE)
})

test('a read that follows a feed waits without being counted, and uses nothing while it pauses', async () => {
  const others = reads(2, 'a')
  await states(others)
  const one = gate.lease('a', new FakeResponse() as unknown as ServerResponse)
  let hasBegun = false
  const begun = one.begin(10).then(() => {
    hasBegun = true
  })
  await setImmediate()
  expect([hasBegun, gate.usage.waiting]).toEqual([false, 0])
  await end(others[0] as Read)
  await begun
  expect(gate.usage.reads).toBe(2)
  const { promise, resolve } = Promise.withResolvers<string>()
  const paused = one.pause({ ended: promise, cancel: () => {} })
  expect(gate.usage.reads).toBe(1)
  resolve('an event')
  expect(await paused).toBe('an event')
})

describe('large reads', () => {
  const KiB = 1024
  const LARGE = {
    ...OPTIONS,
    reads: { all: 20, project: 10 },
    reading_bytes: { all: 2_000 * KiB, project: 1_000 * KiB },
  }
  beforeEach(() => {
    gate.close()
    gate = new ReadGate({ ...LARGE, unsent_bytes: { all: 9_000 * KiB, project: 4_500 * KiB } })
  })

  test('are not starved by those of other projects, which fill the room between them', async () => {
    const [b, c] = [read('b', 700 * KiB), read('c', 700 * KiB)] as [Read, Read]
    const large = read('a', 1_000 * KiB)
    const others = [read('b', 600 * KiB), read('d', 600 * KiB)]
    expect(await states([b, c, large, ...others])).toEqual(['admitted', 'admitted', 'waits', 'waits', 'waits'])
    await end(b)
    expect(await states([large, ...others])).toEqual(['admitted', 'waits', 'waits'])
  })

  /** Room for two large reads, and 600 KiB beside them. */
  const openWithReserve = () => {
    gate.close()
    gate = new ReadGate({ ...LARGE, reading_bytes: { all: 2_600 * KiB, project: 1_000 * KiB } })
  }

  test('let small ones of other projects pass', async () => {
    openWithReserve()
    for (const project of ['b', 'c']) read(project, 900 * KiB)
    const all = [read('a', 1_000 * KiB), read('d', 512 * KiB + 1), read('e', 512 * KiB)]
    expect(await states(all)).toEqual(['waits', 'waits', 'admitted'])
  })

  test('get room however many small ones of other projects come one after another', async () => {
    openWithReserve()
    const small = [...reads(4, 'b', 250 * KiB), ...reads(4, 'c', 250 * KiB)]
    const large = read('a', 1_000 * KiB)
    for (const one of small) {
      expect(await states([large])).toEqual([one === small[0] || one === small[1] ? 'waits' : 'admitted'])
      read(one.project, 250 * KiB)
      await end(one)
    }
  })

  test('let small ones pass up to what two large ones leave free, and no byte more', async () => {
    openWithReserve()
    for (const project of ['b', 'c']) read(project, 900 * KiB)
    const large = read('a', 1_000 * KiB)
    const [first, ...others] = [read('d', 512 * KiB), read('e', 88 * KiB), read('f', 1)] as [Read, ...Read[]]
    expect(await states([large, first, ...others])).toEqual(['waits', 'admitted', 'admitted', 'waits'])
    await end(first)
    const later = [read('g', 512 * KiB - 1), read('h', 1)]
    expect(await states([large, ...others, ...later])).toEqual(['waits', 'admitted', 'admitted', 'admitted', 'waits'])
  })

  test('that wait are few: small ones pass any other small one', async () => {
    openWithReserve()
    for (const project of ['b', 'c']) read(project, 900 * KiB)
    const all = [read('d', 500 * KiB), read('a', 512 * KiB), read('e', 150 * KiB)]
    expect(await states(all)).toEqual(['admitted', 'waits', 'admitted'])
  })

  test('let small ones pass that wait for room behind them', async () => {
    openWithReserve()
    const [, , other] = [read('b', 900 * KiB), read('c', 900 * KiB), read('d', 800 * KiB)]
    const all = [read('a', 1_000 * KiB), read('e', 512 * KiB + 1), read('f', 512 * KiB)]
    expect(await states(all)).toEqual(['waits', 'waits', 'waits'])
    await end(other as Read)
    expect(await states(all)).toEqual(['waits', 'waits', 'admitted'])
  })

  test('pass those that wait for the share of their project, and none that waits for room', async () => {
    read('a', 1_000 * KiB)
    const [share, large] = [read('a', 600 * KiB), read('b', 600 * KiB)]
    expect(await states([share, large])).toEqual(['waits', 'admitted'])
    await end(large)
    const small = read('c', 400 * KiB)
    const [room, other] = [read('d', 700 * KiB), read('e', 600 * KiB)]
    expect(await states([small, room, other])).toEqual(['admitted', 'waits', 'waits'])
    await end(small)
    expect(await states([share, room, other])).toEqual(['waits', 'admitted', 'waits'])
  })

  test('that were admitted before come before the others of their project, and are not refused', async () => {
    const [one, other] = [read('a', 900 * KiB), read('a', 100 * KiB)] as [Read, Read]
    const waiting = reads(3, 'a', 10 * KiB)
    expect(await states(waiting)).toEqual(['waits', 'waits', 'service_unavailable'])
    const extended = (await lease(other)).extend(950 * KiB)
    expect(await states(waiting.slice(0, 2))).toEqual(['waits', 'waits'])
    await end(one)
    await extended
    expect(await states(waiting.slice(0, 2))).toEqual(['admitted', 'admitted'])
  })

  test('use nothing when their request has failed while they waited for more', async () => {
    const [one, other] = [read('a', 900 * KiB), read('a', 100 * KiB)] as [Read, Read]
    const admitted = await lease(other)
    const extended = admitted.extend(950 * KiB)
    admitted.send(10)
    await end(one)
    await extended
    expect(gate.usage).toMatchObject({ reads: 0, waiting: 0 })
    expect(await states([read('a', 1_000 * KiB)])).toEqual(['admitted'])
  })
})

describe('by default', () => {
  const MiB = 1024 * 1024
  beforeEach(() => {
    gate.close()
    gate = new ReadGate()
  })
  /** How many of the reads were admitted, wait and were refused. */
  async function outcomes(all: Read[]): Promise<number[]> {
    const found = await states(all)
    return ['admitted', 'waits', 'service_unavailable'].map((state) => found.filter((one) => one === state).length)
  }

  test('64 reads of a project are admitted and 500 wait, 128 and 1,000 of all', async () => {
    expect(await outcomes(reads(565, 'a'))).toEqual([64, 500, 1])
    expect(await outcomes(reads(563, 'b'))).toEqual([64, 499, 0])
    expect(await outcomes(reads(2, 'c'))).toEqual([0, 1, 1])
  })

  test('a project reads 8 MiB at once, all 20 MiB', async () => {
    const all = [read('a', 8 * MiB), read('a', 1), read('b', 8 * MiB), read('c', 4 * MiB), read('d', 1)]
    expect(await states(all)).toEqual(['admitted', 'waits', 'admitted', 'admitted', 'waits'])
  })

  test('a project has 32 MiB to send, all 64 MiB', async () => {
    for (const project of ['a', 'b']) {
      ;(await lease(read(project))).send(32 * MiB - 1)
      expect(await states([read(project, 1), read(project, 2)])).toEqual(['admitted', 'waits'])
    }
    expect(await states([read('c', 2), read('d', 3)])).toEqual(['admitted', 'waits'])
  })

  test('the responses to writes of a project have 16 MiB, of all 32 MiB', () => {
    for (const project of ['a', 'b']) {
      write(project, 16 * MiB - 1)
      if (project === 'a') expect([isRefused(project, 2), isRefused(project, 1)]).toEqual([true, false])
    }
    expect([isRefused('c', 2), isRefused('c', 1)]).toEqual([true, false])
  })

  test('a read waits for 5 seconds', async () => {
    const [, other] = [read('a', 8 * MiB), read('a')]
    await vi.advanceTimersByTimeAsync(4_999)
    expect(await states([other])).toEqual(['waits'])
    await vi.advanceTimersByTimeAsync(1)
    expect(await states([other])).toEqual(['service_unavailable'])
  })

  test('a client that takes nothing is disconnected after 30 seconds, and after 2 if others wait', async () => {
    await vi.advanceTimersByTimeAsync(40_000)
    for (const wait_ms of [30_000, 2_000]) {
      const stalled = read('a')
      ;(await lease(stalled)).send(32 * MiB)
      await vi.advanceTimersByTimeAsync(1)
      if (wait_ms === 2_000) read('a')
      await vi.advanceTimersByTimeAsync(wait_ms - 2)
      expect(stalled.response.destroyed).toBe(false)
      await vi.advanceTimersByTimeAsync(1)
      expect(stalled.response.destroyed).toBe(true)
    }
  })
})

test('a gate keeps no process alive, and no timer once it is closed', () => {
  gate.close()
  const { setInterval } = globalThis
  const timers: NodeJS.Timeout[] = []
  // Not a spy, which would put the fake timer back after the test.
  const watched = (...args: Parameters<typeof setInterval>) => {
    const timer = setInterval(...args)
    timers.push(timer)
    return timer
  }
  globalThis.setInterval = watched as typeof setInterval
  gate = new ReadGate()
  globalThis.setInterval = setInterval
  expect(timers.map((timer) => timer.hasRef())).toEqual([false])
  gate.close()
  expect(vi.getTimerCount()).toBe(0)
})

test('whatever comes and goes, nothing is used at the end, and never more than is allowed', async () => {
  const step = fc.record({
    project: fc.constantFrom('a', 'b', 'c'),
    bytes: fc.integer({ min: 0, max: 70 }),
    act: fc.constantFrom('read', 'read', 'send', 'sent', 'end', 'go', 'extend', 'wait'),
    which: fc.nat({ max: 7 }),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
      gate.close()
      gate = new ReadGate(OPTIONS)
      const all: Read[] = []
      for (const { project, bytes, act, which } of steps) {
        const one = all[which % Math.max(1, all.length)]
        if (act === 'read') all.push(read(project, bytes))
        else if (act === 'go') one?.response.destroy()
        else if (act === 'wait') await vi.advanceTimersByTimeAsync(1_000)
        else if (act === 'extend') one?.lease?.extend(bytes).catch(() => {})
        else if (act === 'sent') one?.lease?.sent(bytes)
        else if (act === 'send') one?.lease?.send(bytes)
        else if (one?.lease) await end(one)
        await setImmediate()
        expect(gate.usage.reads).toBeLessThanOrEqual(OPTIONS.reads.all)
        // Those that were admitted may wait for more besides.
        expect(gate.usage.waiting).toBeLessThanOrEqual(OPTIONS.waiting.all + OPTIONS.reads.all)
        expect(gate.usage.unsent_bytes).toBeGreaterThanOrEqual(0)
      }
      await vi.advanceTimersByTimeAsync(5_000)
      for (const one of all) if (one.lease) await end(one)
      expect(gate.usage).toEqual(IDLE)
      // As free as at the start.
      expect(await states([...reads(2, 'a', 25), ...reads(2, 'b', 25)])).toEqual(Array(4).fill('admitted'))
    }),
    { numRuns: 200 },
  )
})
