import { type Kysely, sql } from 'kysely'

/**
 * The initial schema. Every key starts with project_id, so that the tables can be distributed by project, and every
 * identifier is compared bytewise (COLLATE "C"). timestamptz(3) rounds, so writers truncate first.
 */
const statements = [
  `CREATE TABLE projects (
    project_id text COLLATE "C" PRIMARY KEY,
    name text NOT NULL
  )`,
  `CREATE TABLE groups (
    project_id text COLLATE "C" NOT NULL REFERENCES projects (project_id),
    group_id text COLLATE "C" NOT NULL,
    name text NOT NULL,
    PRIMARY KEY (project_id, group_id)
  )`,
  `CREATE TABLE modules (
    project_id text COLLATE "C" NOT NULL,
    module_id text COLLATE "C" NOT NULL,
    group_id text COLLATE "C" NOT NULL,
    title text NOT NULL,
    created_at timestamptz(3) NOT NULL,
    PRIMARY KEY (project_id, module_id),
    FOREIGN KEY (project_id, group_id) REFERENCES groups (project_id, group_id)
  )`,
  'CREATE INDEX modules_created_at_idx ON modules (project_id, created_at, module_id)',
  `CREATE TABLE module_versions (
    project_id text COLLATE "C" NOT NULL,
    module_id text COLLATE "C" NOT NULL,
    version_number integer NOT NULL,
    saved_at timestamptz(3) NOT NULL,
    published_at timestamptz(3),
    json_string text NOT NULL,
    PRIMARY KEY (project_id, module_id, version_number),
    FOREIGN KEY (project_id, module_id) REFERENCES modules (project_id, module_id)
  )`,
  `CREATE INDEX module_versions_published_at_idx
    ON module_versions (project_id, module_id, published_at, version_number) WHERE published_at IS NOT NULL`,
  `CREATE TABLE contacts (
    project_id text COLLATE "C" NOT NULL REFERENCES projects (project_id),
    contact_id text COLLATE "C" NOT NULL,
    created_at timestamptz(3) NOT NULL,
    PRIMARY KEY (project_id, contact_id)
  )`,
  `CREATE TABLE contact_identifiers (
    project_id text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    contact_id text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    PRIMARY KEY (project_id, digest),
    FOREIGN KEY (project_id, contact_id) REFERENCES contacts (project_id, contact_id)
  )`,
  'CREATE INDEX contact_identifiers_contact_id_idx ON contact_identifiers (project_id, contact_id)',
  `CREATE TABLE entries (
    project_id text COLLATE "C" NOT NULL,
    entry_id text COLLATE "C" NOT NULL,
    module_id text COLLATE "C" NOT NULL,
    contact_id text COLLATE "C" NOT NULL,
    created_at timestamptz(3) NOT NULL,
    updated_at timestamptz(3) NOT NULL,
    entry_data text NOT NULL,
    PRIMARY KEY (project_id, entry_id),
    FOREIGN KEY (project_id, module_id) REFERENCES modules (project_id, module_id),
    FOREIGN KEY (project_id, contact_id) REFERENCES contacts (project_id, contact_id)
  )`,
  'CREATE INDEX entries_updated_at_idx ON entries (project_id, updated_at, entry_id)',
  `CREATE INDEX entries_contact_id_idx
    ON entries (project_id, contact_id, module_id, created_at, entry_id)`,
  `CREATE TABLE events (
    project_id text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    entry_id text COLLATE "C" NOT NULL,
    "timestamp" timestamptz(3) NOT NULL,
    module_version_number integer NOT NULL,
    page_index integer,
    max_page_index integer,
    total_pages integer,
    event_type text NOT NULL,
    view_type text,
    page_id text,
    page_key text,
    max_page_id text,
    max_page_key text,
    custom_event_name text,
    custom_event_props text,
    PRIMARY KEY (project_id, event_id),
    FOREIGN KEY (project_id, entry_id) REFERENCES entries (project_id, entry_id)
  )`,
  'CREATE INDEX events_entry_id_idx ON events (project_id, entry_id, "timestamp", event_id)',
  `CREATE INDEX events_page_views_idx
    ON events (project_id, entry_id, "timestamp", event_id) WHERE event_type = 'flowpage.viewed'`,
  // For the furthest page of an entry, whose page views may be many.
  `CREATE INDEX events_furthest_page_idx ON events (project_id, entry_id, page_index DESC, "timestamp", event_id)
    WHERE event_type = 'flowpage.viewed'`,
  // The page views of an entry as the JSON of a response (ADR 0018), for entries that have any. Written by imports only.
  `CREATE TABLE entry_page_views (
    project_id text COLLATE "C" NOT NULL,
    entry_id text COLLATE "C" NOT NULL,
    page_views text NOT NULL,
    PRIMARY KEY (project_id, entry_id),
    FOREIGN KEY (project_id, entry_id) REFERENCES entries (project_id, entry_id)
  )`,
  `CREATE TABLE idempotency_keys (
    project_id text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    request_digest bytea NOT NULL,
    response text NOT NULL,
    PRIMARY KEY (project_id, idempotency_key),
    FOREIGN KEY (project_id, event_id) REFERENCES events (project_id, event_id)
  )`,
  `CREATE TABLE api_keys (
    project_id text COLLATE "C" NOT NULL REFERENCES projects (project_id),
    key_id text COLLATE "C" NOT NULL,
    secret_hash bytea NOT NULL,
    name text NOT NULL,
    scopes text[] NOT NULL,
    created_at timestamptz(3) NOT NULL,
    expires_at timestamptz(3),
    last_used_at timestamptz(3),
    revoked_at timestamptz(3),
    PRIMARY KEY (project_id, key_id)
  )`,
  'CREATE INDEX api_keys_key_id_idx ON api_keys (key_id)',
  // On a Citus cluster the tables are distributed by project; on plain PostgreSQL this does nothing.
  `DO $$
  DECLARE
    distributed text;
  BEGIN
    IF EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') THEN
      FOREACH distributed IN ARRAY ARRAY['projects', 'groups', 'modules', 'module_versions', 'contacts',
        'contact_identifiers', 'entries', 'events', 'entry_page_views', 'idempotency_keys', 'api_keys']
      LOOP
        PERFORM create_distributed_table(distributed, 'project_id');
      END LOOP;
    END IF;
  END $$`,
]

export async function up(db: Kysely<never>): Promise<void> {
  for (const statement of statements) await sql.raw(statement).execute(db)
}
