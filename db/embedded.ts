/**
 * The PostgreSQL that comes with us, for when nobody gives us one. It outlives the process that starts it: every
 * process that needs it says so in `users`, whoever finds it down starts it, and the last to leave stops it.
 *
 * In the data directory: `postgres` the cluster, `postgres.log`, `socket` a link to the directory of the socket,
 * `users` and `lock` a file for each process that uses the server or is starting or stopping it.
 * All those processes must see each other: one machine, one pid namespace.
 */
import { type ChildProcess, once } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import {
  chmod,
  chown,
  lstat,
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  readlink,
  realpath,
  rename,
  rm,
  rmdir,
  stat,
  symlink,
} from 'node:fs/promises'
