import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { demoEnvironment, startDemoService } from './demo-service.ts'

/**
 * Runs a command against a service with demo data that lives as long as the command, and exits with its status:
 * `node tests/support/with-demo-service.ts -- command …`. The command finds the service in `FLOWTRAIL_URL`, keys of
 * project `demo` in `FLOWTRAIL_KEY`, `FLOWTRAIL_READ_KEY` and `FLOWTRAIL_WRITE_KEY`, one of project `other` in
 * `FLOWTRAIL_OTHER_KEY`, and in `FLOWTRAIL_LIMITED_URL` the same service with a rate limit of one request per minute and key.
 */
const separator = process.argv.indexOf('--')
const [command, ...args] = process.argv.slice(separator + 1)
if (separator === -1 || command === undefined) throw new Error('usage: with-demo-service.ts -- command [argument…]')

const service = await startDemoService()
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => {}) // ends the command, and then this process
const child = spawn(command, args, {
  stdio: 'inherit',
  env: { ...process.env, ...demoEnvironment(service) },
})
const status = await once(child, 'close').then(
  ([code]) => code ?? 1,
  (error) => {
    console.error(`${command}: ${error.message}`)
    return 1
  },
)
process.stderr.write(service.stderr())
await service.stop()
process.exit(status)
