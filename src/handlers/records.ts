import type { Handler } from '../http/operations.ts'
import type { Context } from './context.ts'

export const importRecords: Handler<'importRecords', Context> = ({ path, body, confirmKey }, { importer }) =>
  importer.import(path.projectId, thenConfirm(body, confirmKey))

/** A body may take long to arrive, and the key be revoked meanwhile. */
async function* thenConfirm(parts: AsyncIterable<Buffer>, confirmKey: () => Promise<void>): AsyncGenerator<Buffer> {
  yield* parts
  await confirmKey()
}
