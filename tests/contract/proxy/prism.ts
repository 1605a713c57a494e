import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import path from 'node:path'
import { freePort } from '../../support/service.ts'

const PRISM = path.join(import.meta.dirname, 'node_modules/@stoplight/prism-cli/dist/index.js')

/** The contract, as a file for Prism. */
export const DOCUMENT = path.join(import.meta.dirname, '../../../openapi/openapi.yaml')

/** A running Prism. */
export interface Prism {
  port: number
  address: string
  stop: () => Promise<void>
}

/**
 * Starts `prism` as a process on a free port and waits until it accepts connections.
 *
 * @param args `mock` or `proxy` with their arguments
 */
export async function startPrism(...args: string[]): Promise<Prism> {
  const port = await freePort()
  // Under NODE_ENV=production Prism defaults to several processes, which crashes 5.16.
  const options = [`--port=${port}`, '--verboseLevel=silent', '--multiprocess=false']
  const child = spawn(process.execPath, [PRISM, ...args, ...options], { stdio: ['ignore', 'ignore', 'inherit'] })
  const kill = () => void child.kill()
  process.once('exit', kill)
  const exit = once(child, 'close')
  await Promise.race([
    untilListening(port),
    exit.then(([status]) => {
      throw new Error(`prism exited with ${status}`)
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
