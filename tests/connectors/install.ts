import { installConnectors } from './warehouse.ts'

/** A global set-up of Vitest: what several files would install at the same time. */
export default installConnectors
