/**
 * Preloaded (`node --import`) into a server process of the ablation: switches one optimisation off by changing the
 * source text of modules as Node loads them, so that production code needs no switch for it.
 */
import { readFileSync } from 'node:fs'
import { registerHooks } from 'node:module'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { setFlagsFromString } from 'node:v8'
import { OPTIMIZATIONS, patched } from './optimizations.ts'

const ROOT = path.join(import.meta.dirname, '../..')
const name = process.env.FLOWTRAIL_ABLATION
const optimization = OPTIMIZATIONS.find((one) => one.name === name)
if (!optimization) throw new Error(`FLOWTRAIL_ABLATION=${name} is not one of ${OPTIMIZATIONS.map(({ name }) => name)}`)

for (const flag of optimization.v8Flags ?? []) setFlagsFromString(flag)
const sources = new Map(
  Object.entries(optimization.patches ?? {}).map(([file, replacements]) => {
    const absolute = path.join(ROOT, file)
    return [pathToFileURL(absolute).href, patched(readFileSync(absolute, 'utf8'), replacements)]
  }),
)
registerHooks({
  load(url, context, nextLoad) {
    const loaded = nextLoad(url, context)
    const source = sources.get(url)
    return source === undefined ? loaded : { ...loaded, source }
  },
})
