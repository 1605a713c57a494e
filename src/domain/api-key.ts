import { hash, randomInt, timingSafeEqual } from 'node:crypto'
import { crc32 } from 'node:zlib'
import { type IsoTimestamp, toIsoTimestamp } from './timestamp.ts'

/** The scopes a key can have; `x-required-scope` in the document names the one an operation needs. */
export const SCOPES = ['read', 'events:write', 'import'] as const
export type Scope = (typeof SCOPES)[number]

/** Those of a key that is created without naming any. */
export const DEFAULT_SCOPES: readonly Scope[] = ['read', 'events:write']

const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const ID_LENGTH = 12
const SECRET_LENGTH = 27
const CHECKSUM_LENGTH = 6
const FORMAT = /^ft_([0-9A-Za-z]{12})_([0-9A-Za-z]{27})([0-9A-Za-z]{6})$/

/** A well-formed API key, parsed. */
export interface ApiKey {
  key_id: string
  secret: string
}

const randomText = (length: number) => Array.from({ length }, () => BASE62[randomInt(BASE62.length)]).join('')

/** CRC-32 (IEEE) of the text in base62, big-endian, zero-padded (docs/semantics.md#api-keys). */
function checksum(text: string): string {
  let rest = crc32(text)
  let digits = ''
  for (let i = 0; i < CHECKSUM_LENGTH; i += 1) {
    digits = BASE62[rest % BASE62.length] + digits
    rest = Math.floor(rest / BASE62.length)
  }
  return digits
}

/** The key as the client sends it. */
export function formatKey({ key_id, secret }: ApiKey): string {
  const body = `ft_${key_id}_${secret}`
  return body + checksum(body)
}

/** Generates a random key: about 71 bits of public id and 160 bits of secret. */
export const generateKey = (): ApiKey => ({ key_id: randomText(ID_LENGTH), secret: randomText(SECRET_LENGTH) })

/** Parses a key. Returns `undefined` for a wrong format or checksum, so that a typing error costs no query. */
export function parseKey(text: string): ApiKey | undefined {
  const [, key_id, secret, sum] = FORMAT.exec(text) ?? []
  if (key_id === undefined || secret === undefined) return undefined
  return checksum(text.slice(0, -CHECKSUM_LENGTH)) === sum ? { key_id, secret } : undefined
}

/** What is stored instead of the secret: its SHA-256. */
export const hashSecret = (secret: string): Buffer => hash('sha256', secret, 'buffer')

/** The stored part of a key that decides whether it is accepted. Instants are ISO timestamps. */
export interface StoredKey {
  secret_hash: Buffer
  expires_at: IsoTimestamp | null
  revoked_at: IsoTimestamp | null
}

/** Whether a presented key is the stored one, compared in constant time, and neither revoked nor expired. */
export function isAccepted(key: ApiKey, stored: StoredKey, now: Date): boolean {
  if (!timingSafeEqual(hashSecret(key.secret), stored.secret_hash) || stored.revoked_at !== null) return false
  return stored.expires_at === null || stored.expires_at > toIsoTimestamp(now)
}
