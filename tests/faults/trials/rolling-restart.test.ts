import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { connect } from '../../../src/database/open.ts'
import { fillFixture } from '../../recording/fixture.ts'
import { createTestDatabase } from '../../support/database.ts'
import { freePort, kill, startService } from '../../support/service.ts'
import { createLedgerKey, NO_DISCREPANCIES } from './ledger.ts'
import { Load } from './load.ts'
import { report, size, TRIAL_OPTIONS } from './trial.ts'

const ROUNDS = size(1, 50)
/** Longer than nginx keeps idle connections, as the sample configuration demands. */
const DRAIN_DELAY = '3'
const NGINX = '/usr/sbin/nginx'
const SAMPLE = path.join(import.meta.dirname, '../../../deploy/nginx/flowtrail.conf')

/** Runs nginx with the sample configuration before these ports. Resolves to its address and its log of errors so far. */
async function startNginx(ports: string[]): Promise<{ address: string; errors: () => string }> {
  const directory = await mkdtemp(path.join(tmpdir(), 'flowtrail-nginx-'))
  const port = String(await freePort())
  const replacements: [string, string][] = [
    ['8080', `127.0.0.1:${port}`],
    ['127.0.0.1:3000', `127.0.0.1:${ports[0]}`],
    ['127.0.0.1:3001', `127.0.0.1:${ports[1]}`],
  ]
  let sample = await readFile(SAMPLE, 'utf8')
  for (const [from, to] of replacements) {
    expect(sample.split(from), from).toHaveLength(2)
    sample = sample.replace(from, to)
  }
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${directory};`)
  const http = ['access_log off;', ...paths, sample].join('\n')
  const file = path.join(directory, 'nginx.conf')
  await writeFile(file, `daemon off;\nmaster_process off;\npid nginx.pid;\nevents {}\nhttp {\n${http}\n}\n`)
  const nginx = spawn(NGINX, ['-p', directory, '-c', file, '-e', 'stderr'], { stdio: ['ignore', 'ignore', 'pipe'] })
  let errors = ''
  nginx.stderr.on('data', (chunk) => {
    errors += chunk
  })
  onTestFinished(async () => {
    nginx.kill('SIGKILL')
    await rm(directory, { recursive: true })
  })
  const address = `http://127.0.0.1:${port}`
  await expect.poll(() => fetch(`${address}/openapi.json`).then(({ status }) => status)).toBe(200)
  return { address, errors: () => errors }
}

test(
  'two servers behind nginx are restarted one after the other, and no request fails',
  TRIAL_OPTIONS,
  async ({ skip }) => {
    if (!existsSync(NGINX)) return skip('needs the Debian package nginx-light')
    const database = await createTestDatabase()
    const db = connect(database.url, { max: 1 })
    await fillFixture(database.url)
    const key = await createLedgerKey(db)
    const start = (PORT: string) =>
      startService({ DATABASE_URL: database.url, PORT, DRAIN_DELAY, TRUST_PROXY: '127.0.0.1' })
    const ports = [String(await freePort()), String(await freePort())]
    const services = await Promise.all(ports.map(start))
    onTestFinished(async () => {
      await Promise.all(services.map(kill))
      await db.destroy()
      await database.drop()
    })
    const nginx = await startNginx(ports)
    expect((await fetch(`${nginx.address}/metrics`)).status).toBe(404)
    const document = await fetch(`${nginx.address}/openapi.json`, {
      headers: { 'x-forwarded-host': 'elsewhere.example' },
    })
    expect(await document.json()).toMatchObject({ servers: [{ url: nginx.address }] })
    // nginx repeats a post that a stopping server has not answered if it has an Idempotency-Key, which a batch has not.
    const load = new Load(nginx.address, key, false)

    for (let round = 0; round < ROUNDS; round += 1) {
      for (const [i, port] of ports.entries()) {
        await load.untilServed()
        services[i]?.child.kill('SIGTERM')
        expect(await services[i]?.exit).toBe(0)
        services[i] = await start(port)
      }
    }
    await load.untilServed()
    await load.stop()
    const discrepancies = await load.ledger.discrepancies(db)
    const occurrences = (error: string) => nginx.errors().split(error).length - 1
    const [refused, reset] = [occurrences('Connection refused'), occurrences('Connection reset')]
    report({ restarts: 2 * ROUNDS, ...load.counts, refused, reset, ...discrepancies })
    expect(discrepancies).toEqual(NO_DISCREPANCIES)
    expect(load.counts).toEqual({ posts: { 200: load.ledger.acknowledged }, reads: { 200: load.reads[200], 503: 0 } })
    // nginx has sent requests to a server that had stopped.
    expect(refused).toBeGreaterThan(0)
  },
)
