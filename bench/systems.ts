import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { freePort, startService } from '../tests/support/service.ts'

/** A server process that takes requests. */
export interface System {
  address: string
  pid: number
  stop: () => Promise<void>
}

/** Starts Flowtrail as an operator does, without a line of log for each request. */
export async function startFlowtrail(settings: Record<string, string>): Promise<System> {
  const { address, child, exit } = await startService({ NODE_ENV: 'production', ...settings })
  const stop = async () => {
    child.kill('SIGTERM')
    await exit
  }
  return { address, pid: child.pid as number, stop }
}

/** Starts a peer: peers/README.md says how they are run. */
export async function startPeer(entry: string, databaseUrl: string): Promise<System> {
  const port = String(await freePort())
  const env = { PATH: process.env.PATH, NODE_ENV: 'production', DATABASE_URL: databaseUrl, PORT: port }
  const child = spawn(process.execPath, [entry], { env, stdio: ['ignore', 'pipe', 'inherit'] })
  const exit = once(child, 'close')
  const ready = new Promise<void>((resolve) => {
    let output = ''
    child.stdout.on('data', (chunk) => {
      output += chunk
      if (/^ready$/m.test(output)) resolve()
    })
  })
  const failed = exit.then(([code]) => {
    throw new Error(`${entry} ended with ${code} before it was ready`)
  })
  failed.catch(() => {})
  await Promise.race([ready, failed])
  const stop = async () => {
    child.kill('SIGTERM')
    await exit
  }
  return { address: `http://127.0.0.1:${port}`, pid: child.pid as number, stop }
}
