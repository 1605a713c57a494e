import { stat } from 'node:fs/promises'

/** Whether two paths lead to one file or directory; not if one of them cannot be followed. */
export async function isSameFile(one: string, other: string): Promise<boolean> {
  const [a, b] = await Promise.all([one, other].map((path) => stat(path).catch(() => undefined)))
  return a !== undefined && a.dev === b?.dev && a.ino === b.ino
}
