import type { Handlers } from '../http/operations.ts'
import type { Context } from './context.ts'
import { getEntry, listEntries, listEntryEvents, listEntryPageViews } from './entries.ts'
import { listProjectEvents, recordCustomEvent } from './events.ts'
import { getModule, getModuleVersion, listModules, listModuleVersions } from './modules.ts'

export const handlers = {
  listModules,
  getModule,
  listModuleVersions,
  getModuleVersion,
  listEntries,
  getEntry,
  listEntryEvents,
  listEntryPageViews,
  listProjectEvents,
  recordCustomEvent,
} satisfies Handlers<Context>
