import type { Config } from '../config.ts'
import { judgeEncoding, SELECT_ENCODING } from '../database/encoding.ts'
import { usesPooler } from '../database/pooler-client.ts'
import { error, type Finding, ok, warning } from './findings.ts'

/** The majors of PostgreSQL that the tests run on. */
const VERSIONS = { oldest: 15, newest: 18 }
/** Events may be dated in the future by more; a second is what clocks that are synchronised never differ by. */
const MAX_CLOCK_DIFFERENCE_ms = 1_000

/** A query of one row, and what that row means. */
export interface SessionCheck {
  name: string
  sql: string
  // biome-ignore lint/suspicious/noExplicitAny: each has the columns of its query
  judge: (row: any, config: Config) => Finding
}

/**
 * The settings with which sessions of this role and database begin, with the ALTER ROLE or ALTER DATABASE that each is
 * from, if any: of several the most specific one, as PostgreSQL applies them.
 */
const DEFAULT_SETTINGS = (...names: string[]) => `
  SELECT json_object_agg(s.name, json_build_object('value', s.reset_val, 'from', o.target)) AS settings
  FROM pg_settings s LEFT JOIN LATERAL (
    SELECT CASE
      WHEN o.setdatabase = 0 THEN 'ROLE ' || COALESCE(quote_ident(r.rolname), 'ALL')
      WHEN o.setrole = 0 THEN 'DATABASE ' || quote_ident(d.datname)
      ELSE 'ROLE ' || quote_ident(r.rolname) || ' IN DATABASE ' || quote_ident(d.datname)
    END AS target
    FROM pg_db_role_setting o LEFT JOIN pg_roles r ON r.oid = o.setrole LEFT JOIN pg_database d ON d.oid = o.setdatabase
    WHERE (o.setrole = 0 OR r.rolname = session_user) AND (o.setdatabase = 0 OR d.datname = current_database())
      AND EXISTS (SELECT FROM unnest(o.setconfig) c WHERE lower(split_part(c, '=', 1)) = s.name)
    ORDER BY o.setrole = 0, o.setdatabase = 0 LIMIT 1
  ) o ON true
  WHERE s.name IN (${names.map((name) => `'${name}'`)})`

type DefaultSettings = Record<string, { value: string; from: string | null } | undefined>

/** The statement that ends a setting. */
const reset = (name: string, from: string | null | undefined) =>
  from ? `ALTER ${from} RESET ${name}` : `remove ${name} from postgresql.conf, or from the options in DATABASE_URL`

const HAS_TABLES = 'SELECT, INSERT and UPDATE on every table, SELECT on those of migrations'
/** Whether the table is of no extension. */
const IS_OWN = `NOT EXISTS (
      SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')`
const PRIVILEGES = `
  SELECT has_schema_privilege('public', 'USAGE') AS usage, has_schema_privilege('public', 'CREATE') AS ddl,
    has_database_privilege(current_database(), 'TEMPORARY') AS temporary,
    format('%I', current_user) AS role, format('%I', current_database()) AS database,
    ARRAY(
      SELECT format('%s ON %I', string_agg(p, ', '), c.relname)
      FROM pg_class c CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) p
      WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND ${IS_OWN}
        AND (p = 'SELECT' OR c.relname NOT IN ('kysely_migration', 'kysely_migration_lock'))
        AND NOT has_table_privilege(c.oid, p)
      GROUP BY c.relname ORDER BY c.relname
    ) AS missing,
    NOT EXISTS (
      SELECT FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND ${IS_OWN}
        AND c.relname NOT IN ('kysely_migration', 'kysely_migration_lock') AND NOT has_table_privilege(c.oid, 'DELETE')
    ) AS deletes,
    NOT EXISTS (
      SELECT FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relname = 'idempotency_keys'
        AND NOT has_table_privilege(c.oid, 'DELETE')
    ) AS prunes`

