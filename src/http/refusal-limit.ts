import { isIP } from 'node:net'
import { type ApiError, tooManyRefusedKeys, unauthorized } from '../domain/errors.ts'
import type { Peers } from './peers.ts'

const MINUTE_ms = 60_000
/**
 * How many requests of a client may be refused for their key in a minute. Good keys need none, and one look-up a second is
 * next to nothing for the database, even from hundreds of clients.
 */
const MAX_REFUSALS = 60
/** How many clients are remembered. One that is forgotten may start anew. */
const MAX_CLIENTS = 10_000

/** What a client did in the current minute. */
interface Client {
  refusals: number
  /** Those under way, oldest first, each of which may end in a refusal. */
  lookUps: Set<Promise<unknown>>
}

/**
 * Limits by client how many keys unknown to this process are looked up: those that do not exist are not cached, and no rate
 * limit of a key applies to them. A refused key that exists counts as well, so that no response tells that it does
 * (docs/semantics.md#api-keys).
 */
export class RefusalLimiter {
  /** Replaced every minute. */
  #clients = new Map<string, Client>()
  #minute = 0
  /** Tells other workers of a refusal. */
  readonly #share: ((address: string) => void) | undefined

  constructor(peers?: Pick<Peers, 'shareRefusals'>) {
    this.#share = peers?.shareRefusals((address) => {
      this.#client(address).refusals += 1
    })
  }

  /**
   * Looks up a key. When as many look-ups of the client are under way as it has refusals left, this one waits, so that a
   * burst of good keys, as after a start behind a proxy, is not refused. It fails with the look-up that it waits for, since
   * queueing behind a database that does not respond would take many times as long.
   *
   * @param find resolves to undefined if there is no such key, which is a refusal
   * @throws ApiError rate_limited, without a look-up, if the client has no refusals left
   */
  async lookUp<Key>(address: string, find: () => Promise<Key | undefined>): Promise<Key | undefined> {
    for (;;) {
      const client = this.#client(address)
      if (client.refusals >= MAX_REFUSALS) throw refusalsUsedUp()
      if (client.refusals + client.lookUps.size < MAX_REFUSALS) return this.#count(client, address, find)
      const [oldest] = client.lookUps
      await oldest
    }
  }

  /** Counts the refusal of a key that exists. @returns the error to throw */
  refuse(address: string): ApiError {
    const client = this.#client(address)
    if (client.refusals >= MAX_REFUSALS) return refusalsUsedUp()
    this.#addRefusal(client, address)
    return unauthorized()
  }

  #count<Key>(client: Client, address: string, find: () => Promise<Key | undefined>): Promise<Key | undefined> {
    const lookUp = find()
      .then((key) => {
        if (key === undefined) this.#addRefusal(client, address)
        return key
      })
      .finally(() => client.lookUps.delete(lookUp))
    client.lookUps.add(lookUp)
    return lookUp
  }

  #addRefusal(client: Client, address: string): void {
    client.refusals += 1
    this.#share?.(address)
  }

  #client(address: string): Client {
    const minute = Math.floor(Date.now() / MINUTE_ms)
    if (minute !== this.#minute) {
      this.#minute = minute
      this.#clients = new Map()
    }
    const name = clientOf(address)
    const known = this.#clients.get(name)
    if (known) return known
    const client = { refusals: 0, lookUps: new Set<Promise<unknown>>() }
    this.#clients.set(name, client)
    const [oldest] = this.#clients.keys()
    if (this.#clients.size > MAX_CLIENTS && oldest !== undefined) this.#clients.delete(oldest)
    return client
  }
}

function refusalsUsedUp(): ApiError {
  const rest_ms = MINUTE_ms - (Date.now() % MINUTE_ms)
  return tooManyRefusedKeys(MAX_REFUSALS, Math.ceil(rest_ms / 1000))
}

/** An address with the port of the client, as some proxies forward it. */
const WITH_PORT = /^(?:([\d.]+)|\[([^\]]+)\]):\d+$/

/**
 * Who is behind an address: one host for IPv4, but the whole /64 network for IPv6, of which a host has every address. What
 * is no address, as a proxy may forward it, is one client, so that it cannot evade the limit or fill the memory.
 */
function clientOf(forwarded: string): string {
  const [, v4, v6] = WITH_PORT.exec(forwarded) ?? []
  const address = v4 ?? v6 ?? forwarded
  if (isIP(address) === 0) return ''
  // An IPv4 address, which may be mapped to IPv6: ::ffff:192.0.2.1.
  if (address.includes('.')) return address
  const [withoutZone = ''] = address.split('%')
  const [head = [], tail = []] = withoutZone.split('::').map((groups) => groups.split(':').filter(Boolean))
  const zeros = Array<string>(8 - head.length - tail.length).fill('0')
  return [...head, ...zeros, ...tail].slice(0, 4).join(':')
}
