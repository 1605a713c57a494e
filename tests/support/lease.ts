import type { ReadLease } from '../../src/domain/read-lease.ts'

/** A lease that is always extended at once. */
export const UNLIMITED: ReadLease = { extend: async () => {} }
