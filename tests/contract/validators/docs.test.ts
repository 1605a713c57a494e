import { globSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'

const PAGE = readFileSync(path.join(import.meta.dirname, '../../../docs/contract-testing.md'), 'utf8')
const [, section = ''] = PAGE.split('\n## Validate responses strictly\n')

/** What the tested programs have beside the code that the page shows. */
const withoutHarness = (text: string) =>
  text
    .replace('process.env.FLOWTRAIL_DOCUMENT ?? ', '')
    .replace("os.environ.get('FLOWTRAIL_DOCUMENT', 'openapi.strict.json')", "'openapi.strict.json'")
    .replace(/^import (os|sys|\{ text \} from 'node:stream\/consumers')\n/gm, '')

test.each(['js', 'py', 'go'])('the %s code of the page is what make validators runs', (language) => {
  const [code = ''] = [...section.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\`$`, 'gms'))].map(
    ([, text]) => text,
  )
  expect(code).not.toBe('')
  const programs = globSync('*/{validate.*,main.go}', { cwd: import.meta.dirname })
  const texts = programs.map((file) => withoutHarness(readFileSync(path.join(import.meta.dirname, file), 'utf8')))
  expect(texts.filter((text) => text.includes(code))).toHaveLength(1)
})

test('the page names the versions that make validators uses', () => {
  const read = (file: string) => readFileSync(path.join(import.meta.dirname, file), 'utf8')
  const { packages } = JSON.parse(read('../../../package-lock.json'))
  const [, python] = /^jsonschema==(\S+)/m.exec(read('jsonschema/requirements.txt')) ?? []
  const [, go] = /kin-openapi v(\S+)/.exec(read('kin-openapi/go.mod')) ?? []
  const [ajv, formats] = ['ajv', 'ajv-formats'].map((name) => packages[`node_modules/${name}`].version)
  expect(section).toContain(`ajv@${ajv} ajv-formats@${formats}`)
  expect(section).toContain(`jsonschema==${python}`)
  expect(section).toContain(`](https://github.com/getkin/kin-openapi) ${go}:`)
})
