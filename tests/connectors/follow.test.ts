import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { openProject, type Project, temporaryFolder } from './project.ts'

const CONNECTORS = path.join(import.meta.dirname, '../../connectors')
const LOOPS = { 'follow.py': 'python3', 'follow.mts': process.execPath }

let project: Project
beforeAll(async () => {
  project = await openProject()
})
afterAll(() => project.api.close())

const feed = () => project.list('events?direction=ASC&limit=1000')

const temporaryFile = async () => path.join(await temporaryFolder(), 'copy.db')

/** What a copy has, in the order of the feed. */
function copied(file: string): unknown[] {
  const copy = new DatabaseSync(file, { readOnly: true })
  const rows = copy.prepare('SELECT event FROM events ORDER BY position').all() as { event: string }[]
  copy.close()
  return rows.map((row) => JSON.parse(row.event))
}

describe.each(Object.entries(LOOPS))('the loop %s', (name, command) => {
  function start(
    file: string,
    settings: Record<string, string> = {},
  ): ChildProcess & { stdout: NodeJS.ReadableStream } {
    const child = spawn(command, [path.join(CONNECTORS, name), file], {
      env: { PATH: process.env.PATH, ...project.environment, ...settings },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    onTestFinished(() => void child.kill('SIGKILL'))
    return child as ChildProcess & { stdout: NodeJS.ReadableStream }
  }
  const run = async (file: string) => {
    const child = start(file)
    const [printed, [status]] = await Promise.all([text(child.stdout), once(child, 'close')])
    expect(status).toBe(0)
    return Number(printed)
  }

  test('copies every event once, and then what is new in one call', async () => {
    const file = await temporaryFile()
    const first = await feed()
    const before = project.requests()
    expect(await run(file)).toBe(first.length)
    expect(project.requests()).toBe(before + Math.ceil(first.length / 1_000))
    expect(copied(file)).toEqual(first)

    await project.addEvents(10)
    const later = project.requests()
    expect(await run(file)).toBe(first.length + 10)
    expect(project.requests()).toBe(later + 1)
    expect(copied(file)).toEqual(await feed())
  })

  test('goes on where it was when it is killed, and follows what comes', async () => {
    const file = await temporaryFile()
    const isThere = (least: number) =>
      vi.waitFor(() => expect(copied(file).length).toBeGreaterThanOrEqual(least), { timeout: 30_000, interval: 5 })
    const killed = start(file, { WAIT: '30' })
    const closed = once(killed, 'close')
    await isThere(1)
    killed.kill('SIGKILL')
    await closed

    const following = start(file, { WAIT: '30' })
    await isThere((await feed()).length)
    await project.addEvents(5)
    await isThere((await feed()).length)
    following.kill('SIGKILL')
    expect(copied(file)).toEqual(await feed())
  })
})
