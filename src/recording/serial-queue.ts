/** Runs tasks of the same key one after another and tasks of different keys side by side. */
export class SerialQueue {
  readonly #tails = new Map<string, Promise<unknown>>()
  readonly #max: number
  #pending = 0

  /** @param max how many tasks may be pending at once, over all keys */
  constructor(max: number) {
    this.#max = max
  }

  /** Runs the task when its turn comes and settles as it does; gives nothing, and never runs it, when the queue is full. */
  run<T>(key: string, task: () => Promise<T>): Promise<T> | undefined {
    if (this.#pending >= this.#max) return undefined
    this.#pending += 1
    const turn = (this.#tails.get(key) ?? Promise.resolve()).then(task)
    const settled = turn
      .catch(() => {})
      .finally(() => {
        this.#pending -= 1
        if (this.#tails.get(key) === settled) this.#tails.delete(key)
      })
    this.#tails.set(key, settled)
    return turn
  }
}
