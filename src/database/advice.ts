import pg from 'pg'

/** By SQLSTATE, or by the code of an error of Node's. */
const ADVICE: Record<string, string> = {
  ENOTFOUND: 'The host of DATABASE_URL is unknown: check its name',
  EAI_AGAIN: 'No name server responds for the host of DATABASE_URL: check its name and the network',
  ECONNREFUSED: 'Nothing listens there: start PostgreSQL, or correct host and port in DATABASE_URL',
  ETIMEDOUT: 'The host does not respond: check host and port in DATABASE_URL, and firewalls',
  EHOSTUNREACH: 'The host cannot be reached: check host and port in DATABASE_URL, and firewalls',
  ENOENT: 'There is no such socket: start PostgreSQL, or correct the host in DATABASE_URL',
  EACCES: 'This user may not use the socket: see unix_socket_permissions of PostgreSQL',
  ERR_TLS_CERT_ALTNAME_INVALID: "Use in DATABASE_URL a host name that is in the server's certificate",
  CERT_HAS_EXPIRED: "Renew the server's certificate",
  '08P01': 'If that is a pooler, see docs/operations.md#pgbouncer',
  '25006': 'Use a DATABASE_URL of the primary server; this one only reads',
  '28000': "Check the user in DATABASE_URL, and PostgreSQL's pg_hba.conf, which may require TLS (sslmode=verify-full)",
  '28P01': 'Correct user and password in DATABASE_URL; reserved characters of the password are percent-encoded',
  '3D000': 'Create the database, or correct its name in DATABASE_URL',
  '42501': 'Grant that to the user of DATABASE_URL, or use one that has it: see docs/operations.md#least-privilege',
  '53300':
    'All connections are taken: raise max_connections of PostgreSQL or the CONNECTION LIMIT of the role, ' +
    'or lower READ_CONNECTIONS, WRITE_CONNECTIONS, IMPORT_CONNECTIONS and WORKERS',
  '57P03': 'PostgreSQL is starting or stopping: try again',
}

const OWNER = 'Use a DATABASE_URL of the role that owns the tables (docs/operations.md#least-privilege)'
const UNTRUSTED = "Name the file of your provider's CA certificate in DATABASE_URL: sslrootcert=/path/to/ca.pem"
for (const code of [
  'SELF_SIGNED_CERT_IN_CHAIN',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
]) {
  ADVICE[code] = UNTRUSTED
}

/** What a code does not tell: errors of pg's own have none. */
const ADVICE_BY_MESSAGE: [RegExp, string | undefined][] = [
  [/permission denied for schema/, `Migrations need CREATE on it. ${OWNER}`],
  [/must be owner of/, OWNER],
  [/server does not support SSL/, 'Enable TLS in PostgreSQL (ssl = on), or remove sslmode from DATABASE_URL'],
  [/asks for a password/, 'Add the password: postgres://user:password@host/database'],
  [/connection timeout|timeout expired/, ADVICE.ETIMEDOUT],
  [
    /Query read timeout/,
    'The server takes connections but does not respond: look whether it, or a pooler before it, is paused',
  ],
  // pg's pool has waited for one of its own connections.
  [
    /timeout exceeded when trying to connect/,
    'All of its connections are in use: look for long statements, or raise READ_CONNECTIONS, WRITE_CONNECTIONS or IMPORT_CONNECTIONS',
  ],
]

/** What the operator can do about an error of the database or of connecting to it, as a sentence without its full stop. */
export function adviceFor(error: unknown): string | undefined {
  if (error instanceof AggregateError) return error.errors.map(adviceFor).find(Boolean)
  if (!(error instanceof Error)) return undefined
  const { code } = error as { code?: unknown }
  // Files have codes such as ENOENT, too.
  const isOurs = error instanceof pg.DatabaseError || ('syscall' in error ? isConnecting(error) : true)
  const advice = isOurs && typeof code === 'string' ? ADVICE[code] : undefined
  return ADVICE_BY_MESSAGE.find(([message]) => message.test(error.message))?.[1] ?? advice
}

/** The same for an outage, of which there is always something to say. */
export const adviceForOutage = (error: unknown): string =>
  adviceFor(error) ?? 'Check that PostgreSQL runs and that DATABASE_URL is right'

/** What an error says; of several addresses of a host, that of the first. */
export function messageOf(error: unknown): string {
  const { message } = error instanceof AggregateError ? error.errors[0] : (error as Error)
  return message
}

/** Whether it is Node's error of a connection, or of looking up its host. */
export const isConnecting = (error: unknown): boolean =>
  error instanceof Error && 'syscall' in error && ['connect', 'getaddrinfo'].includes(String(error.syscall))
