import type { LightMyRequestResponse } from 'fastify'
import { sql } from 'kysely'
import { inject } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import type { Scope } from '../../src/domain/api-key.ts'
import type { OperationId } from '../../src/http/operations.ts'
import { createTestApp, type TestApp } from '../support/app.ts'
import { createDatabaseProxy, type DatabaseProxy } from '../support/database-proxy.ts'
import { exampleCall, isWrite, type Variation } from '../support/example-call.ts'

/**
 * The states in which a service responds differently: `whole`; `written`, the same, for recording, which must not affect
 * the reads; `busy`, where the key has used up its rate limit; `faulty`, which lacks tables, and `keyless`, that of the keys;
 * `away` from its database.
 */
type State = 'whole' | 'written' | 'busy' | 'faulty' | 'keyless' | 'away'

/** How to produce one response of an operation: by its example request, or a variation of it. */
export interface Case extends Variation {
  at?: State
  /** Sent with a key that has only this scope. */
  scope?: Scope
  /** Sent before, for its side effects. */
  first?: Variation
}

const RATE_PER_MINUTE = 2

/** A service in each state, each on a database of its own with the document's examples. */
export class States {
  readonly #apps: Record<State, TestApp>
  readonly #proxy: DatabaseProxy

  private constructor(apps: Record<State, TestApp>, proxy: DatabaseProxy) {
    this.#apps = apps
    this.#proxy = proxy
  }

  static async start(): Promise<States> {
    const proxy = await createDatabaseProxy(inject('databaseServer'))
    const [whole, written, busy, faulty, keyless, away] = await Promise.all([
      createTestApp(),
      createTestApp(),
      createTestApp({ config: { rateLimitPerMinute: RATE_PER_MINUTE } }),
      createTestApp(),
      createTestApp(),
      createTestApp({ reach: proxy.reach }),
    ])
    for (const table of ['modules', 'module_versions', 'erasures']) {
      await sql`ALTER TABLE ${sql.table(table)} RENAME TO ${sql.table(`lost_${table}`)}`.execute(faulty.db)
    }
    await sql`ALTER TABLE api_keys RENAME TO lost_api_keys`.execute(keyless.db)
    // Opens the connections that are lost next.
    await away.call(exampleCall('listModules'))
    await away.call(exampleCall('recordCustomEvent'))
    proxy.cut()
    return new States({ whole, written, busy, faulty, keyless, away }, proxy)
  }

  /** Sends the request of a case, after what has to come before it. */
  async produce(operationId: OperationId, { at, scope, first, ...variation }: Case): Promise<LightMyRequestResponse> {
    const app = this.#apps[at ?? (isWrite(operationId) ? 'written' : 'whole')]
    const key =
      scope && (await createKey(app.db, 'demo', { name: `${scope} alone`, scopes: [scope], expires_at: null }))
    const call = exampleCall(operationId, { key, ...variation })
    if (first) await app.call(exampleCall(operationId, first))
    if (at === 'busy') for (let spent = 0; spent < RATE_PER_MINUTE; spent += 1) await app.call(call)
    return app.call(call)
  }

  async close(): Promise<void> {
    try {
      await Promise.all(Object.values(this.#apps).map((app) => app.close()))
    } finally {
      await this.#proxy.close()
    }
  }
}
