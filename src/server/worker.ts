/**
 * A worker of a server with several: a process that serves requests, which the supervisor starts and tells what to serve.
 * Node ends it when the supervisor has gone.
 */
import { setImmediate } from 'node:timers/promises'
import type { Peers } from '../http/peers.ts'
import type { RequestCount } from '../http/rate-limit.ts'
import type { CollectMetrics } from '../http/worker-metrics.ts'
import { Channel } from './channel.ts'
import { runProcess, stopSignal } from './process.ts'
import type { Assignment, SupervisorFunctions, WorkerFunctions } from './protocol.ts'
import { serveRequests } from './requests.ts'

// A worker whose output nobody reads any longer goes on.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {})

const assigned = Promise.withResolvers<Assignment>()
const collecting = Promise.withResolvers<CollectMetrics>()
const stopped = new AbortController()
let onRefusal = (_address: string) => {}

const supervisor = new Channel<SupervisorFunctions>(process, {
  start: assigned.resolve,
  stop: () => stopped.abort(),
  onRefusal: (address) => onRefusal(address),
  ping: () => {},
  collectMetrics: async () => (await collecting.promise)(),
} satisfies WorkerFunctions)

interface Batch {
  keyIds: string[]
  counts: Promise<RequestCount[]>
}

/** The requests that are counted by the next message: those of a turn of the event loop, and while one is under way. */
let batch: Batch | undefined
let underWay: Promise<unknown> | undefined

function openBatch(): Batch {
  const keyIds: string[] = []
  const count = async (earlier: typeof underWay) => {
    await Promise.all([earlier, setImmediate()])
    batch = undefined
    return supervisor.call('countRequests', keyIds)
  }
  const counts = count(underWay)
  underWay = counts
  return { keyIds, counts }
}

const peers: Peers = {
  countRequest: async (keyId) => {
    batch ??= openBatch()
    const { keyIds, counts } = batch
    const index = keyIds.push(keyId) - 1
    return (await counts)[index] as RequestCount
  },
  shareRefusals: (listener) => {
    onRefusal = listener
    return (address) => void supervisor.call('shareRefusal', address)
  },
  shareMetrics: (collect) => {
    collecting.resolve(collect)
    return () => supervisor.call('metrics', undefined)
  },
}

const stop = AbortSignal.any([stopped.signal, stopSignal()])
const { worker, config, databaseUrl, demoKeyFile } = await assigned.promise
const onListening = (url: string) => void supervisor.call('onListening', url)
try {
  await runProcess(config, { stop, worker }, (running) =>
    serveRequests(config, databaseUrl, { demoKeyFile, peers, onListening }, running),
  )
} catch (error) {
  await supervisor.call('onFailure', (error as Error).message)
  process.exitCode = 1
}
// The channel to the supervisor would keep the process alive.
process.exit()
