import { open as openDescriptor } from 'node:fs'
import { open, stat } from 'node:fs/promises'
import { Socket } from 'node:net'
import type { Readable } from 'node:stream'
import { promisify } from 'node:util'
import { CommandError } from './output.ts'

/** A file that a command reads. */
export interface InputFile {
  /** In bytes; undefined for what is no regular file, such as a pipe, and cannot be read twice. */
  size: number | undefined
  /** @returns a stream of all of it; one at a time */
  read: () => Readable
  close: () => Promise<void>
}

/** @throws CommandError when it cannot be read */
export async function openFile(file: string): Promise<InputFile> {
  // Opening tells why there is none.
  const found = await stat(file).catch(() => undefined)
  if (found?.isDirectory()) throw new CommandError(`${file} is a directory; expected a file, or - for standard input`)
  const opening = found?.isFIFO() ? openPipe(file) : openPath(file)
  return opening.catch(({ code, message }: NodeJS.ErrnoException) => {
    throw new CommandError(code === 'ENOENT' ? `File ${file} does not exist` : `Cannot read ${file}: ${message}`)
  })
}

/** A named pipe is read as a socket, since a stream of a file cannot be closed before what it has asked for has come. */
async function openPipe(file: string): Promise<InputFile> {
  const socket = new Socket({ fd: await promisify(openDescriptor)(file, 'r'), readable: true, writable: false })
  return { size: undefined, read: () => socket, close: async () => void socket.destroy() }
}

async function openPath(file: string): Promise<InputFile> {
  const handle = await open(file)
  const stats = await handle.stat()
  const size = stats.isFile() ? stats.size : undefined
  const read = () => handle.createReadStream({ autoClose: false, ...(size !== undefined && { start: 0 }) })
  return { size, read, close: () => handle.close() }
}
