import { CONTACT_ID_KEY } from '../domain/identifier.ts'
import { mergedTable, NAMED_ENTRIES, namingTable, on, REPEATED_EVENTS, SHAPES } from './merge-rules.ts'
import { KINDS, type Staged, stagedTable, TABLES } from './stage.ts'

/** A line that contradicts an earlier line or what is stored. */
export interface Fault {
  line: number
  field: string
  reason: string
}

/** The one on the earlier line; the first where both are on one line. */
export const earlier = (a?: Fault, b?: Fault): Fault | undefined => (a && (!b || a.line <= b.line) ? a : b)

/** A search for lines that are wrong in one way. */
export interface Check {
  /** The kind that the check reads: without rows of it there is nothing to find. */
  kind: Staged
  /** Selects `line` and `field` of what is wrong, the first line first. */
  sql: string
  reason: string
}

function missingParent(kind: Staged, parent: Staged, columns: string[]): Check {
  const { key } = SHAPES[parent]
  return {
    kind,
    reason: `no such ${parent} is stored or on an earlier line`,
    sql: `SELECT i.line, '/${columns.at(-1)}' AS field FROM ${namingTable(kind)} i
      WHERE NOT EXISTS (SELECT FROM ${TABLES[parent]} p WHERE ${on('p', 'i', key, columns)})
        AND NOT EXISTS (SELECT FROM ${mergedTable(parent)} p WHERE ${on('p', 'i', key, columns)} AND p.line < i.line)
      ORDER BY i.line`,
  }
}

/** The pointer of the first column for which the condition holds, else null. */
const firstField = (columns: string[], condition: (column: string) => string) =>
  `CASE ${columns.map((column) => `WHEN ${condition(column)} THEN '/${column}'`).join(' ')} END`

function changedColumn(kind: Staged): Check {
  const { key, fixed, conflict } = SHAPES[kind]
  const differs = (column: string) => `i.${column} <> COALESCE(t.${column}, m.${column})`
  const field =
    kind === 'identifier'
      ? `CASE WHEN ${differs('contact_id')} THEN '/identifiers/' || i.place END`
      : firstField(fixed, differs)
  return {
    kind,
    reason: `differs from what is stored or on an earlier line: ${conflict}`,
    sql: `SELECT line, field FROM (
        SELECT i.line, ${kind === 'identifier' ? 'i.place' : '0'} AS place, ${field} AS field
        FROM ${stagedTable(kind)} i
        JOIN ${mergedTable(kind)} m ON ${on('m', 'i', key)}
        LEFT JOIN ${TABLES[kind]} t ON ${on('t', 'i', key)}
      ) compared WHERE field IS NOT NULL ORDER BY line, place`,
  }
}

/** A contact is known by the identifier `contact_id` that holds its own id, so no other contact may own that one. */
const takenId = (contacts: string, condition: string): Check => ({
  kind: 'identifier',
  reason: `is the id of another contact, which alone is known by the identifier ${CONTACT_ID_KEY} with that value`,
  sql: `SELECT i.line, '/identifiers/' || i.place || '/value' AS field FROM ${stagedTable('identifier')} i
    WHERE i.claimed_contact_id <> i.contact_id AND EXISTS (
      SELECT FROM ${contacts} c
      WHERE c.project_id = i.project_id AND c.contact_id = i.claimed_contact_id AND ${condition})
    ORDER BY i.line, i.place`,
})
const claimedId = (claim: string): Check => ({
  kind: 'contact',
  reason: `is the value of the identifier ${CONTACT_ID_KEY} of another contact, so that no contact can have that id`,
  sql: `SELECT m.line, '/contact_id' AS field FROM ${mergedTable('contact')} m
    WHERE NOT EXISTS (SELECT FROM contacts c WHERE c.project_id = m.project_id AND c.contact_id = m.contact_id)
      AND EXISTS (${claim})
    ORDER BY m.line`,
})

/** The columns of an event that are derived where a line leaves them out, and whether it does not. */
const GIVEN: Record<string, string> = {
  module_version_number: 'i.module_version_number IS NOT NULL',
  max_page_id: 'i.max_page_given',
  max_page_key: 'i.max_page_given',
  max_page_index: 'i.max_page_given',
  total_pages: 'i.total_pages_given',
}

