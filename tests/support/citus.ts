/**
 * The servers of the Citus cluster that the tests run on, the coordinator first, by the connection strings of their maintenance
 * databases; none without TEST_CITUS_URL.
 */
export const CITUS_NODES = process.env.TEST_CITUS_URL ? process.env.TEST_CITUS_URL.split(',') : []

export const isOnCitus = CITUS_NODES.length > 0
