import { Command } from 'commander'
import { type Config, readConfig } from '../config.ts'
import { diagnose } from '../doctor/diagnose.ts'
import type { CheckedFinding } from '../doctor/findings.ts'
import { addressOf } from './arguments.ts'
import type { Context, Output } from './context.ts'
import { onServer } from './interruptible.ts'
import { CommandError, print, printable } from './output.ts'

export const doctorCommand = ({ env, stdout, stderr }: Context) =>
  new Command('doctor')
    .description('check the installation and say what to fix; fails if there is an error')
    .option('--json', 'print JSON')
    .action(async ({ json }: { json?: boolean }) => {
      const config = readConfig(env)
      const address = addressOf(config.server) + config.http.basePath
      const findings: CheckedFinding[] = []
      await onUrl(config, stderr, async (url) => {
        for await (const finding of diagnose(url, address, config)) {
          findings.push(finding)
          if (!json) await print(stdout, lineOf(finding))
        }
      })
      if (json) await print(stdout, `${JSON.stringify(findings, null, 2)}\n`)
      const errors = findings.filter(({ status }) => status === 'error').map(({ check }) => check)
      if (errors.length > 0) throw new CommandError(`Errors found: ${errors.join(', ')}`)
    })

/** A database that cannot be reached or used is a finding, too; only an embedded one must be started before. */
const onUrl = (config: Config, stderr: Output, work: (url: string) => Promise<void>): Promise<void> =>
  config.databaseUrl === undefined ? onServer(config, stderr, ({ url }) => work(url)) : work(config.databaseUrl)

function lineOf({ check, status, finding, fix }: CheckedFinding): string {
  const advice = fix === undefined ? '' : `. Fix: ${fix}`
  return `${status.padEnd(7)}  ${check.padEnd(18)}  ${printable(finding + advice)}\n`
}
