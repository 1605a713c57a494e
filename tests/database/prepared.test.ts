import { type Compilable, sql } from 'kysely'
import { describe, expect, test, vi } from 'vitest'
import { inputTable, text } from '../../src/database/input-table.ts'
import type { Database } from '../../src/database/pool.ts'
import { columnsOf, memoizeByOptions, type Parameter, prepare, prepareInsert } from '../../src/database/prepared.ts'

const projects = (db: Database) => db.selectFrom('projects').select('name')

describe('prepare', () => {
  test('binds values wherever the query has the parameters', () => {
    const query = prepare((db, id: Parameter<string>, names: Parameter<string[]>, limit: Parameter<number>) =>
      projects(db)
        .where('project_id', 'in', [id, sql<string>`upper(${id})`])
        .where('name', '=', sql<string>`any(${names})`)
        .limit(limit),
    )
    const { text, values } = query.statement('a', ['b', 'c'], 3)
    expect(text).toBe(
      'select "name" from "projects" where "project_id" in ($1, upper($2)) and "name" = any($3) limit $4',
    )
    expect(values).toEqual(['a', 'a', '{"b","c"}', 3])
  })

  test('has one name for each query, whatever the values', () => {
    const one = prepare((db, id: Parameter<string>) => projects(db).where('project_id', '=', id))
    const other = prepare((db, id: Parameter<string>) => projects(db).where('project_id', '=', id))
    expect(one.statement('a').name).toBe(one.statement('b').name)
    expect(one.statement('a').name).not.toBe(other.statement('a').name)
  })

  test('compiles a query once', () => {
    const build = vi.fn((db: Database, id: Parameter<string>) => projects(db).where('project_id', '=', id))
    // A mock has no parameters of its own to count.
    const query = prepare((db, id: Parameter<string>) => build(db, id))
    for (const id of ['a', 'b']) query.statement(id)
    const builds = build.mock.calls.length
    query.statement('c')
    expect(build).toHaveBeenCalledTimes(builds)
  })
})

test('for one shard a query compares with the projects of its input, too, each of them once', () => {
  const query = prepare((db, projectIds: Parameter<string[]>, names: Parameter<string[]>) =>
    db
      .selectFrom(inputTable({ project_id: text(projectIds), name: text(names) }))
      .innerJoin('projects as p', (join) => join.onRef('p.project_id', '=', 'input.project_id'))
      .select((eb) => [
        'input.project_id',
        eb
          .selectFrom('groups as g')
          .select('g.name')
          .whereRef('g.project_id', '=', 'input.project_id')
          .whereRef('g.name', '=', 'input.name')
          .whereRef('g.group_id', '<>', 'input.project_id')
          .as('group'),
      ]),
  )
  const { text: sql, values } = query.ofOneShard.statement(['a', 'b', 'a'], ['x', 'y', 'z'])
  expect(sql).toBe(
    'select "input"."project_id", (select "g"."name" from "groups" as "g" where ' +
      '("g"."project_id" = "input"."project_id" and "g"."project_id" = any($1::text[])) ' +
      'and "g"."name" = "input"."name" and "g"."group_id" <> "input"."project_id") as "group" ' +
      'from unnest($2::text[], $3::text[]) with ordinality as input("project_id", "name", "ordinal") ' +
      'inner join "projects" as "p" on ("p"."project_id" = "input"."project_id" and "p"."project_id" = any($4::text[]))',
  )
  expect(values).toEqual(['{"a","b"}', '{"a","b","a"}', '{"x","y","z"}', '{"a","b"}'])
  expect(query.statement(['a'], ['x']).text).not.toContain('any(')
})

const CONVERSION = 'a parameter of a prepared query has no value yet'
const DEPENDENCE = 'the text of a prepared query depends on a parameter'
const UNUSED = 'parameter 1 of 1 is not in the query'

/**
 * Mistakes that would bind something else than the argument, or leave the argument out. What tsc refuses has a
 * `@ts-expect-error`; all are refused when the query is first used.
 */
