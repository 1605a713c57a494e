import type { operations } from '../../generated/api.ts'

type NamesIn<Query> = Query extends object ? keyof Query : never
type OperationWith<Parameter extends string> = {
  [Op in keyof operations]: Parameter extends NamesIn<operations[Op]['parameters']['query']> ? Op : never
}[keyof operations]

/** The paged lists that end, by what the document says: feeds, which may begin `after` a position, do not. */
export type FiniteList = Exclude<OperationWith<'cursor'>, OperationWith<'after'>>
