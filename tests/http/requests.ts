import { setImmediate } from 'node:timers/promises'
import type { LightMyRequestResponse } from 'fastify'
import { sql } from 'kysely'
import { expect, onTestFinished, vi } from 'vitest'
import type { Database } from '../../src/database/pool.ts'
import { Turns } from '../../src/domain/turns.ts'

/** A valid custom event of a contact that the examples contain. */
export const EVENT = {
  module_id: 'skin-quiz',
  timestamp: '2026-03-01T09:41:12.345Z',
  custom_event_name: 'coupon_applied',
  custom_event_props: '{"code":"OAK10"}',
  identifiers: [{ key: 'email', value: '"amara.okafor@example.com"' }],
}

/** The event as JSON text, with the value of one field replaced by other JSON text. */
export const eventWith = (field: keyof typeof EVENT, json: string) =>
  `{${Object.entries(EVENT)
    .map(([name, value]) => `"${name}":${name === field ? json : JSON.stringify(value)}`)
    .join(',')}}`

/** Moves the clock on by longer than a key is cached, until the test ends. */
export function outliveKeyCache(): void {
  const now = performance.now.bind(performance)
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now() + 1_000)
  onTestFinished(() => clock.mockRestore())
}

const TABLES = ['contacts', 'contact_identifiers', 'entries', 'events', 'idempotency_keys'] as const

/** The number of rows in each table that recording writes to. */
export async function rowCounts(db: Database): Promise<Record<string, number>> {
  const counts = TABLES.map((table) => sql`(SELECT count(*) FROM ${sql.table(table)}) AS ${sql.ref(table)}`)
  const { rows } = await sql<Record<string, number>>`SELECT ${sql.join(counts)}`.execute(db)
  return rows[0] ?? {}
}

/** Expects a 400 with exactly these issues, each `pointer message`. */
export function expectIssues(response: LightMyRequestResponse, issues: string[]): void {
  expect(response.statusCode).toBe(400)
  expect(response.json().error.code).toBe('invalid_request')
  const details: { pointer: string; message: string }[] = response.json().error.details ?? []
  expect(details.map(({ pointer, message }) => `${pointer} ${message}`)).toEqual(issues)
}

/** Has others take a turn of the event loop wherever work may leave them one, until the test has finished. */
export function takeTurns() {
  const turns = { taking: 0, most: 0 }
  const next = vi.spyOn(Turns.prototype, 'next').mockImplementation(async () => {
    turns.taking += 1
    turns.most = Math.max(turns.most, turns.taking)
    await setImmediate()
    turns.taking -= 1
  })
  onTestFinished(() => next.mockRestore())
  return { next, turns }
}
