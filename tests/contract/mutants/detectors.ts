/** The checks that may detect a mutant, cheapest first. */
export const DETECTORS = ['document', 'tests', 'prism', 'schemathesis'] as const

export type Detector = (typeof DETECTORS)[number]

/** What each check reports. */
export type Findings = Partial<Record<Detector, string[]>>

/** The service without a defect, where the name of a mutant is expected. */
export const UNMODIFIED = 'unmodified'
