import { setTimeout } from 'node:timers/promises'
import { expect } from 'vitest'
import { LEDGER_PROJECT, Ledger } from './ledger.ts'

const READS = ['modules', 'modules/quiz', 'modules/quiz/versions', 'entries-page-views']

/** Posts and reads that go on until it is stopped, and what they get. */
export class Load {
  readonly ledger: Ledger
  /** How many reads got each status. */
  readonly reads = { 200: 0, 503: 0 }
  readonly #key: string
  readonly #work: Promise<unknown>
  #isStopped = false

  /** @param batches whether some of the posts are batches */
  constructor(address: string, key: string, batches = true) {
    this.#key = key
    this.ledger = new Ledger({ address: () => address, key, concurrency: 4, rest_ms: 20, batches })
    this.#work = Promise.all([
      this.ledger.sendWhile(() => !this.#isStopped),
      ...READS.map((read) => this.#read(`${address}/projects/${LEDGER_PROJECT}/${read}`)),
    ]).finally(() => {
      // What fails ends the rest.
      this.#isStopped = true
    })
  }

  get counts() {
    return { posts: { ...this.ledger.responses }, reads: { ...this.reads } }
  }

  /** Waits until the condition holds, or the load fails. */
  async until(condition: () => boolean): Promise<void> {
    const poll = async () => {
      while (!condition() && !this.#isStopped) await setTimeout(5)
    }
    await Promise.race([this.#work, poll()])
  }

  /** Waits until every post and every read under way, and one more of each, has got a 200. */
  async untilServed(): Promise<void> {
    const [posts, reads] = [this.ledger.acknowledged, this.reads[200]]
    // Of three connections with single events, and one with a batch of eight.
    await this.until(() => this.ledger.acknowledged > posts + 2 * (3 + 8) && this.reads[200] > reads + 2 * READS.length)
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    await this.#work
  }

  async #read(url: string): Promise<void> {
    while (!this.#isStopped) {
      const response = await fetch(url, { headers: { 'x-api-key': this.#key } })
      const body = await response.text()
      if (response.status !== 200) {
        expect(response.status, body).toBe(503)
        expect(response.headers.get('retry-after')).toMatch(/^[1-9]\d*$/)
      }
      this.reads[response.status as 200 | 503] += 1
      await setTimeout(20)
    }
  }
}
