import { readFileSync } from 'node:fs'
import path from 'node:path'

const GUIDE = readFileSync(path.join(import.meta.dirname, '../../docs/recording.md'), 'utf8')

/** A section of docs/recording.md. */
export function sectionOf(heading: string): string {
  const [, text = ''] = GUIDE.split(`\n## ${heading}\n`)
  return text.split(/\n## /, 1)[0] ?? ''
}

/** The code blocks of a section in a language, in their order. */
export function snippets(heading: string, language: 'js' | 'html' | 'sh'): string[] {
  const blocks = sectionOf(heading).matchAll(/^```(\w+)\n(.*?)^```$/gms)
  return [...blocks].flatMap(([, its, code = '']) => (its === language ? [code] : []))
}
