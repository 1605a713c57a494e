import type { Handlers } from '../http/operations.ts'
import type { Context } from './context.ts'
import { getEntry, listEntryEvents, listEntryPageViews } from './entries.ts'
import { recordCustomEvent } from './events.ts'
import { getModule, getModuleVersion, listModules, listModuleVersions } from './modules.ts'

export const handlers = {
  listModules,
  getModule,
  listModuleVersions,
  getModuleVersion,
  getEntry,
  listEntryEvents,
  listEntryPageViews,
  recordCustomEvent,
} satisfies Handlers<Context>
