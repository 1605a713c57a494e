import { createReadStream, readFileSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import type { Command } from 'commander'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createProgram } from '../../src/cli/program.ts'
import { readConfig } from '../../src/config.ts'
import { createPool } from '../../src/database/pool.ts'
import { type ImportSummary, importRecords } from '../../src/transfer/import.ts'
import { FIELDS, type Field, RECORD_TYPES } from '../../src/transfer/records.ts'
import { createTestDatabase } from '../support/database.ts'
import { freePort, kill, type Process, runFlowtrail } from '../support/service.ts'
import { shell, temporaryDirectory, untilPrinted } from './run.ts'

const document = (name: string) => readFileSync(fileURLToPath(new URL(`../../${name}`, import.meta.url)), 'utf8')
const README = document('README.md')
const IMPORT = document('docs/import.md')

/** The part of a document under a heading, up to the next heading of the same or a higher level. */
function section(text: string, heading: string): string {
  const [, level = ''] = /^(#+) /.exec(heading) ?? []
  const [, rest = ''] = text.split(`\n${heading}\n`)
  return rest.split(new RegExp(`\n#{1,${level.length}} `))[0] ?? ''
}

/** The code blocks of a language, without the indentation of their list. */
const blocks = (text: string, language: string): string[] =>
  [...text.matchAll(new RegExp(`^( *)\`\`\`${language}\n(.*?)^ *\`\`\`$`, 'gms'))].map(([, indent = '', code = '']) =>
    code.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
  )

/** The cells of the rows of a table, without the header. */
const rows = (text: string): string[][] =>
  text
    .split('\n')
    .filter((line) => line.startsWith('| `'))
    .map((line) => line.split(/ *\| */).slice(1, -1))

const codeSpans = (text: string) => [...text.matchAll(/`([^`]+)`/g)].map(([, code = '']) => code)

/** Imports the lines twice into an empty database. */
async function importTwice(lines: string): Promise<[ImportSummary, ImportSummary]> {
  await using directory = await temporaryDirectory()
  const file = `${directory.path}/records.ndjson`
  await writeFile(file, lines)
  const database = await createTestDatabase()
  const pool = createPool(database.url, { max: 1 })
  const load = () => importRecords(pool, createReadStream(file))
  const summaries: [ImportSummary, ImportSummary] = [await load(), await load()]
  await pool.end()
  await database.drop()
  return summaries
}

function expectLoaded([first, second]: [ImportSummary, ImportSummary], lines: string): void {
  expect(first.lines).toBe(lines.trimEnd().split('\n').length)
  for (const type of RECORD_TYPES) {
    expect(first.records[type].added, type).toBeGreaterThan(0)
    expect(second.records[type].unchanged, type).toBe(first.records[type].added)
  }
}

describe('the first five calls', () => {
  const text = section(README, '## The first five calls')
  const calls = blocks(text, 'sh')
  const responses = blocks(text, 'json')
  let directory: Awaited<ReturnType<typeof temporaryDirectory>>
  let database: Awaited<ReturnType<typeof createTestDatabase>>
  let service: Process
  let address: string
  let KEY: string

  beforeAll(async () => {
    ;[directory, database] = await Promise.all([temporaryDirectory(), createTestDatabase()])
    const PORT = String(await freePort())
    address = `127.0.0.1:${PORT}`
    service = runFlowtrail(['serve', '--demo'], {
      DATABASE_URL: database.url,
      DATA_DIR: directory.path,
      LOG_LEVEL: 'warn',
      PORT,
    })
    await untilPrinted(service, 'Press Ctrl-C to stop.', 'stderr')
    KEY = (await readFile(`${directory.path}/demo-key`, 'utf8')).trim()
  })
  afterAll(async () => {
    await kill(service)
    await database.drop()
    await directory[Symbol.asyncDispose]()
  })

  test('are five, each with its response', () => {
    expect([calls.length, responses.length]).toEqual([5, 5])
  })

  test.each(calls.map((call, i) => ({ number: i + 1, call, response: responses[i] ?? '' })))(
    'number $number has the documented response',
    async ({ call, response }) => {
      expect(call).toContain('127.0.0.1:3000/')
      const { status, stdout } = await shell(call.replace('127.0.0.1:3000', address), { KEY })
      expect(status).toBe(0)
      const [body = '', head] = stdout.split('\r\n\r\n').reverse()
      // The id of a recorded event is new each time.
      const documented = JSON.parse(response, (name, value) => (name === 'event_id' ? expect.any(String) : value))
      expect(JSON.parse(body)).toEqual(documented)
      if (head === undefined) return
      expect(head).toMatch(/^link: <\/projects\/[^>]+>; rel="next"$/im)
      expect(head).toMatch(/^next-cursor: \S+$/im)
    },
  )
})

describe('your own data', () => {
  const text = section(README, '## Your own data')

  test('the example can be imported, and importing it again changes nothing', async () => {
    const [lines = ''] = blocks(text, 'json')
    expectLoaded(await importTwice(lines), lines)
  })

  test('the table lists all commands with their options', () => {
    const program = createProgram(process)
    const leaves = program.commands.flatMap((command) => (command.commands.length > 0 ? command.commands : [command]))
    const path = (command: Command): string =>
      command.parent === program || !command.parent ? command.name() : `${path(command.parent)} ${command.name()}`
    const actual = leaves.map((command) => {
      const args = command.registeredArguments.map((argument) => {
        const name = argument.name().replace('-', '_').toUpperCase()
        return argument.required ? name : `[${name}]`
      })
      const options = command.options.map(({ long, mandatory }) => (mandatory ? long : `[${long}]`))
      return [path(command), ...args, ...options].join(' ')
    })
    const documented = rows(text)
      .flatMap(([commands = '']) => codeSpans(commands))
      // The values of options are examples.
      .map((command) => command.replaceAll(/(--[a-z]+) [^\]\s]+/g, '$1').replaceAll('…', ''))
    const inOrder = (commands: string[]) => commands.map((command) => command.split(' ').sort().join(' ')).sort()
    expect(inOrder(documented)).toEqual(inOrder(actual))
  })
})

describe('the settings', () => {
  const settings = rows(section(README, '## Settings')).map(([name = '', ...cells]) => [
    codeSpans(name)[0] ?? '',
    ...cells,
  ])
  // The validators in src/config.ts, the only file that reads settings, are keyed by variable name.
  const validators = new Map(
    [...document('src/config.ts').matchAll(/^ {6}([A-Z_]+): .*default: (.*) }\),$/gm)].map(
      ([, name = '', fallback = '']) => [name, fallback],
    ),
  )

  test('are those that are read', () => {
    expect(settings.map(([name]) => name).sort()).toEqual([...validators.keys()].sort())
  })

  test.each(settings)('%s has the default %s', (name, cell) => {
    const fallback = validators.get(name)
    if (fallback === 'undefined' || fallback === "''") {
      expect(cell).toBe('none')
      return
    }
    const [value = ''] = codeSpans(cell ?? '')
    const checkout = fileURLToPath(new URL('../..', import.meta.url))
    const place = ' in the checkout; of an installed package, in the working directory'
    expect(cell).toBe(name === 'DATA_DIR' ? `\`${value}\`${place}` : `\`${value}\``)
    expect(readConfig({ [name]: name === 'DATA_DIR' ? checkout + value : value })).toEqual(readConfig({}))
  })

  const ranges = rows(section(README, '### Tuning')).map(([name = '', , range = '']) => [
    codeSpans(name)[0] ?? '',
    range,
  ])
  test.each(ranges)('%s has the range %s', (name, range) => {
    const [min, max] = range.split('–').map(Number) as [number, number]
    for (const value of [min, max]) expect(() => readConfig({ [name]: String(value) })).not.toThrow()
    for (const value of [min - 1, max + 1]) expect(() => readConfig({ [name]: String(value) })).toThrow()
  })
})

