import { AsyncLocalStorage } from 'node:async_hooks'
import { KeyChanges } from './key-changes.ts'

/** How old what is known of a cached key may be (ADR 0007, docs/semantics.md#api-keys). */
const MAX_AGE_ms = 1_000
/** From this age on a key is reloaded in the background, so that a client in steady use seldom waits for a load. */
const REFRESH_AGE_ms = 400
/** Some tens of megabytes, if as many keys are in use. */
const MAX_ENTRIES = 100_000
const EVICTED_AT_ONCE = 1_000

/** A value and when its load started, on the clock of performance.now(). */
interface Entry<T> {
  started_ms: number
  value: T
}

/**
 * Caches keys for less than a second, or for as long as a fingerprint shows that none has changed (ADR 0030). Only keys that
 * exist are cached, so a new one is accepted at once. When the cache is full, the least recently used keys are evicted.
 */
export class ApiKeyCache<Key> {
  /** The least recently used first. */
  readonly #entries = new Map<string, Entry<Key>>()
  /** How often a fresh key was found, and how often not. */
  readonly counts = { hit: 0, miss: 0 }
  readonly #loads = new Map<string, Entry<Promise<Key | undefined>>>()
  readonly #changes: KeyChanges
  /** Runs a function in no request's context: what is done for many is in the trace of none. */
  readonly #outsideRequests = AsyncLocalStorage.snapshot()

  /** @param readFingerprint resolves to a text that differs once any key has changed */
  constructor(readFingerprint: () => Promise<string>) {
    this.#changes = new KeyChanges(readFingerprint)
  }

  /**
   * The cached key if it is fresh, else a promise of what `load` resolves to. The same load in flight is shared.
   *
   * @param name of the key, its project included
   * @param load reads the key from the database; its rejection rejects the promises of those who wait for it
   */
  get(name: string, load: () => Promise<Key | undefined>): Key | Promise<Key | undefined> {
    const now_ms = performance.now()
    const entry = this.#entries.get(name)
    const age_ms = entry === undefined ? MAX_AGE_ms : now_ms - this.#changes.confirmed(entry.started_ms)
    if (entry && now_ms - entry.started_ms >= REFRESH_AGE_ms) {
      this.#outsideRequests(() => this.#changes.look(entry))
    }
    const isFresh = entry !== undefined && age_ms < MAX_AGE_ms
    this.counts[isFresh ? 'hit' : 'miss'] += 1
    if (!isFresh) return this.#load(name, load, now_ms)
    this.#entries.delete(name)
    this.#entries.set(name, entry)
    // A failed refresh is retried; if it keeps failing, the entry expires and the next caller gets the error.
    if (age_ms >= REFRESH_AGE_ms && !this.#changes.isWatched(entry.started_ms)) {
      this.#load(name, load, now_ms).catch(() => {})
    }
    return entry.value
  }

  /** Whether the key existed when it was last loaded, however long ago; of the 100,000 keys used last. */
  knows(name: string): boolean {
    return this.#entries.has(name)
  }

  #load(name: string, load: () => Promise<Key | undefined>, now_ms: number): Promise<Key | undefined> {
    const inFlight = this.#loads.get(name)
    if (inFlight && now_ms - inFlight.started_ms < MAX_AGE_ms) return inFlight.value
    const promise = load()
      .then((key) => {
        this.#store(name, now_ms, key)
        return key
      })
      .finally(() => {
        if (this.#loads.get(name)?.value === promise) this.#loads.delete(name)
      })
    this.#loads.set(name, { started_ms: now_ms, value: promise })
    return promise
  }

  #store(name: string, started_ms: number, key: Key | undefined): void {
    // A load that was overtaken by a later one has nothing newer to say.
    if ((this.#entries.get(name)?.started_ms ?? 0) > started_ms) return
    this.#entries.delete(name)
    if (key === undefined) return
    this.#entries.set(name, { started_ms, value: key })
    if (this.#entries.size <= MAX_ENTRIES) return
    // Uses leave gaps at the front of the map, which each search for the first key passes over: so many at once.
    for (const leastRecent of this.#entries.keys()) {
      if (this.#entries.size <= MAX_ENTRIES - EVICTED_AT_ONCE) break
      this.#entries.delete(leastRecent)
    }
  }
}
