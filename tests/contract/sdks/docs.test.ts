import { globSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, test } from 'vitest'
import { generators, home, versionOf } from './generators.ts'

const DOCS = readFileSync(path.join(home, '../../../docs/sdks.md'), 'utf8')
const [introduction = '', ...sections] = DOCS.split(/^## /m)

test('every folder with a client is listed as a generator', () => {
  const folders = globSync('*/run', { cwd: home }).map((script) => path.dirname(script))
  expect(folders.sort()).toEqual([...generators].sort())
})

test('the table lists the generators with their pinned versions', () => {
  const rows = [...introduction.matchAll(/^\| \[(\S+)\]\(#(\S+)\) \| [^|]+ \| ([^|]+) \| [^|]+ \|$/gm)]
  expect(rows.map(([, ...cells]) => cells)).toEqual(generators.map((name) => [name, name, versionOf(name)]))
})

describe.each(generators)('the section on %s', (generator) => {
  const section = sections.find((text) => text.startsWith(`${generator}\n`)) ?? ''
  const blocks = [...section.matchAll(/^```(\w+)\n(.*?)^```$/gms)].map(([, language, code = '']) => ({
    language,
    code,
  }))
  const others = blocks.filter(({ language }) => language !== 'sh')
  const commands = blocks.filter(({ language }) => language === 'sh').flatMap(({ code }) => code.trim().split('\n'))
  const files = globSync(['run', '*.*', 'src/**/*.*'], { cwd: path.join(home, generator) })
  const texts = files
    .map((file) => readFileSync(path.join(home, generator, file), 'utf8'))
    .map((text) => text.replaceAll(/..\/..\/..\/..\/openapi\/(?=openapi.yaml)|generated\/(?=no-import.yaml)/g, ''))

  test('has the pinned versions, in a command or a build file, and code', () => {
    const code = blocks.map(({ code }) => code).join('')
    for (const version of versionOf(generator).split(' + ')) expect(code).toContain(version)
    expect(others).not.toHaveLength(0)
  })

  test('installs the TypeScript that is tested', () => {
    const installed = commands.flatMap((command) => command.match(/ typescript\S*$/g) ?? [])
    for (const one of installed) {
      const { devDependencies } = JSON.parse(readFileSync(path.join(home, generator, 'package.json'), 'utf8'))
      expect(one).toBe(` typescript@${devDependencies.typescript.replace(/\.\d+$/, '')}`)
    }
  })

  test.each(others)('has code that is tested: $language', ({ code }) => {
    expect(texts.filter((text) => text.includes(code))).not.toHaveLength(0)
  })

  test('generates with the options that are tested', () => {
    const generating = commands.filter((command) => / (openapi|generator)\.yaml\b/.test(command))
    const options = generating.flatMap((command) => command.match(/ --?[a-z][\w-]*/g) ?? [])
    for (const option of options) expect(texts.join()).toContain(option)
  })
})
