import { readFile } from 'node:fs/promises'
import { isDeepStrictEqual } from 'node:util'
import { type Finding, ok, warning } from './findings.ts'

const DOCUMENT = new URL('../../generated/openapi.json', import.meta.url)
const TIMEOUT_ms = 5_000
/** Nothing listens there, or this machine has no such address. */
const NO_SERVER = ['ECONNREFUSED', 'EADDRNOTAVAIL']
/** What fetch says of ports that browsers do not connect to, such as 6000. */
const REFUSED_PORT = 'bad port'

interface ApiDocument {
  info?: { title?: string; version?: string }
}

/** Whether the server at this address, if there is one, serves the document of this release. */
export async function checkDocument(address: string): Promise<Finding> {
  const installed = JSON.parse(await readFile(DOCUMENT, 'utf8')) as ApiDocument
  let served: ApiDocument | null
  try {
    const response = await fetch(`${address}/openapi.json`, { signal: AbortSignal.timeout(TIMEOUT_ms) })
    served = parseDocument(await response.text())
  } catch (error) {
    const { message, cause = {} } = error as { message: string; cause?: { code?: string; message?: string } }
    if (NO_SERVER.includes(cause.code ?? ''))
      return ok(`${installed.info?.version} is installed; no server runs at ${address}`)
    if (cause.message === REFUSED_PORT)
      return warning(`browsers, and this check, connect to no server at ${address}`, 'Set PORT to another one')
    return warning(`no response from ${address}: ${cause.message || message}`, 'Look at what listens there')
  }
  return judgeDocument(installed, served, address)
}

/** null for what is no JSON, and so of another server. */
function parseDocument(text: string): ApiDocument | null {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

/** @param address where a server serves the other document */
export function judgeDocument(installed: ApiDocument, served: ApiDocument | null, address: string): Finding {
  const { title, version } = installed.info ?? {}
  if (served === null || served.info?.title !== title)
    return ok(`${version} is installed; what runs at ${address} is not Flowtrail`)
  const restart = 'Restart the server, or check that this is its installation'
  if (served.info?.version !== version) {
    return warning(`${version} is installed, but ${address} serves ${served.info?.version}`, restart)
  }
  return isDeepStrictEqual(comparable(installed), comparable(served))
    ? ok(`${version} is installed, and served at ${address}`)
    : warning(`${address} serves a ${version} that differs from the installed one`, restart)
}

/** Without what depends on the server's address. */
const comparable = (document: ApiDocument) => ({ ...document, servers: undefined, externalDocs: undefined })
