import path from 'node:path'
import { Command } from 'commander'
import { readConfig } from '../config.ts'
import { DEMO } from '../demo/project.ts'
import { projectExists } from '../queries/projects.ts'
import type { Context } from './context.ts'
import { demoKey, demoKeyFile, loadDemo } from './demo.ts'

export const serveCommand = ({ env, stderr }: Context) =>
  new Command('serve')
    .description('run the server until Ctrl-C or SIGTERM')
    .option('--demo', 'load the demo project if it does not exist; print an API key and a call to try')
    .action(async ({ demo }: { demo?: boolean }) => {
      const config = readConfig(env)
      // Loaded only here: the server's modules would double the start-up time of the other commands.
      const { serve } = await (config.server.workers > 1
        ? import('../server/supervise.ts')
        : import('../server/serve.ts'))
      let key = ''
      await serve(config, {
        ...(demo && {
          demoKeyFile: shortPath(demoKeyFile(config, DEMO.projectId)),
          onProgress: (message: string) => stderr.write(`${message}\n`),
        }),
        prepare: async (db, url, signal) => {
          if (!demo) return
          if (!(await projectExists(db, DEMO.projectId))) await loadDemo(url, {}, stderr, signal)
          key = await demoKey(config, db, DEMO.projectId)
        },
        // Standard output is for the log alone.
        onListening: (address) => stderr.write(demo ? demoWelcome(address, key) : welcome(address)),
      })
    })

/** A path for the operator to type: relative if it is below the working directory. */
function shortPath(file: string): string {
  const relative = path.relative(process.cwd(), file)
  return relative.startsWith('..') ? file : relative
}

const welcome = (address: string) => `Flowtrail is listening at ${address}; docs at ${address}/docs\n`

const demoWelcome = (address: string, key: string) => `
  Flowtrail is running.

    API    ${address}
    Docs   ${address}/docs
    Key    ${key}

  Try it in another terminal:

    curl -H 'X-Api-Key: ${key}' '${address}/projects/${DEMO.projectId}/modules'

  Press Ctrl-C to stop.

`
