import type { operations } from '../../generated/api.ts'
import type { WalPosition } from '../database/wal-position.ts'
import type { Page, WholeList } from '../domain/cursor.ts'
import type { JsonText } from '../domain/json-text.ts'
import type { ReadLease } from '../domain/read-lease.ts'

export type OperationId = keyof operations

/** The keys that are named, without those of an index signature. */
type NamedKeys<T> = { [K in keyof T as string extends K ? never : K]: T[K] }
type ParametersOf<K extends OperationId> = operations[K]['parameters']
type Body<T> = T extends { content: { 'application/json': infer B } } ? B : undefined
type RequestBody<T> = T extends { content: { 'application/x-ndjson': string } } ? AsyncIterable<Buffer> : Body<T>
type Success<K extends OperationId> = operations[K]['responses'][200]
type SuccessHeader<K extends OperationId> = keyof NamedKeys<Success<K>['headers']>

/** Parameters with a default in the document: optional for the client, always present for the handler. */
type Defaulted = 'limit' | 'direction' | 'wait'
type WithDefaults<Q> = Q & Required<Pick<Q, Extract<keyof Q, Defaulted>>>

/** The parts of a request after validation, with defaults filled in. */
export interface OperationRequest<K extends OperationId> {
  path: ParametersOf<K>['path']
  query: WithDefaults<NonNullable<ParametersOf<K>['query']>>
  headers: NonNullable<ParametersOf<K>['header']>
  body: operations[K] extends { requestBody: infer B } ? RequestBody<B> : undefined
  /** Checks once more, after a long time, that the key gives access. Throws ApiError unauthorized. */
  confirmKey: () => Promise<void>
  /** What a read may hold in memory. */
  lease: operations[K] extends { requestBody: unknown } ? undefined : ReadLease
}

/** The response to a write. */
export interface Written<T> {
  body: T
  /** Of the database with what was written, if it is known. */
  position: WalPosition | undefined
}

/** A response that may be the stored one of an earlier request with the same Idempotency-Key. */
export interface Replayable<T> extends Written<T> {
  replayed: boolean
}

/** The responses to the items of a batch, in their order. Errors are sent with the pointers that they have. */
export interface Batch<T> {
  settled: PromiseSettledResult<Replayable<T>>[]
}

/** What a handler returns, derived from the headers and the body that the document gives its success. */
export type OperationResult<K extends OperationId> =
  Body<Success<K>> extends infer B
    ? 'Next-Cursor' extends SuccessHeader<K>
      ? B extends (infer Row)[]
        ? Page<Row> | Page<JsonText<Row>>
        : never
      : 'Idempotent-Replayed' extends SuccessHeader<K>
        ? Replayable<B>
        : B extends { results: { event?: infer Item }[] }
          ? Batch<NonNullable<Item>>
          : 'Consistency-Token' extends SuccessHeader<K>
            ? Written<B>
            : B extends (infer Row)[]
              ? WholeList<Row>
              : B
    : never

/** A handler of one operation, which returns its result or throws an ApiError. `Context` holds its dependencies. */
export type Handler<K extends OperationId, Context> = (
  request: OperationRequest<K>,
  context: Context,
) => Promise<OperationResult<K>>

/** Exactly one handler for each operation of the document. */
export type Handlers<Context> = { [K in OperationId]: Handler<K, Context> }