/** The checks that need no more than a query, in the order in which they are printed. */
export const SESSION_CHECKS: readonly SessionCheck[] = [
  {
    name: 'version',
    sql: "SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int / 10000 AS major",
    judge: ({ version, major }: { version: string; major: number }) => {
      const { oldest, newest } = VERSIONS
      if (major < oldest) return error(`PostgreSQL ${version}`, `Upgrade PostgreSQL to ${oldest} to ${newest}`)
      if (major > newest) {
        return warning(`PostgreSQL ${version}, which this release was not tested on`, 'Look for a newer Flowtrail')
      }
      return ok(`PostgreSQL ${version}`)
    },
  },
  {
    name: 'encoding',
    sql: SELECT_ENCODING,
    judge: ({ encoding }: { encoding: string }) => {
      const found = judgeEncoding(encoding)
      return found ? error(found.problem, found.fix) : ok(encoding)
    },
  },
  {
    name: 'writable',
    sql: `SELECT pg_is_in_recovery() AS is_standby, defaults.* FROM
      (${DEFAULT_SETTINGS('default_transaction_read_only')}) defaults`,
    judge: ({ is_standby, settings }: { is_standby: boolean; settings: DefaultSettings }) => {
      if (is_standby) return error('a standby, which only reads', 'Use a DATABASE_URL of the primary server')
      const name = 'default_transaction_read_only'
      const { value, from } = settings[name] ?? {}
      return value === 'on' ? error(`${name} is on`, reset(name, from)) : ok('a primary server')
    },
  },
  {
    name: 'fsync',
    sql: "SELECT current_setting('fsync') AS fsync",
    judge: ({ fsync }: { fsync: string }) =>
      fsync === 'on'
        ? ok('on')
        : error(
            'off: a crash of the machine can destroy the whole database',
            'ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf()',
          ),
  },
  {
    name: 'full_page_writes',
    sql: "SELECT current_setting('full_page_writes') AS full_page_writes",
    judge: ({ full_page_writes }: { full_page_writes: string }) =>
      full_page_writes === 'on'
        ? ok('on')
        : warning(
            'off: a crash of the machine can destroy data, unless its storage writes pages of 8 KiB as a whole',
            'ALTER SYSTEM SET full_page_writes = on; SELECT pg_reload_conf()',
          ),
  },
  {
    name: 'synchronous_commit',
    sql: DEFAULT_SETTINGS('synchronous_commit'),
    judge: ({ settings }: { settings: DefaultSettings }) => {
      const { value, from } = settings.synchronous_commit ?? {}
      if (value !== 'off') return ok("on in Flowtrail's sessions")
      return warning(
        "off by default: Flowtrail's own sessions set it on, but a crash can undo what other programs have committed",
        reset('synchronous_commit', from),
      )
    },
  },
  {
    name: 'timeouts',
    sql: DEFAULT_SETTINGS('transaction_timeout', 'lock_timeout'),
    judge: ({ settings }: { settings: DefaultSettings }) => {
      const found = Object.entries(settings).filter(([, setting]) => setting?.value !== '0')
      if (found.length === 0) return ok("none but those that Flowtrail's sessions set themselves")
      const harms = found.map(([name, setting]) => {
        const harmed =
          name === 'lock_timeout' ? 'recordings and migrations that wait' : 'imports, exports and migrations'
        return `${name} is ${setting?.value} ms: it aborts longer ${harmed}`
      })
      return warning(harms.join('; '), found.map(([name, setting]) => reset(name, setting?.from)).join('; '))
    },
  },
  {
    name: 'connections',
    sql: `SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
        - COALESCE(current_setting('reserved_connections', true), '0')::int AS server,
      (SELECT count(*)::int FROM pg_stat_activity
        WHERE datid IS NOT NULL AND application_name <> 'flowtrail') AS others,
      (SELECT rolconnlimit FROM pg_roles WHERE rolname = session_user) AS role,
      (SELECT datconnlimit FROM pg_database WHERE datname = current_database()) AS database`,
    judge: judgeConnections,
  },
  {
    name: 'privileges',
    sql: PRIVILEGES,
    judge: ({ usage, ddl, deletes, prunes, temporary, role, database, missing }, { idempotencyRetention_days }) => {
      const deletesKeys = idempotencyRetention_days !== undefined
      const grants = [
        ...(usage ? [] : ['USAGE ON SCHEMA public']),
        ...(temporary ? [] : [`TEMPORARY ON DATABASE ${database}`]),
        ...missing,
        ...(prunes || !deletesKeys ? [] : ['DELETE ON idempotency_keys']),
      ]
      if (grants.length > 0) {
        const all = grants.map((grant) => `GRANT ${grant} TO ${role}`).join('; ')
        return error(`${role} lacks privileges that the server needs`, all)
      }
      const lacking = [
        ...(deletes ? [] : [`DELETE${deletesKeys ? ' on others' : ''}, which contacts erase and projects delete need`]),
        ...(ddl ? [] : ['CREATE ON SCHEMA public, which migrate needs: run that as the owner']),
      ]
      const tables = deletesKeys ? `${HAS_TABLES}, DELETE on idempotency_keys` : HAS_TABLES
      return ok([`${role} has ${tables}`, ...lacking].join('; it has no '))
    },
  },
]

