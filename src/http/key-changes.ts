/** How often the database is asked, while it is worthwhile. */
const INTERVAL_ms = 400
/** What it takes about to load a key, by which a fingerprint is judged to be worth its time. */
const LOAD_ms = 0.1
/** A fingerprint that took long once is worth another try after a while. */
const FORGETTING = 0.9

/**
 * Notices changes of keys by a fingerprint of all of them, of which one query tells whether any has changed (ADR 0030). It is asked
 * for only while that takes less time than to load the keys in use. Times are those of performance.now().
 */
export class KeyChanges {
  readonly #readFingerprint: () => Promise<string>
  #fingerprint: string | undefined
  /** When the first of the equal fingerprints had come, and when the last one was asked for. */
  #unchangedSince_ms = Number.POSITIVE_INFINITY
  #confirmed_ms = Number.NEGATIVE_INFINITY
  #took_ms = 0
  #isAsking = false
  #isWorthwhile = false
  #round_ms = Number.NEGATIVE_INFINITY
  /** The keys that have been used in this round and would else have to be loaded. */
  #inUse = new Set<object>()

  /** @param readFingerprint resolves to a text that differs once any key has changed */
  constructor(readFingerprint: () => Promise<string>) {
    this.#readFingerprint = readFingerprint
  }

  /** When the key whose load started then was last known to be as loaded. */
  confirmed(loaded_ms: number): number {
    return loaded_ms > this.#unchangedSince_ms ? Math.max(loaded_ms, this.#confirmed_ms) : loaded_ms
  }

  /** Whether a key whose load started then is going to be confirmed again, unless one has changed. */
  isWatched(loaded_ms: number): boolean {
    return this.#isWorthwhile && loaded_ms > this.#unchangedSince_ms
  }

  /** Asks for the fingerprint if it is time. @param key is in use and was loaded a while ago */
  look(key: object): void {
    this.#inUse.add(key)
    const start_ms = performance.now()
    if (this.#isAsking || start_ms - this.#round_ms < INTERVAL_ms) return
    this.#isWorthwhile = this.#inUse.size * LOAD_ms >= this.#took_ms
    this.#round_ms = start_ms
    this.#inUse = new Set()
    if (this.#isWorthwhile) void this.#ask(start_ms)
    else this.#took_ms *= FORGETTING
  }

  async #ask(start_ms: number): Promise<void> {
    this.#isAsking = true
    const fingerprint = await this.#readFingerprint().catch(() => undefined)
    this.#isAsking = false
    const end_ms = performance.now()
    this.#took_ms = end_ms - start_ms
    if (fingerprint === undefined) {
      this.#isWorthwhile = false
      return
    }
    // A key whose load started earlier may have been read before the change, and this fingerprint after it.
    if (fingerprint !== this.#fingerprint) this.#unchangedSince_ms = end_ms
    this.#fingerprint = fingerprint
    this.#confirmed_ms = start_ms
  }
}
