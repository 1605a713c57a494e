/** The checks that may find a mutant, in the order of their price. */
export const KILLERS = ['document', 'tests', 'prism', 'schemathesis'] as const

export type Killer = (typeof KILLERS)[number]

/** What each check finds wrong. */
export type Findings = Partial<Record<Killer, string[]>>

/** The service as it is, beside the names of mutants. */
export const RIGHT = 'right'
