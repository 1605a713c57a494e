import { PassThrough, Readable, Writable } from 'node:stream'
import { expect, onTestFinished, test, vi } from 'vitest'
import { run } from '../../src/cli/run.ts'
import { isOnCitus } from '../support/citus.ts'
import { createTestDatabase } from '../support/database.ts'
import { flowtrailWith, printed, temporaryDirectory } from './run.ts'

const RECORDS = [
  { type: 'project', project_id: 'p' },
  { type: 'contact', project_id: 'p', contact_id: 'c', identifiers: [] },
]

/** What was written to a stream so far, which is read a chunk at a time. */
function written(stream: PassThrough): string {
  let text = ''
  for (let chunk = stream.read(); chunk !== null; chunk = stream.read()) text += chunk
  return text
}

/** The status of a command whose output cannot be written, and what it says of that. */
async function onFullDisk(databaseUrl: string, args: string[], input = '') {
  const full = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' })
  const stdout = new Writable({ write: (_chunk, _encoding, done) => done(full) })
  const stderr = new PassThrough()
  const stdin = Readable.from([Buffer.from(input)])
  const status = await run(args, { env: { DATABASE_URL: databaseUrl }, stdin, stdout, stderr })
  return { status, stderr: written(stderr) }
}

/** How a command ends that has done its work, but cannot say so. */
const failed = (done: string) => ({
  status: 1,
  stderr: expect.stringMatching(
    new RegExp(`(^|\n)flowtrail: ${done}, but the report cannot be printed: ENOSPC: no space left on device, write\n$`),
  ),
})

test('a command that has done its work says so, when the disk is too full for its report', async () => {
  const database = await createTestDatabase()
  onTestFinished(() => database.drop())
  const lines = RECORDS.map((record) => JSON.stringify(record)).join('\n')
  expect(await onFullDisk(database.url, ['import', '-'], lines)).toEqual(failed('Everything is imported'))
  const erase = ['contacts', 'erase', 'c', '--project', 'p', '--yes']
  const erased = 'Erased contact c of project p, with 0 identifiers, .*\\. Erasure: [-0-9a-f]+'
  expect(await onFullDisk(database.url, erase)).toEqual(failed(erased))
  expect(await onFullDisk(database.url, ['migrate'])).toEqual(failed('The schema is up to date'))
  const remove = ['projects', 'delete', 'p', '--yes']
  expect(await onFullDisk(database.url, remove)).toEqual(failed('Deleted project p, \\d rows in all'))
  expect(await printed(flowtrailWith({ DATABASE_URL: database.url })('projects', 'list'))).toBe('project_id  name')
})

// A cluster refuses these.
test.skipIf(isOnCitus)('so does one that makes or restores a backup, or rewrites the tables', async () => {
  await using folder = await temporaryDirectory()
  const [source, target] = [await createTestDatabase(), await createTestDatabase('template0')]
  onTestFinished(() => source.drop())
  onTestFinished(() => target.drop())
  await printed(flowtrailWith({ DATABASE_URL: source.url })('projects', 'create', 'p'))
  const backup = `${folder.path}/backup`
  expect(await onFullDisk(source.url, ['backup', backup])).toEqual(failed(`The backup is in ${backup}`))
  expect(await onFullDisk(target.url, ['restore', backup, '--check'])).toEqual(failed('The backup is whole'))
  expect(await onFullDisk(target.url, ['restore', backup])).toEqual(failed('Everything is restored'))
  expect(await onFullDisk(source.url, ['compact'])).toEqual(failed('Rewrote \\d+ tables'))
  expect(await printed(flowtrailWith({ DATABASE_URL: target.url })('projects', 'list'))).toMatch(/^p +p$/m)
})

test.each(['--version', '--help', 'keys create --help'])('%s fails when it cannot be printed', async (line) => {
  const failed = { status: 1, stderr: 'flowtrail: ENOSPC: no space left on device, write\n' }
  expect(await onFullDisk('postgres://flowtrail@127.0.0.1:1/flowtrail', line.split(' '))).toEqual(failed)
})

test('a command whose last write fails when it has ended fails, too', async () => {
  const database = await createTestDatabase()
  onTestFinished(() => database.drop())
  await printed(flowtrailWith({ DATABASE_URL: database.url })('projects', 'create', 'p'))
  const full = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' })
  let fail = () => {}
  const stdout = new Writable({
    write: (_chunk, _encoding, done) => {
      fail = () => done(full)
    },
  })
  // What comes after the export is no part of it.
  vi.spyOn(stdout, 'write').mockImplementation(function (this: Writable, ...args: unknown[]) {
    if (args[0] === '') setImmediate(fail)
    return Writable.prototype.write.apply(this, args as Parameters<Writable['write']>)
  })
  const stderr = new PassThrough()
  const env = { DATABASE_URL: database.url }
  const status = await run(['export', '--project', 'p'], { env, stdin: Readable.from([]), stdout, stderr })
  expect(status).toBe(1)
  expect(written(stderr)).toMatch(/(^|\n)flowtrail: ENOSPC: no space left on device, write\n$/)
})
