import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import { useServer } from '../../support/global-setup.ts'
import { DETECTORS, type Detector, type Findings, UNMODIFIED } from './detectors.ts'
import { MUTANTS, type Mutant, mutationOf } from './mutants.ts'
import { checkWithPrism } from './prism.ts'
import { checkWithSchemathesis } from './schemathesis.ts'
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
const rows = mutants.map(([name, mutant]) => ({ name, mutant, detections: detectionsOf(mutant, findings.get(name)) }))
printTable()
const complaints = [...problemsUnmodified(), ...rows.flatMap(problemsOf)]
for (const complaint of complaints) console.log(complaint)
process.exitCode = complaints.length > 0 ? 1 : 0

async function ask(): Promise<Map<string, Findings>> {
  const exchanges = mkdtempSync(path.join(tmpdir(), 'flowtrail-mutants-'))
  for (const name of [UNMODIFIED, ...names]) mkdirSync(path.join(exchanges, name))
  const server = await useServer()
  process.env.TEST_DATABASE_URL = server.url
  try {
    const all = await runSuite(names, exchanges)
    const prism = await checkWithPrism([UNMODIFIED, ...names], exchanges)
    const schemathesis = await checkWithSchemathesis(names, server.url)
    for (const [name, found] of all)
      Object.assign(found, { prism: prism.get(name), schemathesis: schemathesis.get(name) })
    return all
  } finally {
    await server.release()
    rmSync(exchanges, { recursive: true })
  }
}

type Detections = Partial<Record<Detector, string>>
type Row = { name: string; mutant: Mutant; detections: Detections }

/** By each detector the finding that tells of this mutant; what else breaks on the way does not count. */
function detectionsOf({ evidence }: Mutant, found: Findings = {}): Detections {
  const detections = DETECTORS.map((detector) => [detector, found[detector]?.find((finding) => evidence.test(finding))])
  return Object.fromEntries(detections.filter(([, finding]) => finding !== undefined))
}

/** What is wrong when the service is not: then nothing is said about mutants. */
function problemsUnmodified(): string[] {
  const found = Object.entries(findings.get(UNMODIFIED) ?? {})
  return found.flatMap(([detector, all]) =>
    all.map((finding) => `The right service is refused by ${detector}: ${shown(finding)}`),
  )
}

function problemsOf({ name, mutant, detections }: Row): string[] {
  if (Object.keys(detections).length === 0) {
    return [
      `${name} survives: nothing notices that the service ${mutant.does}. A test is missing; it fails with ${commandOf(name, mutant)}`,
    ]
  }
  return mutant.detectedBy
    .filter((detector) => !(detector in detections))
    .map((detector) => `${name} is no longer seen by ${detector}.`)
}

function printTable(): void {
  const nameWidth = Math.max(...names.map((name) => name.length))
  const line = (name: string, marks: readonly string[], how: string) => {
    const columns = DETECTORS.map((detector, i) => (marks[i] ?? '').padEnd(detector.length))
    return [name.padEnd(nameWidth), ...columns, how].join('  ').slice(0, WIDTH_columns)
  }
  console.log(line('mutant', DETECTORS, 'how the first of them tells it'))
  for (const { name, mutant, detections } of rows) {
    const marks = DETECTORS.map((detector) => (detector in detections ? 'x' : '-'))
    console.log(line(name, marks, Object.values(detections).map(shown)[0] ?? 'SURVIVES'))
    if (!only) continue
    console.log(`  The service ${mutant.does}. ${commandOf(name, mutant)}`)
    for (const [detector, finding] of Object.entries(detections)) console.log(`  ${detector}: ${shown(finding)}`)
  }
  const killed = rows.filter(({ detections }) => Object.keys(detections).length > 0).length
  const counts = DETECTORS.map(
    (detector) => `${detector} ${rows.filter(({ detections }) => detector in detections).length}`,
  )
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
