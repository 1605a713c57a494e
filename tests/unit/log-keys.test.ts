import { globSync, readFileSync } from 'node:fs'
import fastify from 'fastify'
import { expect, test } from 'vitest'
import { formatKey, generateKey } from '../../src/domain/api-key.ts'
import { isServerLog, keysIn, logSearch, searchedLogger } from '../support/log-keys.ts'

const [key, other] = [formatKey(generateKey()), formatKey(generateKey())]

test('keys are found wherever they are in a text, and what is not well-formed is none', () => {
  expect(keysIn(`x${key}${other}/`)).toEqual([key, other])
  expect(keysIn(`{"url":"/a?key=${key}","id":"${key.slice(0, 15)}"}`)).toEqual([key])
  expect(keysIn(`${key.slice(0, -1)} ${key.slice(0, -1)}${key.endsWith('0') ? '1' : '0'}`)).toEqual([])
})

test('a key is found in a log line that comes in parts, and not in other lines', () => {
  const found: string[] = []
  const search = logSearch(isServerLog, (key) => found.push(key))
  search(`Key: ${key}\n{"level":30,"msg":"${key.slice(0, 20)}`)
  expect(found).toEqual([])
  search(Buffer.from(`${key.slice(20)}"}\nKey: ${key}`))
  expect(found).toEqual([key])
})

test('a key that an app logs is found, and the line is written', async () => {
  const [found, lines]: [string[], string[]] = [[], []]
  const stream = { write: (line: string) => void lines.push(line) }
  for (const logger of [false, { level: 'info', stream }]) {
    const app = fastify({ logger: searchedLogger(logger, (key) => found.push(key)) })
    app.log.info({ key }, 'used')
    await app.close()
  }
  expect(found).toEqual([key, key])
  expect(lines.map((line) => JSON.parse(line).key)).toEqual([key])
})

test('the log of every app and process of Flowtrail that tests start is searched', () => {
  const files = globSync('tests/**/*.ts', { exclude: ['**/node_modules/**', 'tests/unit/log-keys.test.ts'] })
  const using = (pattern: RegExp) => files.filter((file) => pattern.test(readFileSync(file, 'utf8')))
  const building = using(/\bbuildApp\(/)
  expect(building).toContain('tests/support/app.ts')
  for (const file of building) {
    const text = readFileSync(file, 'utf8')
    expect(text.match(/logger: searchedLogger\(/g)?.length, file).toBe(text.match(/\bbuildApp\(/g)?.length)
  }
  // What starts processes without these two starts other programs.
  expect(using(/spawn\((FLOWTRAIL|'\/bin\/sh')|(spawn|execFile|fork)\([^)]*(bin\/flowtrail|main\.ts)/).sort()).toEqual([
    'tests/cli/run.ts',
    'tests/support/service.ts',
  ])
})
