import { availableParallelism } from 'node:os'
import path from 'node:path'
import { startVitest, type TestModule } from 'vitest/node'
import { DOCUMENT_VIOLATED } from '../../support/contract.ts'
import { type Findings, UNMODIFIED } from './detectors.ts'
import { MUTANTS } from './mutants.ts'

const OPTIONS = {
  testTimeout: 60_000,
  hookTimeout: 120_000,
  setupFiles: ['tests/contract/mutants/setup.ts', 'tests/contract/proxy/setup.ts'],
  // Each project has its own; one more than cores, since tests wait for PostgreSQL and for processes.
  maxWorkers: availableParallelism() + 1,
  // A failing assertion may print a whole response, about which light-my-request warns.
  execArgv: ['--disable-warning=FST_LIGHTMYREQUEST_DEP01'],
}

/**
 * Runs the test files of each mutant against it, and all of them against the unmodified service.
 *
 * @param exchanges a directory with one for each service, which receives its recorded exchanges
 * @returns by service, the findings of the document check and of the tests
 */
export async function runSuite(mutants: string[], exchanges: string): Promise<Map<string, Findings>> {
  const guardsOf = (name: string) => MUTANTS[name]?.guards ?? mutants.flatMap((mutant) => MUTANTS[mutant]?.guards ?? [])
  const vitest = await startVitest(
    [],
    { config: false, watch: false, reporters: [{ onTestModuleEnd: () => void process.stderr.write('.') }] },
    {
      test: {
        ...OPTIONS,
        globalSetup: ['tests/support/global-setup.ts'],
        projects: [UNMODIFIED, ...mutants].map((name) => ({
          extends: false,
          test: {
            ...OPTIONS,
            name,
            include: guardsOf(name).map((guard) => `tests/${guard}.test.ts`),
            env: {
              RECORD_EXCHANGES: path.join(exchanges, name),
              FLOWTRAIL_MUTANT: name === UNMODIFIED ? '' : name,
            },
          },
        })),
      },
    },
  )
  const modules = Map.groupBy(vitest.state.getTestModules(), ({ project }) => project.name)
  await vitest.close()
  process.stderr.write('\n')
  return new Map([...modules].map(([name, run]) => [name, findingsOf(run)]))
}

function findingsOf(modules: TestModule[]): Findings {
  const outside = modules
    .flatMap((module) => [module, ...module.children.allSuites()])
    .flatMap((suite) => suite.errors().map(({ message }) => message))
  const isBroken = (message: string) => message.startsWith(DOCUMENT_VIOLATED)
  const failed = modules.flatMap((module) => [...module.children.allTests('failed')])
  return {
    document: outside.filter(isBroken).flatMap((message) => message.split('\n').slice(1)),
    tests: [
      ...failed.map((test) => {
        const [error] = test.result().errors ?? []
        return `${fileOf(test.module)}: ${test.fullName}: ${error?.message.split('\n')[0]} ${error?.diff ?? ''}`
      }),
      // A file that cannot be loaded, or a hook that failed.
      ...outside.filter((message) => !isBroken(message)),
    ],
  }
}

const fileOf = ({ relativeModuleId }: TestModule) => relativeModuleId.replace(/^tests\/(.*)\.test\.ts$/, '$1')
