import type { LightMyRequestResponse } from 'fastify'
import { sql } from 'kysely'
import { createKey } from '../../src/cli/keys.ts'
import type { OperationId } from '../../src/http/operations.ts'
import type { Scope } from '../../src/keys.ts'
import { createTestApp, type TestApp } from '../support/app.ts'
import { startDatabaseProxy } from '../support/database-proxy.ts'
import { exampleCall, type Variation } from '../support/example-call.ts'

/**
 * The states in which a service answers differently: `whole`; `busy`, where every key has spent its rate; `faulty`,
 * which lacks tables it needs; `away` from its database.
 */
type State = 'whole' | 'busy' | 'faulty' | 'away'

/** How to produce one answer of an operation: by its example request, or as this differs from it. */
export interface Case extends Variation {
  at?: State
  /** Sent with a key that has this scope alone. */
  scope?: Scope
  /** Made before, for what it leaves behind. */
  first?: Variation
}

export const RATE_PER_MINUTE = 2

/** A service in each state, all on databases of their own with the document's examples. */
export class States {
  readonly #apps: Record<State, TestApp>
  readonly #keys: Record<Scope, string>
  readonly #release: () => Promise<void>

  private constructor(apps: Record<State, TestApp>, keys: Record<Scope, string>, release: () => Promise<void>) {
    this.#apps = apps
    this.#keys = keys
    this.#release = release
  }

  static async start(): Promise<States> {
    const proxy = await startDatabaseProxy()
    const [whole, busy, faulty, away] = await Promise.all([
      createTestApp(),
      createTestApp({ config: { rateLimitPerMinute: RATE_PER_MINUTE } }),
      createTestApp(),
      createTestApp({ reach: proxy.reach }),
    ])
    const keyWith = (scope: Scope) =>
      createKey(whole.db, 'demo', { name: `${scope} alone`, scopes: [scope], expires_at: null })
    const keys = { read: await keyWith('read'), 'events:write': await keyWith('events:write') }
    for (const table of ['modules', 'module_versions']) {
      await sql`ALTER TABLE ${sql.table(table)} RENAME TO ${sql.table(`lost_${table}`)}`.execute(faulty.db)
    }
    // It had connections, in use and idle, before it lost them.
    await away.call(exampleCall('listModules'))
    await away.call(exampleCall('recordCustomEvent'))
    await proxy.cut()
    return new States({ whole, busy, faulty, away }, keys, () => proxy.close())
  }

  /** Makes the request of a case, and what has to come before it. */
  async produce(operationId: OperationId, { at = 'whole', scope, first, ...variation }: Case) {
    const app = this.#apps[at]
    const make = (variation: Variation): Promise<LightMyRequestResponse> =>
      app.call(exampleCall(operationId, { ...(scope && { key: this.#keys[scope] }), ...variation }))
    if (first) await make(first)
    if (at === 'busy') for (let spent = 0; spent < RATE_PER_MINUTE; spent += 1) await make(variation)
    return make(variation)
  }

  async close(): Promise<void> {
    await Promise.all(Object.values(this.#apps).map((app) => app.close()))
    await this.#release()
  }
}