test('docs/operations.md lists the settings of traces with their defaults', () => {
  const documented = rows(section(document('docs/operations.md'), '## Traces'))
    .filter(([name = '']) => name.startsWith('`OTEL_'))
    .flatMap(([names = '', fallback = '']) => codeSpans(names).map((name) => [name, codeSpans(fallback)[0] ?? 'none']))
  const config = document('src/config.ts')
  const namesOf = (group: string, prefix: string) =>
    [...(new RegExp(`^const ${group} = (.*?)^}`, 'ms').exec(config)?.[1] ?? '').matchAll(/^ {2}([A-Z_]+): /gm)].map(
      ([, name]) => `${prefix}${name}`,
    )
  const read = [...namesOf('TRACING_SETTINGS', 'OTEL_'), ...namesOf('EXPORTER_SETTINGS', 'OTEL_EXPORTER_OTLP_')]
  expect(documented.map(([name]) => name).sort()).toEqual(read.sort())
  const tracing = (settings: Record<string, string>) =>
    readConfig({ OTEL_TRACES_EXPORTER: 'otlp', OTEL_SERVICE_NAME: 'flowtrail', ...settings }).tracing
  for (const [name = '', fallback = ''] of documented)
    expect(tracing(fallback === 'none' ? {} : { [name]: fallback }), name).toEqual(tracing({}))
})

test('make help lists every target that the README mentions', async () => {
  const { status, stdout } = await shell('make help')
  expect(status).toBe(0)
  const named = [...README.matchAll(/(?:^|`)make ([a-z]+)/gm)].map(([, target = '']) => target)
  expect(named).toEqual(expect.arrayContaining(['run', 'test', 'help']))
  for (const target of named) expect(stdout).toMatch(new RegExp(`^  make ${target} +\\S`, 'm'))
})

describe('docs/import.md', () => {
  test.each(RECORD_TYPES)('lists every field of %s, in the order of an export', (type) => {
    const KINDS: Record<Field['column'], RegExp> = {
      text: /^(id|text|label|page text|JSON text|props)$/,
      integer: /^from [01]$/,
      timestamp: /^time$/,
      identifiers: /^array$/,
    }
    const documented = rows(section(IMPORT, `### ${type}`))
    const actual = Object.entries<Field>(FIELDS[type])
    expect(documented.map(([name, , presence]) => [name, presence])).toEqual(
      actual.map(([name, { presence }]) => [`\`${name}\``, presence]),
    )
    for (const [i, [name, { column, nullable }]] of actual.entries()) {
      const kind = documented[i]?.[1] ?? ''
      expect(kind.endsWith(' or null'), name).toBe(nullable)
      expect(kind.replace(' or null', ''), name).toMatch(KINDS[column])
    }
  })

  test('lists the types in the order of an export', () => {
    const headings = section(IMPORT, '## Records').matchAll(/^### (\w+)$/gm)
    expect([...headings].map(([, type]) => type)).toEqual(RECORD_TYPES)
  })

  test('has examples that can be imported, and importing them again changes nothing', async () => {
    const lines = blocks(section(IMPORT, '## Records'), 'json').join('')
    expectLoaded(await importTwice(lines), lines)
  })
})
