import pg from 'pg'

/** SQLSTATE classes and codes that tell of an outage or overload and not of a wrong statement. */
const UNAVAILABLE_CLASSES = new Set([
  '08', // connection exception
  '28', // the service's own login was refused
  '3D', // its database is gone
  '53', // out of connections, memory or disk
  '57', // shutdown, crash, cancelled by a timeout
  '58', // the system under PostgreSQL failed
])
const UNAVAILABLE_CODES = new Set([
  '25006', // read-only: a standby, or a failover under way
  '25P03', // the server ended the session: its transaction idled for too long
  '25P04', // or took too long
  '26000', // the statement ahead on the connection, which was to prepare this one, failed
  '42P05', // and one behind it came first
  '40001', // serialization failure, after retries
  '40P01', // deadlock, after retries
  '55P03', // lock not available in time
])

const isServerError = (error: unknown): error is pg.DatabaseError & { code: string } =>
  error instanceof pg.DatabaseError && typeof error.code === 'string'

/** What pg says when no connection can be had or one breaks; these errors carry no code. */
const CONNECTION_LOST =
  /^(Connection terminated|timeout exceeded when trying to connect|Query read timeout|Client (was closed|has encountered a connection error|network socket))/

/** Whether an error means that the database cannot be asked just now, so that the same request may succeed later. */
export function isUnavailable(error: unknown): boolean {
  if (isServerError(error)) return UNAVAILABLE_CLASSES.has(error.code.slice(0, 2)) || UNAVAILABLE_CODES.has(error.code)
  if (error instanceof AggregateError) return error.errors.some(isUnavailable)
  if (!(error instanceof Error)) return false
  return ('syscall' in error && 'code' in error) || CONNECTION_LOST.test(error.message)
}

/** Whether a lock was not to be had in the time set for it. */
export const isLockTimeout = (error: unknown): boolean => isServerError(error) && error.code === '55P03'

/** Whether running the whole transaction again may succeed: a serialization failure or a deadlock. */
export function isRetryable(error: unknown): boolean {
  return isServerError(error) && (error.code === '40001' || error.code === '40P01')
}
