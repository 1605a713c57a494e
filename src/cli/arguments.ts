import { isIPv6 } from 'node:net'
import { InvalidArgumentError } from 'commander'
import { idIssue } from '../domain/text.ts'

/** In place of a file: standard input or output. */
export const STDIO = '-'

/** Parses the id of a project or another resource, for commander. */
export function resourceId(text: string): string {
  const issue = idIssue(text)
  if (issue !== undefined) throw new InvalidArgumentError(`It ${issue}.`)
  return text
}

/** Parses the public id of an API key, for commander. Also accepts the whole key, which contains its id. */
export function keyId(text: string): string {
  const [, id] = /^(?:ft_)?([0-9A-Za-z]{12})(?:_[0-9A-Za-z]{33})?$/.exec(text) ?? []
  if (id === undefined) throw new InvalidArgumentError('Expected the 12 letters and digits after ft_.')
  return id
}

/** Parses an integer from 1 to 999999999, for commander. */
export function count(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError('Expected an integer from 1 to 999999999.')
  return Number(text)
}

/** Parses a number from 0.01 to 10000, for commander. */
export function rate(text: string): number {
  if (!/^\d{1,5}(\.\d{1,2})?$/.test(text) || Number(text) < 0.01 || Number(text) > 10_000) {
    throw new InvalidArgumentError('Expected a number from 0.01 to 10000.')
  }
  return Number(text)
}

/** Parses the URL of a server, without user and password, for commander. @returns it without a slash at the end */
export function serverUrl(text: string): string {
  if (!/^https?:\/\/[^?#@]+$/.test(text) || !URL.canParse(text)) {
    throw new InvalidArgumentError('Expected an http or https URL, such as http://127.0.0.1:3000.')
  }
  return text.replace(/\/+$/, '')
}

/** The URL of what listens there, from this machine. */
export function addressOf({ host, port }: { host: string; port: number }): string {
  const name = { '0.0.0.0': '127.0.0.1', '::': '::1' }[host] ?? host
  return `http://${isIPv6(name) ? `[${name}]` : name}:${port}`
}