function judgeConnections(
  limits: { server: number; others: number; role: number; database: number },
  {
    databaseUrl,
    server: { workers },
    connections: { read, write, import: imports },
    idempotencyRetention_days,
    databaseReplicaUrls,
  }: Config,
): Finding {
  if (databaseUrl !== undefined && usesPooler(databaseUrl))
    return ok("not checked: the pooler's connection limits apply, which PostgreSQL does not show")
  const deletesKeys = idempotencyRetention_days !== undefined
  const hasReplicas = databaseReplicaUrls.length > 0
  const needed = workers * (read + write + imports + (hasReplicas ? 1 : 0)) + (deletesKeys ? 1 : 0)
  const times = workers > 1 ? 'WORKERS times ' : ''
  const compared = hasReplicas ? ' and one to compare replicas with' : ''
  const sum = `${times}READ_CONNECTIONS, WRITE_CONNECTIONS and IMPORT_CONNECTIONS${compared}${deletesKeys ? ', and one to delete old keys' : ''}`
  const all = `one server takes up to ${needed} (${sum})`
  const [limit, of, raise] = (
    [
      [limits.server, 'PostgreSQL has', 'Raise max_connections'],
      [limits.role, 'the role has', 'Raise its CONNECTION LIMIT by ALTER ROLE'],
      [limits.database, 'the database has', 'Raise its CONNECTION LIMIT by ALTER DATABASE'],
    ] as const
  )
    // A limit of -1 is none.
    .filter(([count]) => count >= 0)
    .reduce((least, other) => (other[0] < least[0] ? other : least))
  const fix = `${raise}, or lower these settings`
  if (needed > limit) return error(`${all}, ${of} ${limit}`, fix)
  if (needed + limits.others > limits.server) {
    return warning(`${all}, PostgreSQL has ${limits.server}, of which others use ${limits.others} now`, fix)
  }
  return ok(`${all}, ${of} ${limit}`)
}

/** @param difference_ms how far this clock is ahead of the database's @param error_ms how far that may be wrong */
export function judgeClock(difference_ms: number, error_ms: number): Finding {
  const seconds = (Math.abs(difference_ms) / 1_000).toFixed(1)
  if (Math.abs(difference_ms) - error_ms <= MAX_CLOCK_DIFFERENCE_ms) return ok(`${seconds} s from the database's`)
  const direction = difference_ms > 0 ? 'ahead of' : 'behind'
  return warning(`${seconds} s ${direction} the database's`, 'Synchronise both machines by NTP')
}
