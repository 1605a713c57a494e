import { InvalidArgumentError } from 'commander'
import { idProblem } from '../text.ts'

/** Reads the id of a project or another resource for commander. */
export function resourceId(text: string): string {
  const problem = idProblem(text)
  if (problem !== undefined) throw new InvalidArgumentError(`it ${problem}.`)
  return text
}

/** Reads a whole number from 1 to a billion for commander. */
export function count(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError('write a whole number from 1 to 999999999.')
  return Number(text)
}
