import pg from 'pg'
import { isConnectionError } from './client.ts'

/** SQLSTATE classes and codes of an outage or an overload, not of a wrong statement. */
const UNAVAILABLE_CLASSES = new Set([
  '08', // connection exception
  '28', // login refused: it is the service's own
  '3D', // database does not exist
  '53', // out of connections, memory or disk
  '57', // shutdown, crash, cancelled by a timeout
  '58', // system error outside PostgreSQL
])
/** What befalls single statements of a database that is there. */
const STATEMENT_CODES = [
  '25P03', // idle-in-transaction timeout
  '25P04', // transaction timeout
  '26000', // no such prepared statement: the query ahead, which was to prepare it, failed
  '42P05', // duplicate prepared statement: after such a failure, several queries prepare it again
  '40001', // serialization failure, after retries
  '40P01', // deadlock, after retries
  '55P03', // lock not available in time
  '57014', // cancelled by a timeout
]
const UNAVAILABLE_CODES = new Set([
  '25006', // read-only transaction: a standby, or a failover under way
  ...STATEMENT_CODES,
])

const CONNECTION_FAILURE = '08006'

/** The functions of Citus that report a node which broke off in the middle of a statement, as an internal error. */
const NODE_LOST = ['ReportResultError', 'ErrorIfPostCommitFailedShardPlacements', 'InitializeCopyShardState']

/** Citus passes on a node's error in a COPY without its SQLSTATE (`ReportCopyError`): by their messages, those that pass. */
const COPY_ERRORS: readonly [message: RegExp, code: string][] = [
  [/^(terminating connection|the database system is) /, CONNECTION_FAILURE],
  [/^canceling statement due to lock timeout/, '55P03'],
  [/^canceling statement /, '57014'],
  [/^deadlock detected/, '40P01'],
  [/^could not serialize access /, '40001'],
  [/ in a read-only transaction$/, '25006'],
  [/No space left on device/, '53100'],
]

/** The SQLSTATE of a server's error; undefined for any other error. */
function sqlStateOf(error: unknown): string | undefined {
  if (!(error instanceof pg.DatabaseError)) return undefined
  const { code, routine = '', message } = error
  if (code !== 'XX000') return code
  if (NODE_LOST.includes(routine)) return CONNECTION_FAILURE
  if (routine !== 'ReportCopyError') return code
  return COPY_ERRORS.find(([pattern]) => pattern.test(message))?.[1] ?? code
}

/** pg's messages when it gets no connection or one breaks; these errors have no code. */
const CONNECTION_LOST =
  /^(Connection terminated|timeout exceeded when trying to connect|Query read timeout|Client (was closed|has encountered a connection error|network socket))/

/** Whether an error is that of a pool which has ended: the process stops, and what it has not done can be sent again. */
const isAfterEnd = (error: unknown) => error instanceof Error && /^Cannot use a pool after/.test(error.message)

/** Whether an error means that the database is unavailable for now: the same request may succeed later. */
export function isUnavailable(error: unknown): boolean {
  const code = sqlStateOf(error)
  if (code !== undefined) return UNAVAILABLE_CLASSES.has(code.slice(0, 2)) || UNAVAILABLE_CODES.has(code)
  if (error instanceof AggregateError) return error.errors.some(isUnavailable)
  if (!(error instanceof Error)) return false
  return (
    isConnectionError(error) ||
    ('syscall' in error && 'code' in error) ||
    CONNECTION_LOST.test(error.message) ||
    isAfterEnd(error)
  )
}

/** Whether an error means that the database itself is away, and not only that a statement took too long or lost a race. */
export const isOutage = (error: unknown): boolean =>
  isUnavailable(error) && !STATEMENT_CODES.includes(sqlStateOf(error) ?? '') && !isAfterEnd(error)

/** Whether a statement was cancelled, as by the statement timeout. */
export const isCancelled = (error: unknown): boolean => sqlStateOf(error) === '57014'

/** Whether a lock was not available within the lock timeout. */
export const isLockTimeout = (error: unknown): boolean => sqlStateOf(error) === '55P03'

/** Whether a setting cannot have the value, as on a platform that lacks what it sets. */
export const isInvalidSetting = (error: unknown): boolean => sqlStateOf(error) === '22023'

/**
 * Whether a prepared statement was planned before the type of one of its columns changed. Prepared again, it succeeds.
 * PostgreSQL uses the code for other unsupported features, too, and names the function that raised the error.
 */
export const isStalePlan = (error: unknown): boolean =>
  error instanceof pg.DatabaseError && error.code === '0A000' && error.routine === 'RevalidateCachedQuery'

/** Whether the whole transaction may succeed if it is run again: a serialization failure or a deadlock. */
export const isRetryable = (error: unknown): boolean => ['40001', '40P01'].includes(sqlStateOf(error) ?? '')
