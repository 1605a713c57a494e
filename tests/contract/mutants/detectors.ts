/** The checks that may find a mutant, in the order of their price. */
export const DETECTORS = ['document', 'tests', 'prism', 'schemathesis'] as const

export type Detector = (typeof DETECTORS)[number]

/** What each check finds wrong. */
export type Findings = Partial<Record<Detector, string[]>>

/** The service as it is, beside the names of mutants. */
export const UNMODIFIED = 'unmodified'
