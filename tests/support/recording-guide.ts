import { readFileSync } from 'node:fs'
import path from 'node:path'

const GUIDE = readFileSync(path.join(import.meta.dirname, '../../docs/recording.md'), 'utf8')

/** The code blocks of a section of docs/recording.md in a language, in their order. */
export function snippets(section: string, language: 'js' | 'html'): string[] {
  const [, text = ''] = GUIDE.split(`\n## ${section}\n`)
  const blocks = text.split(/\n## /, 1)[0]?.matchAll(/^```(\w+)\n(.*?)^```$/gms) ?? []
  return [...blocks].flatMap(([, its, code = '']) => (its === language ? [code] : []))
}
