import type { Handlers } from '../http/operations.ts'
import type { Context } from './context.ts'
import { getEntry, listEntries, listEntryEvents, listEntryPageViews } from './entries.ts'
import { listErasures } from './erasures.ts'
import { listProjectEvents, recordCustomEvent, recordCustomEvents } from './events.ts'
import { getModule, getModuleVersion, listModules, listModuleVersions } from './modules.ts'
import { importRecords } from './records.ts'

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
  listErasures,
  recordCustomEvent,
  recordCustomEvents,
  importRecords,
} satisfies Handlers<Context>
