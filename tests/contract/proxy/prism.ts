import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import path from 'node:path'
import { freePort } from '../../support/service.ts'

const PRISM = path.join(import.meta.dirname, 'node_modules/@stoplight/prism-cli/dist/index.js')

/** The document as Prism reads it. */
export const DOCUMENT = path.join(import.meta.dirname, '../../../openapi/openapi.yaml')

/** A running Prism. */
export interface Prism {
  port: number
  address: string
  stop: () => Promise<void>
}

/**
 * Runs `prism` as its own process on a free port, and waits until it takes connections.
 *
 * @param args `mock` or `proxy` with what these take
 */
export async function startPrism(...args: string[]): Promise<Prism> {
  const port = await freePort()
  // Prism takes multiprocess for granted under NODE_ENV=production, and 5.16 falls over it.
  const options = [`--port=${port}`, '--verboseLevel=silent', '--multiprocess=false']
  const child = spawn(process.execPath, [PRISM, ...args, ...options], { stdio: ['ignore', 'ignore', 'inherit'] })
  const kill = () => void child.kill()
  process.once('exit', kill)
  const exit = once(child, 'close')
  await Promise.race([
    untilListening(port),
    exit.then(([status]) => {
      throw new Error(`prism ended with ${status}`)
    }),
  ])
  return {
    port,
    address: `http://127.0.0.1:${port}`,
    stop: async () => {
      kill()
      await exit
      process.off('exit', kill)
    },
  }
}

async function untilListening(port: number): Promise<void> {
  for (;;) {
    const socket = connect(port, '127.0.0.1')
    const isUp = await once(socket, 'connect').then(
      () => true,
      () => false,
    )
    socket.destroy()
    if (isUp) return
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}