const MISTAKES: Record<string, [build: (db: Database, text: Parameter<string>) => Compilable, message: string]> = {
  // @ts-expect-error no implicit conversion to a string
  'a template literal': [(db, text) => projects(db).where('name', 'like', `${text}%`), CONVERSION],
  // @ts-expect-error the operator + cannot be applied
  // biome-ignore lint/style/useTemplate: this is the mistake
  'a concatenation': [(db, text) => projects(db).where('name', 'like', text + '%'), CONVERSION],
  'an explicit conversion': [(db, text) => projects(db).where('name', 'like', String(text)), CONVERSION],
  'a method of a symbol': [(db, text) => projects(db).where('name', '=', text.toString()), CONVERSION],
  'JSON.stringify': [(db, text) => projects(db).where('name', '=', JSON.stringify(text)), CONVERSION],
  // @ts-expect-error a literal of a parameter is no text
  'a literal': [(db, text) => projects(db).where('name', '=', sql.lit(text)), CONVERSION],
  // @ts-expect-error the operator < cannot be applied
  'an order': [(db, text) => projects(db).$if(text < 'm', (query) => query.where('name', '=', text)), CONVERSION],
  // @ts-expect-error the types have no overlap
  'equality with a value': [(db, text) => projects(db).$if(text === 'all', (query) => query.limit(1)), UNUSED],
  // @ts-expect-error a parameter is no boolean
  'a condition': [(db, text) => projects(db).$if(text, (query) => query.where('name', '=', text)), DEPENDENCE],
  // @ts-expect-error a parameter has no properties of its value
  'a property': [(db, text) => projects(db).where('name', '=', text.length), UNUSED],
  truthiness: [(db, text) => (text ? projects(db).where('name', '=', text) : projects(db)), DEPENDENCE],
  'a value chosen by truthiness': [
    (db, text) =>
      projects(db)
        .where('project_id', '=', text)
        .where('name', '=', text ? 'a' : 'b'),
    DEPENDENCE,
  ],
  negation: [
    (db, text) =>
      projects(db)
        .$if(!text, (query) => query.limit(1))
        .where('name', '=', text),
    DEPENDENCE,
  ],
  'a comparison with undefined': [
    (db, text) => projects(db).$if(text !== undefined, (query) => query.where('name', '=', text)),
    DEPENDENCE,
  ],
  'a comparison with null': [
    (db, text) => projects(db).$if(text != null, (query) => query.where('name', '=', text)),
    DEPENDENCE,
  ],
  'a default': [(db, text) => projects(db).where('name', '=', text ?? 'none'), DEPENDENCE],
  'leaving it out': [(db, _text) => projects(db), UNUSED],
  'putting it into an array': [(db, text) => projects(db).where('name', '=', sql<string>`any(${[text]})`), UNUSED],
}

test.each(Object.entries(MISTAKES))('a query is refused for %s', (_, [build, message]) => {
  const query = prepare((db, text: Parameter<string>) => build(db, text))
  expect(() => query.statement('value')).toThrow(message)
})

test('a query is refused for a value too few or too many', () => {
  const query = prepare((db, id: Parameter<string>) => projects(db).where('project_id', '=', id))
  // @ts-expect-error a value is missing
  expect(() => query.statement()).toThrow('a query of 1 parameters was given 0 values')
  // @ts-expect-error there is no second parameter
  expect(() => query.statement('a', 'b')).toThrow('a query of 1 parameters was given 2 values')
})

// Nothing is built here: `make check` fails if tsc lets one of these pass.
test('tsc refuses parameters and values of wrong types', () => {
  const query = prepare((db, id: Parameter<string>, limit: Parameter<number>) =>
    projects(db).where('project_id', '=', id).limit(limit),
  )
  // @ts-expect-error a number for a text
  query.statement(1, 1)
  // @ts-expect-error no value is optional
  query.statement(undefined, 1)
  // @ts-expect-error a text for a limit
  prepare((db, id: Parameter<string>) => projects(db).limit(id))
  // @ts-expect-error a number is compared with a text
  prepare((db, count: Parameter<number>) => projects(db).where('name', '=', count))
  // @ts-expect-error arithmetic with a parameter
  prepare((db, count: Parameter<number>) => projects(db).limit(count * 2))
  // @ts-expect-error a boolean parameter decides nothing about the text
  prepare((db, isFirst: Parameter<boolean>) => projects(db).$if(isFirst, (query) => query.limit(1)))
  // @ts-expect-error the parameter is typed as its value
  prepare((db, id: string) => projects(db).where('project_id', '=', id))
  // @ts-expect-error a parameter cannot be undefined
  prepare((db, id: Parameter<string | undefined>) => projects(db).where('project_id', '=', id))
  // @ts-expect-error a parameter cannot be null
  prepare((db, id: Parameter<string | null>) => projects(db).where('project_id', '=', id))
  // @ts-expect-error there is no such column
  prepareInsert('projects', { project_id: 'text', title: 'text' })
})

test('a parameter can be what a column is set to', () => {
  const query = prepare((db, id: Parameter<string>, name: Parameter<string>) =>
    db.updateTable('projects').set({ name }).where('project_id', '=', id),
  )
  expect(query.statement('a', 'A')).toMatchObject({
    text: 'update "projects" set "name" = $1 where "project_id" = $2',
    values: ['A', 'a'],
  })
})

test('prepareInsert inserts rows as one array for each column', () => {
  const insert = prepareInsert('projects', { project_id: 'text', name: 'text' })
  const rows = [
    { project_id: 'a', name: 'A' },
    { project_id: 'b', name: 'B' },
  ]
  const { text, values } = insert(rows)
  expect(text).toBe('insert into "projects" ("project_id", "name") select * from unnest($1::text[], $2::text[])')
  expect(values).toEqual(['{"a","b"}', '{"A","B"}'])
})

test('columnsOf turns rows into columns, in the order of the names', () => {
  const rows = [
    { id: 1, name: 'a', other: true },
    { id: 2, name: 'b', other: true },
  ]
  expect(columnsOf(rows, 'name', 'id')).toEqual([
    ['a', 'b'],
    [1, 2],
  ])
})

test('memoizeByOptions builds once for each combination of options', () => {
  const build = vi.fn((options: { direction: string }) => options.direction)
  const queries = memoizeByOptions(build)
  expect(['ASC', 'DESC', 'ASC'].map((direction) => queries({ direction }))).toEqual(['ASC', 'DESC', 'ASC'])
  expect(build).toHaveBeenCalledTimes(2)
})
