// biome-ignore lint/suspicious/noExplicitAny: any function whose argument and result can be sent
type Functions = Record<string, (argument: any) => unknown>

/** The other process: `process` in a worker, or a worker in its supervisor. */
interface Port {
  // biome-ignore lint/suspicious/noExplicitAny: messages of any form, by which Node's two kinds of ports differ
  send?: (message: any, callback: (error: Error | null) => void) => boolean
  on: (event: 'message', listener: (message: Message) => void) => unknown
}

type Message = { call: number; name: string; argument: unknown } | { response: number; result: unknown }

/** Calls in both directions between a supervisor and a worker. */
export class Channel<Remote extends Functions> {
  readonly #port: Port
  readonly #calls = new Map<number, PromiseWithResolvers<unknown>>()
  #last = 0

  /** @param local what the other process may call; it may not fail */
  constructor(port: Port, local: Functions) {
    this.#port = port
    port.on('message', async (message) => {
      if ('call' in message) {
        const result = await local[message.name]?.(message.argument)
        this.#send({ response: message.call, result })
      } else {
        this.#calls.get(message.response)?.resolve(message.result)
        this.#calls.delete(message.response)
      }
    })
  }

  /** Calls a function of the other process. Rejects once the channel is closed. */
  call<Name extends keyof Remote & string>(
    name: Name,
    argument: Parameters<Remote[Name]>[0],
  ): Promise<Awaited<ReturnType<Remote[Name]>>> {
    this.#last += 1
    const response = Promise.withResolvers<unknown>()
    this.#calls.set(this.#last, response)
    this.#send({ call: this.#last, name, argument })
    return response.promise as Promise<Awaited<ReturnType<Remote[Name]>>>
  }

  /** To be called when the other process has ended. */
  close(): void {
    for (const { reject } of this.#calls.values()) reject(new Error('The other process has ended'))
    this.#calls.clear()
  }

  #send(message: Message): void {
    // That the other process has gone is noticed elsewhere.
    this.#port.send?.(message, () => {})
  }
}
