import { CONTACT_ID_KEY } from '../domain/identifier.ts'
import type { ImportIssue } from './issues.ts'
import {
  columnsEqual,
  DUPLICATE_EVENTS,
  digestOfContactId,
  MERGE_RULES,
  mergedTable,
  REFERENCED_ENTRIES,
  referencesTable,
} from './merge-rules.ts'
import { STAGED_KINDS, type StagedKind, stagedTable } from './stage.ts'
import type { Stored } from './stored.ts'

/** The issue on the earlier line; the first one if both are on the same line. */
export const earlierIssue = (a?: ImportIssue, b?: ImportIssue): ImportIssue | undefined =>
  a && (!b || a.line <= b.line) ? a : b

/** A query for lines that contradict an earlier line or what is stored. */
export interface Check {
  /** The kind of row that the check reads: without such rows it finds nothing. */
  kind: StagedKind
  /** Selects `line` and `field` of the issues, in the order of the lines. */
  sql: string
  message: string
}

function missingParent(kind: StagedKind, parent: StagedKind, { tables }: Stored): Check {
  const { key } = MERGE_RULES[parent]
  return {
    kind,
    message: `no ${parent} with this id is stored or on an earlier line`,
    sql: `SELECT i.line, '/${key.at(-1)}' AS field FROM ${referencesTable(kind)} i
      WHERE NOT EXISTS (SELECT FROM ${tables[parent]} p WHERE ${columnsEqual('p', 'i', key)})
        AND NOT EXISTS (SELECT FROM ${mergedTable(parent)} p WHERE ${columnsEqual('p', 'i', key)} AND p.line < i.line)
      ORDER BY i.line`,
  }
}

/** SQL for the pointer to the first column for which the condition holds; null if there is none. */
const firstFieldWhere = (columns: string[], condition: (column: string) => string) =>
  `CASE ${columns.map((column) => `WHEN ${condition(column)} THEN '/${column}'`).join(' ')} END`

function changedImmutableColumn(kind: StagedKind, { tables }: Stored): Check {
  const { key, immutable, conflict } = MERGE_RULES[kind]
  const differs = (column: string) => `i.${column} <> COALESCE(t.${column}, m.${column})`
  const field =
    kind === 'identifier'
      ? `CASE WHEN ${differs('contact_id')} THEN '/identifiers/' || i.ordinal END`
      : firstFieldWhere(immutable, differs)
  return {
    kind,
    message: `differs from the stored value or from an earlier line: ${conflict}`,
    sql: `SELECT line, field FROM (
        SELECT i.line, ${kind === 'identifier' ? 'i.ordinal' : '0'} AS ordinal, ${field} AS field
        FROM ${stagedTable(kind)} i
        JOIN ${mergedTable(kind)} m ON ${columnsEqual('m', 'i', key)}
        LEFT JOIN ${tables[kind]} t ON ${columnsEqual('t', 'i', key)}
      ) compared WHERE field IS NOT NULL ORDER BY line, ordinal`,
  }
}

// The identifier `contact_id` with the id of a contact identifies that contact (docs/semantics.md#contact), so no other
// contact may have it.

/** Finds identifiers that are the id of another contact: one of the given table that meets the condition. */
const identifierIsContactId = (contacts: string, condition: string): Check => ({
  kind: 'identifier',
  message: `is the id of another contact; only that contact can have it as its identifier ${CONTACT_ID_KEY}`,
  sql: `SELECT i.line, '/identifiers/' || i.ordinal || '/value' AS field FROM ${stagedTable('identifier')} i
    WHERE i.claimed_contact_id <> i.contact_id AND EXISTS (
      SELECT FROM ${contacts} c
      WHERE c.project_id = i.project_id AND c.contact_id = i.claimed_contact_id AND ${condition})
    ORDER BY i.line, i.ordinal`,
})

/** Finds new contacts whose id is already such an identifier of another contact, which the given query finds. */
const contactIdIsIdentifier = (claim: string, { tables }: Stored): Check => ({
  kind: 'contact',
  message: `is already the identifier ${CONTACT_ID_KEY} of another contact, so no contact can have this id; import it as that contact, or have that contact erased`,
  sql: `SELECT m.line, '/contact_id' AS field FROM ${mergedTable('contact')} m
    WHERE NOT EXISTS (SELECT FROM ${tables.contact} c WHERE c.project_id = m.project_id AND c.contact_id = m.contact_id)
      AND EXISTS (${claim})
    ORDER BY m.line`,
})

/** The columns of an event that are derived if its line leaves them out, each with the condition that it is given. */
const GIVEN: Record<string, string> = {
  module_version_number: 'i.module_version_number IS NOT NULL',
  max_page_id: 'i.max_page_given',
  max_page_key: 'i.max_page_given',
  max_page_index: 'i.max_page_given',
  total_pages: 'i.total_pages_given',
}

