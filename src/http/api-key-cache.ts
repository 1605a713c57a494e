/** How old what is known of a key may be (decisions, "Keys"), in milliseconds. */
const MAX_AGE_ms = 1_000
/** From this age on it is asked for again, beside the request that came upon it, so that no steady caller ever waits. */
const REFRESH_AGE_ms = 400
const MAX_KEYS = 10_000

/** Something that the database was asked for, on the clock of performance.now(). */
interface Asked<T> {
  asked_ms: number
  answer: T
}

/**
 * Remembers for less than a second what the database says of keys. Only keys that exist are remembered, so a new one is
 * accepted at once; what was asked for longest ago makes room for others.
 */
export class KnownKeys<Key> {
  readonly #known = new Map<string, Asked<Key>>()
  readonly #asking = new Map<string, Asked<Promise<Key | undefined>>>()

  /**
   * The key if it is known well enough, else a promise of what the database says.
   *
   * @param name of the key, its project included
   * @param ask asks the database
   */
  find(name: string, ask: () => Promise<Key | undefined>): Key | Promise<Key | undefined> {
    const now_ms = performance.now()
    const known = this.#known.get(name)
    if (known === undefined || now_ms - known.asked_ms >= MAX_AGE_ms) return this.#ask(name, ask, now_ms)
    // A failure here is told to whoever next has to wait for the answer.
    if (now_ms - known.asked_ms >= REFRESH_AGE_ms) this.#ask(name, ask, now_ms).catch(() => {})
    return known.answer
  }

  /** Asks, or shares the answer to the same question that is under way. */
  #ask(name: string, ask: () => Promise<Key | undefined>, asked_ms: number): Promise<Key | undefined> {
    const before = this.#asking.get(name)
    if (before && asked_ms - before.asked_ms < MAX_AGE_ms) return before.answer
    const answer = ask()
      .then((key) => {
        this.#remember(name, asked_ms, key)
        return key
      })
      .finally(() => {
        if (this.#asking.get(name)?.answer === answer) this.#asking.delete(name)
      })
    this.#asking.set(name, { asked_ms, answer })
    return answer
  }

  #remember(name: string, asked_ms: number, key: Key | undefined): void {
    if ((this.#known.get(name)?.asked_ms ?? 0) > asked_ms) return
    this.#known.delete(name)
    if (key === undefined) return
    this.#known.set(name, { asked_ms, answer: key })
    const [oldest] = this.#known.keys()
    if (this.#known.size > MAX_KEYS && oldest !== undefined) this.#known.delete(oldest)
  }
}
