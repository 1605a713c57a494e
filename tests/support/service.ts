import { type ChildProcess, spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:net'
import path from 'node:path'
import { serviceEnvironment } from './extensions.ts'
import { isNoWelcome, isServerLog, logSearch } from './log-keys.ts'

const ROOT = path.join(import.meta.dirname, '../..')

/** A `flowtrail` process. */
export interface Process {
  child: ChildProcess
  /** The output so far. */
  stdout: () => string
  stderr: () => string
  /** The exit status, or the signal that terminated the process. */
  exit: Promise<number | NodeJS.Signals>
}

/** A server process that accepts requests. */
export interface Service extends Process {
  address: string
}

/**
 * Runs the command line in a child process, with these settings and without those of this process.
 * @param root the checkout; by default this one
 */
export function runFlowtrail(args: string[], settings: Record<string, string>, root = ROOT): Process {
  const { PATH, TMPDIR, NODE_COMPILE_CACHE } = process.env
  const NODE_OPTIONS = [serviceEnvironment.NODE_OPTIONS, settings.NODE_OPTIONS].filter(Boolean).join(' ')
  const child = spawn(path.join(root, 'bin/flowtrail'), args, {
    cwd: root,
    env: {
      // Those that are not set are left out.
      ...{ PATH, TMPDIR, NODE_COMPILE_CACHE },
      ...serviceEnvironment,
      ...settings,
      ...(NODE_OPTIONS && { NODE_OPTIONS }),
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const [out, err] = [collect(child.stdout), collect(child.stderr)]
  child.stdout.on('data', logSearch(isServerLog))
  child.stderr.on('data', logSearch(isNoWelcome))
  const exit = once(child, 'close').then(([code, signal]) => (code ?? signal) as number | NodeJS.Signals)
  return { child, stdout: out, stderr: err, exit }
}

/** Starts a server, on any port unless the settings name one, and waits until it accepts requests. */
export async function startService(settings: Record<string, string>, root = ROOT): Promise<Service> {
  // It prints its PUBLIC_URL instead of the port, if it has one.
  const PORT = settings.PORT ?? (settings.PUBLIC_URL ? String(await freePort()) : '0')
  const service = runFlowtrail(['serve'], { LOG_LEVEL: 'warn', ...settings, PORT }, root)
  const listening = new Promise<string>((resolve) => {
    service.child.stderr?.on('data', () => {
      const [, url] = /^Flowtrail is listening at (\S+);/m.exec(service.stderr()) ?? []
      if (url) resolve(new URL(url).port)
    })
  })
  const failed = service.exit.then((status) => {
    throw new Error(`the server ended with ${status}: ${service.stderr()}`)
  })
  failed.catch(() => {})
  const port = await Promise.race([listening, failed])
  return { ...service, address: `http://127.0.0.1:${PORT === '0' ? port : PORT}` }
}

/** Reads the metrics of a service. Resolves to what gives the value of one without labels, NaN if there is none. */
export async function readMetrics({ address }: Service): Promise<(name: string) => number> {
  const metrics = await (await fetch(`${address}/metrics`)).text()
  return (name) => Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(metrics)?.[1])
}

/** Kills the process, if it is still running. */
export async function kill({ child, exit }: Process): Promise<void> {
  child.kill('SIGKILL')
  await exit
}

/** Below the ephemeral ports of Linux and macOS, one of which anything else may be given at any moment. */
const PORTS = { first: 20_000, end: 32_000 }
let lastPort = randomInt(PORTS.first, PORTS.end)

/** A port that nothing listens on, and that nothing else is likely to take: each process counts from a random one. */
export async function freePort(): Promise<number> {
  for (;;) {
    lastPort = lastPort + 1 < PORTS.end ? lastPort + 1 : PORTS.first
    const port = lastPort
    const server = createServer().listen(port, '127.0.0.1')
    try {
      await once(server, 'listening')
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error
      continue
    }
    server.close()
    await once(server, 'close')
    return port
  }
}

function collect(stream: NodeJS.ReadableStream | null): () => string {
  const chunks: Buffer[] = []
  stream?.on('data', (chunk: Buffer) => chunks.push(chunk))
  return () => Buffer.concat(chunks).toString()
}
