import { appendFileSync } from 'node:fs'

// Preloaded into every process of a coverage run, in whose sources each function calls globalThis.onFunction: appends
// each function that runs to the file FUNCTIONS_FILE, at once, since processes of the tests are killed.
const { FUNCTIONS_FILE } = process.env
if (FUNCTIONS_FILE) {
  const reported = new Set<string>()
  const onFunction = (file: string, offset: number) => {
    const line = `${file} ${offset}\n`
    if (reported.has(line)) return
    reported.add(line)
    appendFileSync(FUNCTIONS_FILE, line)
  }
  Object.assign(globalThis, { onFunction })
}
