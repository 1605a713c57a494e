import { readFeed } from '../feed/read-feed.ts'
import type { Handler } from '../http/operations.ts'
import { selectErasuresPage } from '../queries/erasures.ts'
import type { Context } from './context.ts'

export const listErasures: Handler<'listErasures', Context> = async (request, context) => {
  const page = await readFeed('erasures', selectErasuresPage, request, context)
  return page.map(({ value_bytes: _, ...erasure }) => erasure)
}
