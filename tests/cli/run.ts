import { type ChildProcessByStdio, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, open, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Readable, Writable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { promisify } from 'node:util'
import { onTestFinished } from 'vitest'
import { run } from '../../src/cli/run.ts'
import { isServerLog, logSearch } from '../support/log-keys.ts'
import { kill, type Process, runFlowtrail } from '../support/service.ts'

export const ROOT = path.join(import.meta.dirname, '../..')

/** How a command ended. */
export interface Outcome {
  /** The exit status, or the signal that ended its process. */
  status: number | NodeJS.Signals
  stdout: string
  stderr: string
}

export type Flowtrail = (...args: string[]) => Promise<Outcome>

/**
 * The command line with only these settings, run in this process: that takes a tenth of the time. Not for `serve`.
 * @param input its standard input
 */
export function flowtrailWith(settings: Record<string, string>, input: Buffer[] = []): Flowtrail {
  return async (...args) => {
    if (/^serve( --demo)?$/.test(args.join(' '))) throw new Error('serve ends its process: use flowtrailProcessWith')
    const [stdout, stderr] = [new Collected(), new Collected()]
    const status = await run(args, { env: settings, stdin: Readable.from(input), stdout, stderr })
    logSearch()(stderr.text)
    return { status, stdout: stdout.text, stderr: stderr.text }
  }
}

class Collected extends Writable {
  text = ''

  override _write(chunk: Buffer, _: BufferEncoding, done: () => void): void {
    this.text += chunk
    done()
  }
}

/** The command line with only these settings, in a process for each command as operators run it. */
export function flowtrailProcessWith(settings: Record<string, string>): Flowtrail {
  return async (...args) => {
    const process = runFlowtrail(args, settings)
    const status = await process.exit
    return { status, stdout: process.stdout(), stderr: process.stderr() }
  }
}

/** Runs a command on a named pipe that it makes, of which there may always be more to come, until the test ends. */
export async function runOnPipe(command: 'import' | 'restore', pipe: string, settings: Record<string, string>) {
  await promisify(execFile)('mkfifo', [pipe])
  // Opened for both, it waits for no reader, and the reader gets no end.
  const writer = await open(pipe, 'r+')
  onTestFinished(() => writer.close())
  const process = runFlowtrail([command, pipe], settings)
  onTestFinished(() => kill(process))
  return { writer, process }
}

/** The output of a command that succeeds without writing to stderr. @throws Error otherwise */
export async function printed(outcome: Promise<Outcome>): Promise<string> {
  const { status, stdout, stderr } = await outcome
  if (status !== 0 || stderr !== '') throw new Error(`status ${status}: ${stderr}`)
  return stdout.trimEnd()
}

/** Waits until the process has printed this. @returns its whole output so far @throws Error if it exits before */
export async function untilPrinted(
  process: Process,
  wanted: string,
  stream: 'stdout' | 'stderr' = 'stdout',
): Promise<string> {
  while (!process[stream]().includes(wanted)) {
    const ended = await Promise.race([once(process.child[stream] as NodeJS.ReadableStream, 'data'), process.exit])
    if (!Array.isArray(ended)) throw new Error(`ended with ${ended}: ${process.stderr()}`)
  }
  return process[stream]()
}

/** Runs a shell command line in the checkout; `node` is the Node of this process. */
export async function shell(line: string, settings: Record<string, string> = {}): Promise<Outcome> {
  const child = startShell(line, settings)
  child.stdin.end()
  const [stdout, stderr, [code, signal]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close'),
  ])
  return { status: code ?? signal, stdout, stderr }
}

export function startShell(
  line: string,
  settings: Record<string, string>,
): ChildProcessByStdio<Writable, Readable, Readable> {
  const { PATH, TMPDIR, HOME, NODE_COMPILE_CACHE } = process.env
  const env = {
    PATH: `${path.dirname(process.execPath)}${path.delimiter}${PATH}`,
    // Those that are not set are left out.
    ...{ TMPDIR, HOME, NODE_COMPILE_CACHE },
    ...settings,
  }
  const child = spawn('/bin/sh', ['-c', line], { cwd: ROOT, env, stdio: ['pipe', 'pipe', 'pipe'] })
  child.stdout.on('data', logSearch(isServerLog))
  child.stderr.on('data', logSearch())
  return child
}

/** A temporary directory, for `await using`. */
export async function temporaryDirectory() {
  const directory = await mkdtemp(path.join(tmpdir(), 'flowtrail-test-'))
  return { path: directory, [Symbol.asyncDispose]: () => rm(directory, { recursive: true }) }
}

/** Whether the embedded PostgreSQL of a DATA_DIR accepts connections. It removes its pid file when it stops. */
export async function postgresRuns(dataDir: string): Promise<boolean> {
  const pidFile = await readFile(path.join(dataDir, 'postgres/postmaster.pid'), 'utf8').catch(() => '')
  return pidFile.includes('ready')
}