const parentChecks = (stored: Stored) =>
  STAGED_KINDS.flatMap((kind) =>
    MERGE_RULES[kind].parents.map((parent) => ({ parent, check: missingParent(kind, parent, stored) })),
  )

/** The checks to run before new projects are inserted; afterwards every project would count as stored. */
export const projectChecks = (stored: Stored): Check[] =>
  parentChecks(stored)
    .filter(({ parent }) => parent === 'project')
    .map(({ check }) => check)

/** The checks of lines that refer to their project by a parent alone, to run if a project could not be locked. */
export const indirectProjectChecks = (stored: Stored): Check[] =>
  STAGED_KINDS.filter((kind) => {
    const { parents } = MERGE_RULES[kind]
    return parents.length > 0 && !parents.includes('project')
  }).map((kind) => missingParent(kind, 'project', stored))

/** The checks to run while the projects are locked. */
export const checks = (stored: Stored): Check[] => [
  ...parentChecks(stored)
    .filter(({ parent }) => parent !== 'project')
    .map(({ check }) => check),
  ...STAGED_KINDS.filter((kind) => MERGE_RULES[kind].immutable.length > 0).map((kind) =>
    changedImmutableColumn(kind, stored),
  ),
  {
    kind: 'module',
    message: 'must have a published version, stored or in the same import',
    sql: `SELECT m.line, '/module_id' AS field FROM ${mergedTable('module')} m
      WHERE NOT EXISTS (SELECT FROM ${stored.tables.module_version} v WHERE ${columnsEqual('v', 'm', ['project_id', 'module_id'])}
          AND v.published_at IS NOT NULL)
        AND NOT EXISTS (SELECT FROM ${mergedTable('module_version')} v
          WHERE ${columnsEqual('v', 'm', ['project_id', 'module_id'])} AND v.published_at IS NOT NULL)
      ORDER BY m.line`,
  },
  identifierIsContactId(stored.tables.contact, 'true'),
  identifierIsContactId(mergedTable('contact'), 'c.line < i.line'),
  contactIdIsIdentifier(
    `SELECT FROM ${stored.tables.identifier} s WHERE s.project_id = m.project_id
    AND s.digest = ${digestOfContactId('m.contact_id')}`,
    stored,
  ),
  contactIdIsIdentifier(
    `SELECT FROM ${stagedTable('identifier')} i WHERE i.project_id = m.project_id
    AND i.claimed_contact_id = m.contact_id AND i.line < m.line`,
    stored,
  ),
  {
    kind: 'event',
    message: 'no such version of the module is stored or on an earlier line',
    sql: `SELECT i.line, '/module_version_number' AS field FROM ${REFERENCED_ENTRIES} i
      LEFT JOIN ${stored.tables.entry} e ON ${columnsEqual('e', 'i', ['project_id', 'entry_id'])}
      LEFT JOIN ${mergedTable('entry')} m ON ${columnsEqual('m', 'i', ['project_id', 'entry_id'])}
      WHERE i.module_version_number IS NOT NULL
        AND NOT EXISTS (SELECT FROM ${stored.tables.module_version} v WHERE v.project_id = i.project_id
          AND v.module_id = COALESCE(e.module_id, m.module_id) AND v.version_number = i.module_version_number)
        AND NOT EXISTS (SELECT FROM ${mergedTable('module_version')} v WHERE v.project_id = i.project_id
          AND v.module_id = COALESCE(e.module_id, m.module_id) AND v.version_number = i.module_version_number
          AND v.line < i.line)
      ORDER BY i.line`,
  },
  {
    kind: 'event',
    message: 'differs from the stored event with this id: an event cannot change',
    sql: `SELECT line, field FROM (
        SELECT i.line, ${firstFieldWhere(MERGE_RULES.event.firstWins, (column) =>
          [GIVEN[column], `i.${column} IS DISTINCT FROM t.${column}`].filter(Boolean).join(' AND '),
        )} AS field
        FROM ${stagedTable('event')} i JOIN ${stored.tables.event} t ON ${columnsEqual('t', 'i', MERGE_RULES.event.key)}
      ) compared WHERE field IS NOT NULL ORDER BY line`,
  },
  {
    kind: 'event',
    message: 'differs from an earlier line with the same event_id',
    sql: `SELECT line, field FROM (
        SELECT i.line, ${firstFieldWhere(MERGE_RULES.event.firstWins, (column) =>
          column in GIVEN
            ? `(i.${column}, ${GIVEN[column]}) IS DISTINCT FROM (f.${column}, ${GIVEN[column]?.replace('i.', 'f.')})`
            : `i.${column} IS DISTINCT FROM f.${column}`,
        )} AS field
        FROM ${DUPLICATE_EVENTS} d
        JOIN ${stagedTable('event')} f ON f.line = d.line
        JOIN ${stagedTable('event')} i ON ${columnsEqual('i', 'd', MERGE_RULES.event.key)}
      ) compared WHERE field IS NOT NULL ORDER BY line`,
  },
]
