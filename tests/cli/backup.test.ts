import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs'
import { chmod, mkdir, open, readdir, readFile, readlink, stat, symlink, writeFile } from 'node:fs/promises'
import { PassThrough, Readable, Writable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { promisify } from 'node:util'
import zlib from 'node:zlib'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { knownMigrations, migrate, migrationsUpTo } from '../../db/migrate.ts'
import { backUp } from '../../src/backup/backup.ts'
import { readMigrations, readTables } from '../../src/backup/tables.ts'
import { run } from '../../src/cli/run.ts'
import { connect, withPool } from '../../src/database/open.ts'
import { type Call, createTestApp, EXAMPLES, importFile, importInto, type TestApp } from '../support/app.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { exampleCall, isWrite, operationIds } from '../support/example-call.ts'
import { runFlowtrail } from '../support/service.ts'
import { holdLock } from '../support/waiting.ts'
import { flowtrailWith, postgresRuns, printed, runOnPipe, shell, startShell, temporaryDirectory } from './run.ts'

const gzip = promisify(zlib.gzip)
const gunzip = promisify(zlib.gunzip)

let directory: Awaited<ReturnType<typeof temporaryDirectory>>
let app: TestApp
/** A backup of the app's database. */
let file: string
let bytes: Buffer
beforeAll(async () => {
  directory = await temporaryDirectory()
  app = await createTestApp({ fill })
  for (const call of WRITES) expect((await app.call(call)).statusCode).toBe(200)
  const erased = '019ca8b2-8e00-7000-8000-0000000000c2'
  const flowtrail = flowtrailWith({ DATABASE_URL: app.databaseUrl })
  expect((await flowtrail('contacts', 'erase', erased, '--project', 'demo', '--yes')).status).toBe(0)
  file = `${directory.path}/backup.gz`
  await printed(flowtrail('backup', file))
  bytes = await readFile(file)
})
afterAll(async () => {
  await app.close()
  await directory[Symbol.asyncDispose]()
})

/** Text that COPY must escape or that looks like its end, and a row of which a backup is written for a while. */
async function fill(databaseUrl: string): Promise<void> {
  await importFile(databaseUrl, EXAMPLES)
  const ids = { project_id: 'demo', module_id: 'odd' }
  const texts = ['\\.', '\n\\.\n', '\\N', 'a\tb\\c\r\n\u2028', '🙂\u0001', 'long '.repeat(100_000)]
  await importInto(databaseUrl, [
    {
      type: 'module',
      ...ids,
      group_id: 'growth',
      title: texts.slice(0, -1).join('|'),
      created_at: '2026-01-01T00:00:00Z',
    },
    ...texts.map((text, i) => ({
      ...{ type: 'module_version', ...ids, version_number: i + 1, json_string: JSON.stringify({ text }, null, 1) },
      ...{ saved_at: '2026-01-01T00:00:00Z', published_at: '2026-01-01T00:00:00Z' },
    })),
  ])
  await query(
    databaseUrl,
    `UPDATE projects SET name = '${randomBytes(500_000).toString('hex')}' WHERE project_id = 'demo'`,
  )
}

const event = exampleCall('recordCustomEvent').body as object
const WRITES: Call[] = [
  exampleCall('recordCustomEvent', { headers: { 'idempotency-key': 'one' } }),
  exampleCall('recordCustomEvents', { body: { events: [{ ...event, idempotency_key: 'two' }] } }),
  exampleCall('importRecords'),
]
const READS = [
  ...operationIds.filter((id) => !isWrite(id)).map((id) => exampleCall(id)),
  exampleCall('listModuleVersions', { path: { moduleId: 'odd' }, query: { limit: '2' } }),
  exampleCall('getModuleVersion', { path: { moduleId: 'odd', versionNumber: '6' } }),
  exampleCall('listProjectEvents', { query: { direction: 'ASC', limit: '1' } }),
]

async function database(template?: string): Promise<TestDatabase> {
  const created = await createTestDatabase(template)
  onTestFinished(() => created.drop())
  return created
}

const restoreTo = ({ url }: TestDatabase, ...args: string[]) => flowtrailWith({ DATABASE_URL: url })('restore', ...args)

async function query(url: string, sql: string): Promise<unknown[]> {
  const { rows } = await withPool(url, (pool) => pool.query(sql))
  return rows
}

/** All rows of all tables, as text. */
async function contentOf(url: string): Promise<Record<string, unknown[]>> {
  return withPool(url, async (pool) => {
    const client = await pool.connect()
    const content: Record<string, unknown[]> = {}
    for (const { table } of await readTables(client)) {
      const { rows } = await client.query(`SELECT t::text AS row FROM ${table} t ORDER BY t::text COLLATE "C"`)
      content[table] = rows.map(({ row }) => row)
    }
    client.release()
    return content
  })
}

const refusal = (message: string) => ({
  status: 2,
  stdout: '',
  stderr: expect.stringMatching(`^(Backup of .*\n)?flowtrail: ${message}\n$`),
})

describe('a restored backup', () => {
  test('has every row, and a server on its database gives the same responses, byte for byte', async () => {
    const target = await database()
    // It is there before.
    const restored = await createTestApp({ reach: () => target.url, twins: false })
    onTestFinished(() => restored.close())
    const [read] = READS as [Call]
    expect((await restored.call({ ...read, key: app.key })).statusCode).toBe(401)
    const table = (await restoreTo(target, file)).stdout

    const content = await contentOf(app.databaseUrl)
    expect(await contentOf(target.url)).toEqual(content)
    expect(Object.values(content).filter((rows) => rows.length === 0)).toEqual([])
    for (const [name, rows] of Object.entries(content))
      expect(table).toMatch(new RegExp(`^${name} +${rows.length}$`, 'm'))

    for (const call of [...READS, ...WRITES, ...READS]) {
      const here = await app.call(call)
      const there = await restored.call({ ...call, key: app.key })
      expect(there.rawPayload.equals(here.rawPayload), call.path).toBe(true)
      for (const header of ['etag', 'link', 'next-cursor', 'idempotent-replayed']) {
        expect(there.headers[header], `${header} of ${call.path}`).toBe(here.headers[header])
      }
      expect(there.statusCode).toBe(200)
    }
  })

  test('gets positions greater than any that was seen before', async () => {
    const target = await database()
    const newest = exampleCall('listProjectEvents', { query: { limit: '1' } })
    await app.call(exampleCall('recordCustomEvent'))
    const [seen] = (await app.call(newest)).json()
    await restoreTo(target, file)
    const restored = await createTestApp({ reach: () => target.url, twins: false })
    onTestFinished(() => restored.close())
    expect((await restored.call({ ...newest, key: app.key })).json()[0].position).toBeLessThan(seen.position)
    await restored.call({ ...exampleCall('recordCustomEvent'), key: app.key })
    expect((await restored.call({ ...newest, key: app.key })).json()[0].position).toBeGreaterThan(seen.position)
  })

  test('of an older schema has the newest one', async () => {
    const [oldest = '', ...later] = await knownMigrations()
    const old = await database('template0')
    const db = connect(old.url)
    await migrate(db, { migrations: migrationsUpTo(oldest) })
    await db.destroy()
    await query(
      old.url,
      `
      INSERT INTO projects VALUES ('p', 'P'); INSERT INTO groups VALUES ('p', 'g', 'G');
      INSERT INTO modules VALUES ('p', 'm', 'g', 'M', now()); INSERT INTO contacts VALUES ('p', 'c', now());
      INSERT INTO entries VALUES ('p', 'e', 'm', 'c', now(), now(), '{}');
      INSERT INTO events (project_id, event_id, entry_id, timestamp, module_version_number, event_type)
        VALUES ('p', 'v', 'e', now(), 1, 't')`,
    )
    const older = `${directory.path}/older.gz`
    await printed(flowtrailWith({ DATABASE_URL: old.url })('backup', older))
    const [target, migrated] = [await database('template0'), await database()]
    expect((await restoreTo(target, older)).status).toBe(0)
    expect(await query(target.url, 'SELECT event_id FROM events WHERE position > 0')).toEqual([{ event_id: 'v' }])
    expect(await query(target.url, 'SELECT name FROM kysely_migration ORDER BY name')).toEqual(
      [oldest, ...later].map((name) => ({ name })),
    )
    expect(await restoreTo(migrated, older)).toEqual(
      refusal('Nothing was restored: the schema of the database is newer .*. Restore into a database without tables'),
    )
    expect(await query(migrated.url, 'SELECT FROM projects')).toEqual([])
  })

  test('moves from the embedded PostgreSQL to another in one line', async () => {
    const target = await database('template0')
    const settings = { DATA_DIR: `${directory.path}/embedded`, TARGET: target.url }
    expect(await flowtrailWith(settings)('demo', '--entries', '3')).toMatchObject({ status: 0 })
    const line = 'node src/cli/main.ts backup - | DATABASE_URL=$TARGET node src/cli/main.ts restore -'
    const { status, stderr } = await shell(line, settings)
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
    expect(await query(target.url, 'SELECT entry_id FROM entries')).toHaveLength(3)
    expect(await postgresRuns(settings.DATA_DIR)).toBe(false)
  })
})

describe('backup', () => {
  test('is of one moment, whatever is recorded meanwhile', async () => {
    const target = await database()
    const before = await contentOf(app.databaseUrl)
    const chunks: Buffer[] = []
    const output = new Writable({
      async write(chunk, _, done) {
        if (chunks.push(chunk) === 2) await app.call(exampleCall('recordCustomEvent'))
        done()
      },
    })
    await withPool(app.databaseUrl, (pool) => backUp(pool, output))
    expect(chunks.length).toBeGreaterThan(2)
    expect(await contentOf(app.databaseUrl)).not.toEqual(before)
    const name = `${directory.path}/moment.gz`
    await writeFile(name, Buffer.concat(chunks))
    await restoreTo(target, name)
    expect(await contentOf(target.url)).toEqual(before)
  })

  test('writes a file for its owner alone, and replaces one only with --force', async () => {
    const folder = `${directory.path}/nightly`
    await mkdir(folder)
    const name = `${folder}/b.gz`
    const flowtrail = flowtrailWith({ DATABASE_URL: app.databaseUrl })
    await writeFile(name, 'precious')
    expect(await flowtrail('backup', name)).toEqual(
      refusal(`File ${name} exists; name another, or replace it with --force`),
    )
    expect(await readFile(name, 'utf8')).toBe('precious')
    await chmod(name, 0o644)
    await printed(flowtrail('backup', name, '--force'))
    expect((await stat(name)).mode & 0o777).toBe(0o600)
    expect((await flowtrail('restore', '--check', name)).status).toBe(0)
    expect(await readdir(folder)).toEqual(['b.gz'])
  })

  test('replaces the file that a symbolic link leads to', async () => {
    const folder = `${directory.path}/linked`
    await mkdir(`${folder}/disk`, { recursive: true })
    await writeFile(`${folder}/disk/b.gz`, 'old')
    await symlink('disk/b.gz', `${folder}/b.gz`)
    await printed(flowtrailWith({ DATABASE_URL: app.databaseUrl })('backup', '--force', `${folder}/b.gz`))
    expect(await readlink(`${folder}/b.gz`)).toBe('disk/b.gz')
    expect(await readdir(`${folder}/disk`)).toEqual(['b.gz'])
    expect((await flowtrailWith({})('restore', '--check', `${folder}/disk/b.gz`)).status).toBe(0)
    // Before there is a file as well.
    await symlink('disk/first.gz', `${folder}/first.gz`)
    await printed(flowtrailWith({ DATABASE_URL: app.databaseUrl })('backup', `${folder}/first.gz`))
    expect(await readlink(`${folder}/first.gz`)).toBe('disk/first.gz')
    expect(await readdir(`${folder}/disk`)).toEqual(['b.gz', 'first.gz'])
    // Through another link, and one in a folder that is a link itself.
    await mkdir(`${folder}/disk/deep`)
    await symlink('missing/b.gz', `${folder}/dangling`)
    expect(await flowtrailWith({ DATABASE_URL: app.databaseUrl })('backup', `${folder}/dangling`)).toEqual(
      refusal(`Cannot write ${folder}/dangling: there is no folder ${folder}/missing`),
    )
    await symlink('disk/deep', `${folder}/short`)
    await symlink('../second.gz', `${folder}/disk/deep/link.gz`)
    await symlink('short/link.gz', `${folder}/second.gz`)
    await printed(flowtrailWith({ DATABASE_URL: app.databaseUrl })('backup', `${folder}/second.gz`))
    expect(await readlink(`${folder}/second.gz`)).toBe('short/link.gz')
    expect(await readlink(`${folder}/disk/deep/link.gz`)).toBe('../second.gz')
    expect(await readdir(`${folder}/disk`)).toEqual(['b.gz', 'deep', 'first.gz', 'second.gz'])
  })

  test('is written where the folder cannot be synced', async () => {
    const error = Object.assign(new Error('EINVAL: invalid argument, fsync'), { code: 'EINVAL' })
    await using handle = await open(directory.path)
    const sync = vi.spyOn(Object.getPrototypeOf(handle), 'sync').mockRejectedValue(error)
    onTestFinished(() => sync.mockRestore())
    await printed(flowtrailWith({ DATABASE_URL: app.databaseUrl })('backup', `${directory.path}/unsynced.gz`))
    expect(sync).toHaveBeenCalledOnce()
    expect((await flowtrailWith({})('restore', '--check', `${directory.path}/unsynced.gz`)).status).toBe(0)
  })

  test('names the file when the disk is full, and leaves none', async () => {
    const folder = `${directory.path}/full`
    await mkdir(folder)
    const full = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' })
    const write = vi.spyOn(fs, 'write').mockImplementation((...args: unknown[]) => {
      ;(args.at(-1) as (error: Error) => void)(full)
    })
    onTestFinished(() => write.mockRestore())
    const name = `${folder}/b.gz`
    expect(await flowtrailWith({ DATABASE_URL: app.databaseUrl })('backup', name)).toEqual(
      refusal(`Cannot write ${name}: ENOSPC: no space left on device`),
    )
    expect(await readdir(folder)).toEqual([])
  })

  test('says when its snapshot was taken, for which it may have waited', async () => {
    const name = `${directory.path}/waited.gz`
    const lock = await holdLock(app.databaseUrl, 'LOCK TABLE projects')
    const backup = flowtrailWith({ DATABASE_URL: app.databaseUrl })('backup', name)
    await lock.waiting(1)
    const released = new Date()
    await lock.release()
    await printed(backup)
    const { stderr } = await flowtrailWith({})('restore', '--check', name)
    const [, taken = ''] = /^Backup of (\S+),/.exec(stderr) ?? []
    expect(new Date(taken).getTime()).toBeGreaterThanOrEqual(released.getTime())
  })

  test('does not replace a file that is created meanwhile', async () => {
    const folder = `${directory.path}/meanwhile`
    await mkdir(folder)
    const name = `${folder}/b.gz`
    const lock = await holdLock(app.databaseUrl, 'LOCK TABLE projects')
    const backup = flowtrailWith({ DATABASE_URL: app.databaseUrl })('backup', name)
    await lock.waiting(1)
    await writeFile(name, 'precious')
    await lock.release()
    expect(await backup).toEqual(refusal(`File ${name} exists; name another, or replace it with --force`))
    expect(await readFile(name, 'utf8')).toBe('precious')
    expect(await readdir(folder)).toEqual(['b.gz'])
  })

  test('refuses what is no file, and where there is nothing to back up', async () => {
    const flowtrail = flowtrailWith({ DATABASE_URL: app.databaseUrl })
    const nowhere = `${directory.path}/missing/b.gz`
    expect(await flowtrail('backup', nowhere)).toEqual(
      refusal(`Cannot write ${nowhere}: there is no folder ${directory.path}/missing`),
    )
    expect(await flowtrail('backup', `${file}/b.gz`)).toEqual(
      refusal(`Cannot write ${file}/b.gz: ENOTDIR: not a directory`),
    )
    expect(await flowtrail('backup', directory.path, '--force')).toEqual(
      refusal(`${directory.path} is not a file; expected one, or - for standard output`),
    )
    expect(await flowtrail('backup', '', '--force')).toEqual(
      refusal('"" is not a file; expected one, or - for standard output'),
    )
    expect(await flowtrail('backup', `${directory.path}/new/`)).toEqual(
      refusal(`${directory.path}/new/ is not a file; expected one, or - for standard output`),
    )
    const empty = await database('template0')
    expect(await flowtrailWith({ DATABASE_URL: empty.url })('backup', '-')).toEqual(
      refusal('Nothing to back up: the database has no tables. Check DATABASE_URL or, without it, DATA_DIR'),
    )
  })

  test('writes to no terminal, and fails when its reader closes the pipe', async () => {
    const stdout = Object.assign(new Writable(), { isTTY: true })
    const stderr = new PassThrough()
    const env = { DATABASE_URL: app.databaseUrl }
    expect(await run(['backup', '-'], { env, stdin: Readable.from([]), stdout, stderr })).toBe(2)
    expect(String(stderr.read())).toBe('flowtrail: Standard output is a terminal; name a file\n')
    expect(await shell('{ node src/cli/main.ts backup -; echo "status $?" >&2; } | head -c 1', env)).toMatchObject({
      stderr: 'flowtrail: Standard output was closed before the backup was complete\nstatus 1\n',
    })
  })

  test.each(['SIGKILL', 'SIGTERM'] as const)('that %s ends leaves no file that looks whole', async (signal) => {
    const folder = `${directory.path}/${signal}`
    await mkdir(folder)
    const obstacle = await holdLock(app.databaseUrl, 'LOCK TABLE events IN ACCESS EXCLUSIVE MODE')
    const process = runFlowtrail(['backup', `${folder}/b.gz`], { DATABASE_URL: app.databaseUrl })
    await obstacle.waiting(1)
    expect(await readdir(folder)).toEqual([expect.stringMatching(/^b\.gz\..*\.partial$/)])
    process.child.kill(signal)
    await process.exit
    await obstacle.release()
    expect(await readdir(folder)).toHaveLength(signal === 'SIGKILL' ? 1 : 0)
    expect(await readdir(folder)).not.toContain('b.gz')
  })
})

describe('restore', () => {
  test('reads a pipe, which it cannot check before', async () => {
    const empty = await database('template0')
    const lines = [`mkfifo "$DIR/pipe"`, `cat "$DIR/backup.gz" > "$DIR/pipe" &`, `bin/flowtrail restore "$DIR/pipe"`]
    const restored = await shell(lines.join('\n'), { DATABASE_URL: empty.url, DIR: directory.path })
    expect(restored).toMatchObject({ status: 0, stdout: expect.stringMatching(/^projects +\d+$/m) })
  })

  test('rejects a pipe that has no backup without waiting for its end', async () => {
    const settings = { DATABASE_URL: (await database('template0')).url }
    const { writer, process } = await runOnPipe('restore', `${directory.path}/endless`, settings)
    await writer.write('garbage\n')
    expect(await process.exit).toBe(2)
    expect(process.stderr()).toMatch(/^flowtrail: .*endless is not a backup of Flowtrail/)
  })

  const json = (changes: object) => async () => {
    const [header = '', ...rest] = (await gunzip(bytes)).toString('latin1').split('\n')
    return gzip(Buffer.from([JSON.stringify({ ...JSON.parse(header), ...changes }), ...rest].join('\n'), 'latin1'))
  }
  const flipped = (at: number) => () => {
    const copy = Buffer.from(bytes)
    const i = Math.floor(at * (copy.length - 1))
    copy[i] = (copy[i] as number) ^ 1
    return copy
  }
  const lines = async (change: (lines: string[]) => string[]) =>
    gzip(Buffer.from(change((await gunzip(bytes)).toString('latin1').split('\n')).join('\n'), 'latin1'))

  const BAD: [string, () => Buffer | Promise<Buffer>, string][] = [
    ['nothing', () => Buffer.alloc(0), 'is not a backup of Flowtrail'],
    ['text', () => Buffer.from('{"flowtrail_backup":1}\n'), 'is not a backup of Flowtrail'],
    ['compressed text', () => gzip('{"type":"project"}\n{}'), 'is not a backup of Flowtrail'],
    ['a single line', () => gzip('x'), 'is not a backup of Flowtrail'],
    [
      'another format',
      json({ flowtrail_backup: 2, version: '9.9' }),
      'was made by another release: restore it with Flowtrail 9.9',
    ],
    ['a changed line', json({ taken_at: 'never' }), 'is damaged or incomplete: its checksum does not match'],
    [
      'a line that is no object',
      () => lines((all) => all.with(1, 'null')),
      'is damaged or incomplete: its checksum does not match',
    ],
    [
      'a missing row',
      () => lines((all) => all.toSpliced(2, 1)),
      'is damaged or incomplete: its checksum does not match',
    ],
    ['no end', () => lines((all) => all.slice(0, -2)), 'is damaged or incomplete: it ends too early'],
    ['rows without end', () => lines((all) => all.slice(0, 3)), 'is damaged or incomplete: it ends too early'],
    [
      'more after its end',
      () => lines((all) => [...all, ...all]),
      'is damaged or incomplete: more follows after its end',
    ],
    ...[0.1, 0.5, 0.9].map((at): (typeof BAD)[number] => [
      `the first ${at * 100} %`,
      () => bytes.subarray(0, at * bytes.length),
      'is damaged or incomplete: unexpected end of file',
    ]),
    ['all but the last byte', () => bytes.subarray(0, -1), 'is damaged or incomplete: unexpected end of file'],
    ...[0.2, 0.4, 0.6, 0.8, 1].map((at): (typeof BAD)[number] => [
      `a flipped bit after ${at * 100} %`,
      flipped(at),
      'is damaged or incomplete: .*',
    ]),
  ]

  test.each(BAD)('refuses %s and changes nothing', async (_, content, message) => {
    const name = `${directory.path}/bad.gz`
    await writeFile(name, await content())
    const target = await database('template0')
    expect(await restoreTo(target, name)).toEqual(refusal(`${name} ${message}`))
    expect(await query(target.url, "SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace")).toEqual([])
    const piped = flowtrailWith({ DATABASE_URL: target.url }, [await readFile(name)])
    expect(await piped('restore', '-')).toEqual(
      refusal('(Standard input (is|was)|Nothing was restored: the backup has) .*'),
    )
    expect(Object.values(await contentOf(target.url)).flat()).toEqual([])
  })

  test('says on one line what a backup says of itself, whatever that is', async () => {
    const name = `${directory.path}/coloured.gz`
    await writeFile(name, await json({ taken_at: '\u001b[31mnever\n' })())
    const { stderr } = await flowtrailWith({})('restore', '--check', name)
    expect(stderr).toMatch(/^Backup of {2}\[31mnever , by Flowtrail .*\n.* its checksum does not match/)
  })

  test('has the migrations in the order of their names, whatever the collation of the database', async () => {
    const { url } = await database('template0')
    const collated = 'CREATE COLLATION ignoring_punctuation (provider = icu, locale = $$en-US-u-ka-shifted$$)'
    await query(url, collated)
    await query(url, 'CREATE TABLE kysely_migration (name text COLLATE ignoring_punctuation)')
    await query(url, "INSERT INTO kysely_migration VALUES ('0004-indexes'), ('0004-index-of')")
    const migrations = await withPool(url, async (pool) => {
      const client = await pool.connect()
      return readMigrations(client).finally(() => client.release())
    })
    expect(migrations).toEqual(['0004-index-of', '0004-indexes'])
  })

  test('refuses the schema of a newer release, a missing file and a directory', async () => {
    const name = `${directory.path}/newer.gz`
    const target = await database('template0')
    const source = await database()
    await query(source.url, "INSERT INTO kysely_migration VALUES ('9999-future', now()::text)")
    await printed(flowtrailWith({ DATABASE_URL: source.url })('backup', name))
    expect(await restoreTo(target, name)).toEqual(
      refusal(`${name} has the schema of a newer release \\(9999-future\\). Restore it with that release`),
    )
    expect(await restoreTo(target, `${name}.gz`)).toEqual(refusal(`File ${name}.gz does not exist`))
    expect(await restoreTo(target, directory.path)).toEqual(
      refusal(`${directory.path} is a directory; expected a file, or - for standard input`),
    )
  })

  test('refuses a database that is not empty', async () => {
    const target = await database()
    await query(target.url, "INSERT INTO projects VALUES ('mine', 'Mine')")
    expect(await restoreTo(target, file)).toEqual(
      refusal('Nothing was restored: the database is not empty: table projects has rows. Restore into an empty one'),
    )
    expect(await query(target.url, 'SELECT name FROM projects')).toEqual([{ name: 'Mine' }])
  })

  test('refuses one in which another process creates a project at the same time', async () => {
    const target = await database()
    const other = await holdLock(target.url, "INSERT INTO projects VALUES ('mine', 'Mine')")
    const restoring = restoreTo(target, file)
    await other.waiting(1)
    await other.query('COMMIT')
    expect((await restoring).stderr).toContain('the database is not empty')
    await other.release()
    expect(await query(target.url, 'SELECT name FROM projects')).toEqual([{ name: 'Mine' }])
  })

  test('refuses rows that the schema does not take', async () => {
    const target = await database()
    await query(target.url, "ALTER TABLE events ADD CHECK (event_type = 'other')")
    expect(await restoreTo(target, file)).toEqual(refusal(`${file} is damaged, or not of this schema: .*`))
    expect(Object.values(await contentOf(target.url)).flat()).toEqual([])
  })

  test('fails when the database does not store every row', async () => {
    const target = await database()
    await query(
      target.url,
      `CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
       CREATE TRIGGER swallow BEFORE INSERT ON api_keys FOR EACH ROW EXECUTE FUNCTION swallow()`,
    )
    expect(await restoreTo(target, file)).toMatchObject({
      status: 1,
      stderr: expect.stringMatching(/\nflowtrail: PostgreSQL has not stored every row\n$/),
    })
    expect(Object.values(await contentOf(target.url)).flat()).toEqual([])
  })

  test('names a table that is not in the database', async () => {
    const [source, target] = [await database(), await database()]
    await query(source.url, 'CREATE TABLE notes (note text)')
    const name = `${directory.path}/notes.gz`
    await printed(flowtrailWith({ DATABASE_URL: source.url })('backup', name))
    expect(await restoreTo(target, name)).toEqual(
      refusal('Nothing was restored: the backup has a table notes \\(note\\). Create it in the database first'),
    )
  })

  test('that is interrupted while it checks a backup says so', async () => {
    const child = startShell('exec node src/cli/main.ts restore - --check', {})
    const closed = once(child, 'close')
    child.stdin.on('error', () => {})
    child.stdin.write(bytes.subarray(0, -100))
    let output = ''
    for await (const chunk of child.stderr) {
      output += chunk
      if (/^Backup of .*\n$/.test(output)) child.kill('SIGINT')
    }
    expect((await closed)[0]).toBe(130)
    expect(output).toMatch(/^Backup of .*\nflowtrail: interrupted\n$/)
  })

  test('that is interrupted when everything is restored says so', async () => {
    const target = await database()
    const child = startShell('exec node src/cli/main.ts restore -', { DATABASE_URL: target.url })
    const [output, closed] = [text(child.stderr), once(child, 'close')]
    child.stdin.write(bytes.subarray(0, -100))
    const locks = `SELECT FROM pg_locks WHERE relation = 'projects'::regclass AND mode = 'ShareRowExclusiveLock' AND granted`
    await vi.waitFor(async () => expect(await query(target.url, locks)).toHaveLength(1), { timeout: 30_000 })
    // It comes next, before the ANALYZE.
    const obstacle = holdLock(target.url, 'LOCK TABLE projects IN SHARE MODE')
    const waiting = `${locks.replace('ShareRowExclusiveLock', 'ShareLock').replace('AND granted', 'AND NOT granted')}`
    await vi.waitFor(async () => expect(await query(target.url, waiting)).toHaveLength(1), { timeout: 30_000 })
    child.stdin.end(bytes.subarray(-100))
    await (await obstacle).waiting(1)
    child.kill('SIGTERM')
    expect((await closed)[0]).toBe(143)
    await (await obstacle).release()
    expect(await output).toMatch(
      /^flowtrail: everything is restored, and what follows was interrupted\. Run: .* migrate\n$/,
    )
    expect(await query(target.url, 'SELECT FROM events')).not.toEqual([])
  })

  test('that is killed leaves an empty database, into which it can be restored again', async () => {
    const target = await database()
    const child = startShell('exec node src/cli/main.ts restore -', { DATABASE_URL: target.url })
    child.stdin.on('error', () => {})
    child.stdin.write(bytes.subarray(0, -100))
    const copying = `SELECT query FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND query LIKE 'COPY %'`
    const copies = async (count: number) => expect(await query(target.url, copying)).toHaveLength(count)
    await vi.waitFor(() => copies(1), { timeout: 30_000 })
    child.kill('SIGKILL')
    await once(child, 'close')
    await vi.waitFor(() => copies(0), { timeout: 30_000 })
    expect(Object.values(await contentOf(target.url)).flat()).toEqual([])
    expect((await restoreTo(target, file)).status).toBe(0)
    expect(await query(target.url, 'SELECT FROM events')).not.toEqual([])
  })
})
