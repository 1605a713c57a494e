import type { Handler } from '../http/operations.ts'
import type { Context } from './context.ts'

export const importRecords: Handler<'importRecords', Context> = ({ path, body }, { importer }) =>
  importer.import(path.projectId, body)
