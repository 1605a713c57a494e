import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { availableParallelism } from 'node:os'
import path from 'node:path'
import { migrate } from '../../../db/migrate.ts'
import { type AppParts, buildApp } from '../../../src/app.ts'
import { loadDemo } from '../../../src/cli/demo.ts'
import { createKey } from '../../../src/cli/keys.ts'
import { connect, connectShared, openImportPool, openWritePool } from '../../../src/database/open.ts'
import type { Database } from '../../../src/database/pool.ts'
import { SCOPES } from '../../../src/domain/api-key.ts'
import { eraseContact } from '../../../src/queries/erasures.ts'
import { PLAIN_CONFIG } from '../../support/app.ts'
import { ERASED } from '../../support/demo-service.ts'
import { databaseUrl, onServer } from '../../support/global-setup.ts'
import { searchedLogger } from '../../support/log-keys.ts'
import { UNMODIFIED } from './detectors.ts'
import { MUTANTS, mutationOf } from './mutants.ts'

type Parts = Pick<AppParts, 'db' | 'writePool' | 'importPool'>

const FUZZ = path.join(import.meta.dirname, '../fuzz/run')

/** A short run: the examples and boundary values of each operation, up to the first failure. */
const SHORT_RUN = ['--phases=examples,coverage', '--max-examples=10', '--max-failures=1', '--no-color']

/** Runs schemathesis briefly over HTTP against one operation of each mutant and all of the unmodified service. */
export async function checkWithSchemathesis(mutants: string[], server: string): Promise<Map<string, string[]>> {
  const name = `flowtrail_mutants_${randomBytes(8).toString('hex')}`
  await onServer(server, `CREATE DATABASE ${name}`)
  const url = databaseUrl(server, name)
  const db = connect(url, { max: 1 })
  const parts = {
    db: connectShared(url, { max: 2 }),
    writePool: openWritePool(url, { max: 4 }),
    importPool: openImportPool(url, { max: 4 }),
  }
  const findings = new Map<string, string[]>()
  try {
    await migrate(db)
    // Two projects with the same ids, so that rows of the wrong project show.
    for (const projectId of ['demo', 'other']) {
      await loadDemo(url, { projectId, entries: 20 })
      await eraseContact(db, projectId, ERASED)
    }
    const keys = await createKeys(db)
    const check = async (service: string) => void findings.set(service, await runAgainst(service, parts, keys))
    // First and alone, since it may have to install schemathesis.
    await check(UNMODIFIED)
    const queue = mutants.values()
    await Promise.all(
      Array.from({ length: availableParallelism() }, async () => {
        for (const mutant of queue) await check(mutant)
      }),
    )
  } finally {
    await Promise.all([db.destroy(), parts.db.destroy(), parts.writePool.end(), parts.importPool.end()])
    await onServer(server, `DROP DATABASE ${name} WITH (FORCE)`)
  }
  return findings
}

async function createKeys(db: Database): Promise<Record<string, string>> {
  const create = (project: string, scopes: readonly string[]) =>
    createKey(db, project, { name: 'mutants', scopes: [...scopes], expires_at: null })
  return {
    FLOWTRAIL_KEY: await create('demo', SCOPES),
    FLOWTRAIL_READ_KEY: await create('demo', ['read']),
    FLOWTRAIL_WRITE_KEY: await create('demo', ['events:write']),
    FLOWTRAIL_OTHER_KEY: await create('other', SCOPES),
  }
}

async function runAgainst(service: string, parts: Parts, keys: Record<string, string>): Promise<string[]> {
  const app = await buildApp({
    config: PLAIN_CONFIG,
    ...parts,
    logger: searchedLogger(),
    extend: (app) => mutationOf(service === UNMODIFIED ? undefined : service)?.(app, parts.db),
  })
  const FLOWTRAIL_URL = await app.listen({ host: '127.0.0.1', port: 0 })
  const operation = MUTANTS[service]?.operation
  const options = [...SHORT_RUN, ...(operation ? [`--include-operation-id=${operation}`] : [])]
  const { status, output } = await run(FUZZ, options, { ...keys, FLOWTRAIL_URL })
  await app.close()
  return status === 0 ? [] : findingsIn(output)
}

/** Each failed check with the first part of its report, or the whole output when it lists none. */
function findingsIn(output: string): string[] {
  const failed = [...output.matchAll(/^- ST\d+ (.+)\n(?:\n(( {4}.+\n)+))?/gm)]
  return failed.length > 0 ? failed.map(([, check, report]) => `${check}: ${report ?? ''}`) : [output]
}

function run(command: string, options: string[], env: Record<string, string>) {
  return new Promise<{ status: number; output: string }>((resolve) => {
    execFile(
      command,
      options,
      { env: { ...process.env, ...env }, maxBuffer: 64 * 2 ** 20 },
      (error, stdout, stderr) => {
        resolve({ status: error ? Number(error.code) : 0, output: stdout + stderr })
      },
    )
  })
}
