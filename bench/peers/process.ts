// What all peer processes have in common (README.md).

// Before any framework looks at it; bench/systems.ts sets it as well.
process.env.NODE_ENV ??= 'production'

export const DATABASE_URL = process.env.DATABASE_URL ?? ''
export const PORT = Number(process.env.PORT)
export const HOST = '127.0.0.1'

/** Reports that requests are accepted, and shuts down on SIGTERM. @param stop releases all resources */
export function ready(stop: () => Promise<unknown>): void {
  process.once('SIGTERM', () => stop().then(() => process.exit()))
  console.log('ready')
}
