import type { operations } from '../../generated/api.ts'

type NamesIn<Query> = Query extends object ? keyof Query : never
type OperationWith<Parameter extends string> = {
  [Op in keyof operations]: Parameter extends NamesIn<operations[Op]['parameters']['query']> ? Op : never
}[keyof operations]

/** The lists with cursors, by what the document says. */
export type PagedList = OperationWith<'cursor'>

/** Those that end: feeds, which may begin `after` a position, do not. */
export type FiniteList = Exclude<PagedList, OperationWith<'after'>>
