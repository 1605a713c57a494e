import { styleText } from 'node:util'
import { Command, InvalidArgumentError } from 'commander'
import type { components } from '../../generated/api.ts'
import { readConfig } from '../config.ts'
import { detectDistribution } from '../database/distribution.ts'
import type { Database } from '../database/pool.ts'
import { projectEvent } from '../feed/event-records.ts'
import { Followers } from '../feed/followers.ts'
import { findLastPositions, selectFeedPage } from '../queries/events.ts'
import { resourceId } from './arguments.ts'
import type { Context, Output } from './context.ts'
import { onDatabase, untilInterrupted } from './interruptible.ts'
import { print, printable } from './output.ts'
import { requireProject } from './projects.ts'

type ProjectEvent = components['schemas']['ProjectEvent']

const PAGE_ROWS = 1_000
/** How long one wait for events may last; another follows, unless the database is away. */
const WAIT_ms = 5_000
/** How long the database may be silent while a result is awaited, all of which are quick. */
const QUERY_TIMEOUT_ms = 5_000

interface TailOptions {
  project: string
  since: 'now' | number
  json?: boolean
}

export const tailCommand = ({ env, stdout, stderr }: Context) =>
  new Command('tail')
    .description('print the events of a project as they are recorded and imported')
    .requiredOption('--project <id>', 'project id (required)', resourceId)
    .option('--since <place>', 'where to begin: start, now, or after a position', place, 'now')
    .option('--json', 'print each event as in the feed of the API, one JSON object on a line')
    .action(({ project, since, json }: TailOptions) =>
      untilInterrupted(() =>
        onDatabase(
          readConfig(env),
          stderr,
          async (db) => {
            await requireProject(db, project)
            await detectDistribution(db)
            const format = json ? JSON.stringify : lineOf(stdout)
            const position = since === 'now' ? (await findLastPositions(db, project))?.events : since
            await follow(db, project, position ?? 0, async (events) =>
              print(stdout, events.map((event) => `${format(event)}\n`).join('')),
            )
          },
          { queryTimeout_ms: QUERY_TIMEOUT_ms },
        ),
      ),
    )

function place(text: string): TailOptions['since'] {
  if (text === 'now') return text
  if (text === 'start') return 0
  const position = /^\d+$/.test(text) ? Number(text) : Number.NaN
  if (!Number.isSafeInteger(position))
    throw new InvalidArgumentError('Expected start, now, or the position of an event.')
  return position
}

/** Hands all events after a position to `receive`, in pages, and then those that come. Ends with an error of either. */
async function follow(
  db: Database,
  projectId: string,
  position: number,
  receive: (events: ProjectEvent[]) => Promise<void>,
): Promise<never> {
  const followers = new Followers(db, { maxFollowers: 2 })
  // Memory is the operator's own here.
  const lease = { extend: async () => {}, begin: async () => {}, pause: <T>({ ended }: { ended: Promise<T> }) => ended }
  const query = { limit: PAGE_ROWS, direction: 'ASC', wait: 0 } as const
  let seen = position
  let known = position
  for (;;) {
    const { rows } = await selectFeedPage(db, { path: { projectId }, query, lease }, [seen])
    seen = rows.at(-1)?.position ?? seen
    if (rows.length > 0) {
      await receive(rows.map(projectEvent))
      continue
    }
    const found = await followers.wait('events', projectId, Math.max(seen, known), WAIT_ms).ended
    if (found === undefined) await requireProject(db, projectId)
    known = found ?? known
  }
}

/** Formats an event for people: when and in which module it happened, what, and in whose entry. */
function lineOf(stdout: Output): (event: ProjectEvent) => string {
  const paint = (style: Parameters<typeof styleText>[0], text: string) =>
    stdout.isTTY ? styleText(style, text, { validateStream: false }) : text
  return (event) => {
    const what = event.custom_event_name ?? event.page_key ?? event.page_id ?? ''
    const props = event.custom_event_props === '{}' ? '' : (event.custom_event_props ?? '')
    return [
      paint('dim', event.timestamp),
      paint('cyan', printable(event.module_id)),
      event.custom_event_name === undefined ? printable(event.event_type) : paint('yellow', 'custom event'),
      paint('bold', printable(what)),
      printable(props),
      paint('dim', `entry ${printable(event.entry_id)}`),
    ]
      .filter((part) => part !== '')
      .join('  ')
  }
}
