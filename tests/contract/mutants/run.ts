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
 * `make mutants`: breaks the service in one way after another, shows which checks detect each defect, and fails when none
 * does, or no longer one that the mutant's entry names. `ONLY=name,name` tries only these, with every check, and shows every
 * finding.
 */
const WIDTH_columns = 160

const only = process.env.ONLY?.split(',')
only?.forEach(mutationOf)
const mutants = Object.entries(MUTANTS).filter(([name]) => only?.includes(name) ?? true)
const names = mutants.map(([name]) => name)

const findings = await collectFindings()
const rows = mutants.map(([name, mutant]) => ({ name, mutant, detections: detectionsOf(mutant, findings.get(name)) }))
printTable()
const failures = [...falseAlarms(), ...rows.flatMap(failuresOf)]
for (const failure of failures) console.log(failure)
process.exitCode = failures.length > 0 ? 1 : 0

async function collectFindings(): Promise<Map<string, Findings>> {
  const exchanges = mkdtempSync(path.join(tmpdir(), 'flowtrail-mutants-'))
  for (const name of [UNMODIFIED, ...names]) mkdirSync(path.join(exchanges, name))
  const server = await useServer()
  process.env.TEST_DATABASE_URL = server.url
  try {
    const all = await runSuite(names, exchanges)
    const prism = await checkWithPrism([UNMODIFIED, ...namesFor('prism')], exchanges)
    const schemathesis = await checkWithSchemathesis(namesFor('schemathesis'), server.url)
    for (const [name, found] of all)
      Object.assign(found, { prism: prism.get(name), schemathesis: schemathesis.get(name) })
    return all
  } finally {
    await server.release()
    rmSync(exchanges, { recursive: true })
  }
}

/** The mutants for a check that takes seconds each: those that it must detect, or all that were asked for. */
function namesFor(detector: Detector): string[] {
  return names.filter((name) => only !== undefined || MUTANTS[name]?.detectedBy.includes(detector))
}

type Detections = Partial<Record<Detector, string>>
type Row = { name: string; mutant: Mutant; detections: Detections }

/** For each detector the finding that is due to this mutant; side effects do not count. */
function detectionsOf({ evidence }: Mutant, found: Findings = {}): Detections {
  const detections = DETECTORS.map((detector) => [detector, found[detector]?.find((finding) => evidence.test(finding))])
  return Object.fromEntries(detections.filter(([, finding]) => finding !== undefined))
}

/** Findings about the unmodified service; the checks then prove nothing about mutants. */
function falseAlarms(): string[] {
  const found = Object.entries(findings.get(UNMODIFIED) ?? {})
  return found.flatMap(([detector, all]) =>
    all.map((finding) => `${detector} reports a defect of the unmodified service: ${oneLine(finding)}`),
  )
}

function failuresOf({ name, mutant, detections }: Row): string[] {
  if (Object.keys(detections).length === 0) {
    return [
      `${name} survives: no check detects that the service ${mutant.does}. Add a test that fails with ${commandOf(name, mutant)}`,
    ]
  }
  return mutant.detectedBy
    .filter((detector) => !(detector in detections))
    .map((detector) => `${name} is no longer detected by ${detector}.`)
}

function printTable(): void {
  const nameWidth = Math.max(...names.map((name) => name.length))
  const line = (name: string, marks: readonly string[], finding: string) => {
    const columns = DETECTORS.map((detector, i) => (marks[i] ?? '').padEnd(detector.length))
    return [name.padEnd(nameWidth), ...columns, finding].join('  ').slice(0, WIDTH_columns)
  }
  console.log(line('mutant', DETECTORS, 'first finding'))
  for (const { name, mutant, detections } of rows) {
    const marks = DETECTORS.map((detector) =>
      detector in detections ? 'x' : findings.get(name)?.[detector] ? '-' : '',
    )
    console.log(line(name, marks, Object.values(detections).map(oneLine)[0] ?? 'SURVIVES'))
    if (!only) continue
    console.log(`  The service ${mutant.does}. ${commandOf(name, mutant)}`)
    for (const [detector, finding] of Object.entries(detections)) console.log(`  ${detector}: ${oneLine(finding)}`)
  }
  const detected = rows.filter(({ detections }) => Object.keys(detections).length > 0).length
  const counts = DETECTORS.map(
    (detector) => `${detector} ${rows.filter(({ detections }) => detector in detections).length}`,
  )
  console.log(`\n${detected} of ${rows.length} mutants detected; by ${counts.join(', ')}`)
}

/** Runs the tests on one mutant. */
function commandOf(name: string, { guards }: Mutant): string {
  const files = guards.map((guard) => `tests/${guard}.test.ts`)
  return `FLOWTRAIL_MUTANT=${name} npx vitest run --project unit ${files.join(' ')}`
}

function oneLine(finding: string): string {
  return stripVTControlCharacters(finding).replace(/\s+/g, ' ').trim()
}
