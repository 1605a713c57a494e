import { setImmediate } from 'node:timers/promises'

/** How long work may keep other requests waiting, in milliseconds. */
const SLICE_ms = 5

/** For work of unknown length: leaves a turn of the event loop to others after each few milliseconds of it. */
export class Turns {
  #begun_ms = performance.now()

  /** Waits if it is the others' turn; else undefined, so that no turn is lost. */
  next(): Promise<void> | undefined {
    return performance.now() - this.#begun_ms < SLICE_ms ? undefined : this.#pause()
  }

  async #pause(): Promise<void> {
    await setImmediate()
    this.#begun_ms = performance.now()
  }
}