const PARENT_CHECKS = KINDS.flatMap((kind) =>
  SHAPES[kind].parents.map((parent) => ({
    parent: parent.kind,
    check: missingParent(kind, parent.kind, parent.columns),
  })),
)

/** The checks to run before the new projects are inserted, which they would take for stored ones. */
export const PROJECT_CHECKS = PARENT_CHECKS.filter(({ parent }) => parent === 'project').map(({ check }) => check)

/** The checks to run under the lock of the projects. */
export const CHECKS: Check[] = [
  ...PARENT_CHECKS.filter(({ parent }) => parent !== 'project').map(({ check }) => check),
  ...KINDS.filter((kind) => SHAPES[kind].fixed.length > 0).map(changedColumn),
  {
    kind: 'module',
    reason: 'must have a published version, stored or in this file',
    sql: `SELECT m.line, '/module_id' AS field FROM ${mergedTable('module')} m
      WHERE NOT EXISTS (SELECT FROM module_versions v WHERE ${on('v', 'm', ['project_id', 'module_id'])}
          AND v.published_at IS NOT NULL)
        AND NOT EXISTS (SELECT FROM ${mergedTable('module_version')} v
          WHERE ${on('v', 'm', ['project_id', 'module_id'])} AND v.published_at IS NOT NULL)
      ORDER BY m.line`,
  },
  takenId('contacts', 'true'),
  takenId(mergedTable('contact'), 'c.line < i.line'),
  claimedId(`SELECT FROM contact_identifiers s WHERE s.project_id = m.project_id AND s.contact_id <> m.contact_id
    AND s.digest = sha256('\\x${Buffer.from(`${CONTACT_ID_KEY}\0s`).toString('hex')}' || convert_to(m.contact_id, 'UTF8'))`),
  claimedId(`SELECT FROM ${stagedTable('identifier')} i WHERE i.project_id = m.project_id
    AND i.claimed_contact_id = m.contact_id AND i.contact_id <> m.contact_id AND i.line < m.line`),
  {
    kind: 'event',
    reason: 'no such version of the module is stored or on an earlier line',
    sql: `SELECT i.line, '/module_version_number' AS field FROM ${NAMED_ENTRIES} i
      LEFT JOIN entries e ON ${on('e', 'i', ['project_id', 'entry_id'])}
      LEFT JOIN ${mergedTable('entry')} m ON ${on('m', 'i', ['project_id', 'entry_id'])}
      WHERE i.module_version_number IS NOT NULL
        AND NOT EXISTS (SELECT FROM module_versions v WHERE v.project_id = i.project_id
          AND v.module_id = COALESCE(e.module_id, m.module_id) AND v.version_number = i.module_version_number)
        AND NOT EXISTS (SELECT FROM ${mergedTable('module_version')} v WHERE v.project_id = i.project_id
          AND v.module_id = COALESCE(e.module_id, m.module_id) AND v.version_number = i.module_version_number
          AND v.line < i.line)
      ORDER BY i.line`,
  },
  {
    kind: 'event',
    reason: 'differs from the stored event of this id: an event cannot change',
    sql: `SELECT line, field FROM (
        SELECT i.line, ${firstField(SHAPES.event.kept, (column) =>
          [GIVEN[column], `i.${column} IS DISTINCT FROM t.${column}`].filter(Boolean).join(' AND '),
        )} AS field
        FROM ${stagedTable('event')} i JOIN events t ON ${on('t', 'i', ['project_id', 'event_id'])}
      ) compared WHERE field IS NOT NULL ORDER BY line`,
  },
  {
    kind: 'event',
    reason: 'differs from an earlier line with the same event_id',
    sql: `SELECT line, field FROM (
        SELECT i.line, ${firstField(SHAPES.event.kept, (column) =>
          column in GIVEN
            ? `(i.${column}, ${GIVEN[column]}) IS DISTINCT FROM (f.${column}, ${GIVEN[column]?.replace('i.', 'f.')})`
            : `i.${column} IS DISTINCT FROM f.${column}`,
        )} AS field
        FROM ${REPEATED_EVENTS} repeated
        JOIN ${stagedTable('event')} f ON f.line = repeated.line
        JOIN ${stagedTable('event')} i ON ${on('i', 'repeated', ['project_id', 'event_id'])}
      ) compared WHERE field IS NOT NULL ORDER BY line`,
  },
]
