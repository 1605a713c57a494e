import type { Database } from '../database/pool.ts'
import type { Followers } from '../feed/followers.ts'
import type { Recorder } from '../recording/recorder.ts'
import type { Importer } from '../transfer/importer.ts'

/** What handlers may use. */
export interface Context {
  db: Database
  recorder: Recorder
  followers: Followers
  importer: Importer
}
