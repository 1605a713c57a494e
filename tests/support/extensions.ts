import type { FastifyInstance } from 'fastify'
import type { Database } from '../../src/database/pool.ts'

// A registry of what Vitest's setup files add to every service that a test file starts, so that the test support knows
// neither mutants nor recordings. It lives as long as a worker, for each of whose files the setup files run again.

/** Adds hooks to a test app before its routes are registered. @param db a connection to the app's database */
export type AppExtension = (app: FastifyInstance, db: Database) => void

interface AppExtensionOptions {
  /** Responses may violate the document. Tests go on to their own assertions; violations are reported at the end. */
  violatesDocument?: boolean
}

const extensions: ({ extend: AppExtension } & AppExtensionOptions)[] = []
const environment: Record<string, string> = {}

/** Extends every app that `createTestApp` builds from now on, once. */
export function extendTestApps(extend: AppExtension, options: AppExtensionOptions = {}): void {
  if (extensions.some((known) => known.extend === extend)) return
  extensions.push({ extend, ...options })
}

/** Sets environment variables of every process that `runFlowtrail` starts from now on. */
export function extendServiceEnvironment(variables: Record<string, string>): void {
  Object.assign(environment, variables)
}

export const testAppExtensions: readonly ({ extend: AppExtension } & AppExtensionOptions)[] = extensions
export const serviceEnvironment: Readonly<Record<string, string>> = environment
