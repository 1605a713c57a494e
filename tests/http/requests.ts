import type { LightMyRequestResponse } from 'fastify'
import { sql } from 'kysely'
import { expect } from 'vitest'
import type { Database } from '../../src/database/pool.ts'

/** A custom event that is right, of a contact that the examples know. */
export const EVENT = {
  module_id: 'skin-quiz',
  timestamp: '2026-03-01T09:41:12.345Z',
  custom_event_name: 'coupon_applied',
  custom_event_props: '{"code":"OAK10"}',
  identifiers: [{ key: 'email', value: '"amara.okafor@example.com"' }],
}

/** The event as JSON text with one field's value replaced by other JSON text. */
export const eventWith = (field: keyof typeof EVENT, json: string) =>
  `{${Object.entries(EVENT)
    .map(([name, value]) => `"${name}":${name === field ? json : JSON.stringify(value)}`)
    .join(',')}}`

const TABLES = ['contacts', 'contact_identifiers', 'entries', 'events', 'idempotency_keys'] as const

/** How many rows each table that recording writes to has. */
export async function rowCounts(db: Database): Promise<Record<string, number>> {
  const counts = TABLES.map((table) => sql`(SELECT count(*) FROM ${sql.table(table)}) AS ${sql.ref(table)}`)
  const { rows } = await sql<Record<string, number>>`SELECT ${sql.join(counts)}`.execute(db)
  return rows[0] ?? {}
}

/** Holds an answer to be a 400 that says exactly these faults, each `pointer message`. */
export function expectFaults(answer: LightMyRequestResponse, faults: string[]): void {
  expect(answer.statusCode).toBe(400)
  expect(answer.json().error.code).toBe('invalid_request')
  const details: { pointer: string; message: string }[] = answer.json().error.details ?? []
  expect(details.map(({ pointer, message }) => `${pointer} ${message}`)).toEqual(faults)
}
