import type { ReadLease } from '../../src/domain/read-lease.ts'

/** A lease that never waits for room. */
export const UNLIMITED: ReadLease = { extend: async () => {}, begin: async () => {}, pause: ({ ended }) => ended }
