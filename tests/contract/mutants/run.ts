import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import { useServer } from '../../support/global-setup.ts'
import { type Findings, KILLERS, type Killer, RIGHT } from './killers.ts'
import { MUTANTS, type Mutant, mutationOf } from './mutants.ts'
import { askPrism } from './prism.ts'
import { askSchemathesis } from './schemathesis.ts'
import { runSuite } from './suite.ts'

/**
 * `make mutants`: makes the service wrong in one way after the other, shows which of the checks see it, and fails when
 * one is seen by none, or no longer by one that its entry names. `ONLY=name,name` takes these alone and shows all.
 */
const WIDTH_columns = 160

const only = process.env.ONLY?.split(',')
only?.forEach(mutationOf)
const mutants = Object.entries(MUTANTS).filter(([name]) => only?.includes(name) ?? true)
const names = mutants.map(([name]) => name)

const findings = await ask()
const rows = mutants.map(([name, mutant]) => ({ name, mutant, kills: killsOf(mutant, findings.get(name)) }))
printTable()
const complaints = [...ofTheRight(), ...rows.flatMap(ofMutant)]
for (const complaint of complaints) console.log(complaint)
process.exitCode = complaints.length > 0 ? 1 : 0

async function ask(): Promise<Map<string, Findings>> {
  const exchanges = mkdtempSync(path.join(tmpdir(), 'flowtrail-mutants-'))
  for (const name of [RIGHT, ...names]) mkdirSync(path.join(exchanges, name))
  const server = await useServer()
  process.env.TEST_DATABASE_URL = server.url
  try {
    const all = await runSuite(names, exchanges)
    const prism = await askPrism([RIGHT, ...names], exchanges)
    const schemathesis = await askSchemathesis(names, server.url)
    for (const [name, found] of all)
      Object.assign(found, { prism: prism.get(name), schemathesis: schemathesis.get(name) })
    return all
  } finally {
    await server.release()
    rmSync(exchanges, { recursive: true })
  }
}

type Kills = Partial<Record<Killer, string>>
type Row = { name: string; mutant: Mutant; kills: Kills }

/** By each killer the finding that tells of this mutant; what else breaks on the way does not count. */
function killsOf({ told }: Mutant, found: Findings = {}): Kills {
  const kills = KILLERS.map((killer) => [killer, found[killer]?.find((finding) => told.test(finding))])
  return Object.fromEntries(kills.filter(([, finding]) => finding !== undefined))
}

/** What is wrong when the service is not: then nothing is said about mutants. */
function ofTheRight(): string[] {
  const found = Object.entries(findings.get(RIGHT) ?? {})
  return found.flatMap(([killer, all]) =>
    all.map((finding) => `The right service is refused by ${killer}: ${shown(finding)}`),
  )
}

function ofMutant({ name, mutant, kills }: Row): string[] {
  if (Object.keys(kills).length === 0) {
    return [
      `${name} survives: nothing notices that the service ${mutant.does}. A test is missing; it fails with ${commandOf(name, mutant)}`,
    ]
  }
  return mutant.seenBy.filter((killer) => !(killer in kills)).map((killer) => `${name} is no longer seen by ${killer}.`)
}

function printTable(): void {
  const nameWidth = Math.max(...names.map((name) => name.length))
  const line = (name: string, marks: readonly string[], how: string) => {
    const columns = KILLERS.map((killer, i) => (marks[i] ?? '').padEnd(killer.length))
    return [name.padEnd(nameWidth), ...columns, how].join('  ').slice(0, WIDTH_columns)
  }
  console.log(line('mutant', KILLERS, 'how the first of them tells it'))
  for (const { name, mutant, kills } of rows) {
    const marks = KILLERS.map((killer) => (killer in kills ? 'x' : '-'))
    console.log(line(name, marks, Object.values(kills).map(shown)[0] ?? 'SURVIVES'))
    if (!only) continue
    console.log(`  The service ${mutant.does}. ${commandOf(name, mutant)}`)
    for (const [killer, finding] of Object.entries(kills)) console.log(`  ${killer}: ${shown(finding)}`)
  }
  const killed = rows.filter(({ kills }) => Object.keys(kills).length > 0).length
  const counts = KILLERS.map((killer) => `${killer} ${rows.filter(({ kills }) => killer in kills).length}`)
  console.log(`\n${killed} of ${rows.length} mutants killed; seen by ${counts.join(', ')}`)
}

/** What shows a mutant alone to the tests. */
function commandOf(name: string, { guards }: Mutant): string {
  const files = guards.map((guard) => `tests/${guard}.test.ts`)
  return `FLOWTRAIL_MUTANT=${name} npx vitest run --project unit ${files.join(' ')}`
}

function shown(finding: string): string {
  return stripVTControlCharacters(finding).replace(/\s+/g, ' ').trim()
}
