import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
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
    const child = start(file, { FLOWTRAIL_URL: `${project.environment.FLOWTRAIL_URL}/` })
    const [printed, [status]] = await Promise.all([text(child.stdout), once(child, 'close')])
    expect(status).toBe(0)
    return Number(printed)
  }

  test('copies no other project to the same file', async () => {
    const file = await temporaryFile()
    await run(file)
    const child = start(file, { FLOWTRAIL_PROJECT: 'other' })
    const [[status]] = await Promise.all([once(child, 'close'), text(child.stdout)])
    expect(status).toBe(1)
    expect(await run(file)).toBe((await feed()).length)
  })

  test('copies every event once, and then what is new in two calls', async () => {
    const file = await temporaryFile()
    const first = await feed()
    const before = project.requests()
    expect(await run(file)).toBe(first.length)
    expect(project.requests()).toBe(before + 2 * Math.ceil(first.length / 1_000))
    expect(copied(file)).toEqual(first)

    await project.addEvents(10)
    const later = project.requests()
    expect(await run(file)).toBe(first.length + 10)
    expect(project.requests()).toBe(later + 2)
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

  test('erases who is erased, and keeps who comes back', async () => {
    const [file, contactId] = [await temporaryFile(), `${name}-erased`]
    await project.addContact(contactId, 1_500)
    await project.addEvents(1)
    await run(file)
    await project.eraseContact(contactId)
    const erased = await run(file)
    const left = await feed()
    expect([erased, copied(file)]).toEqual([left.length, left])
    expect((await readFile(file)).includes(contactId)).toBe(false)

    await project.addContact(contactId, 1)
    await project.eraseContact(contactId)
    await project.addContact(contactId, 3)
    const late = await temporaryFile()
    await Promise.all([run(file), run(late)])
    const back = await feed()
    expect(back).toHaveLength(left.length + 3)
    expect([copied(file), copied(late)]).toEqual([back, back])
  })

  test('erases an event that it has read already, also when it is killed then', async () => {
    for (const isKilled of [false, true]) {
      const [file, contactId] = [await temporaryFile(), `${name}-read-${isKilled}`]
      await run(file)
      await project.addContact(contactId, 3)
      const { received, release } = project.holdAfter(1)
      const child = start(file)
      const closed = once(child, 'close')
      await received
      await project.eraseContact(contactId)
      if (isKilled) child.kill('SIGKILL')
      release()
      await closed
      if (isKilled) await run(file)
      expect(copied(file)).toEqual(await feed())
    }
  })

  test('erases while it waits for events', async () => {
    const [file, contactId] = [await temporaryFile(), `${name}-followed`]
    await project.addContact(contactId, 3)
    const following = start(file, { WAIT: '1' })
    const isEqual = () =>
      vi.waitFor(async () => expect(copied(file)).toEqual(await feed()), { timeout: 30_000, interval: 50 })
    await isEqual()
    await project.eraseContact(contactId)
    await isEqual()
    following.kill('SIGKILL')
  })
})
