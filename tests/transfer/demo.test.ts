import { describe, expect, it } from 'vitest'
import { DEMO, type DemoRecord, demoRecords } from '../../src/demo/project.ts'
import { limitsAt, parseLine } from '../../src/transfer/records.ts'

type Of<T extends DemoRecord['type']> = Extract<DemoRecord, { type: T }>

const ENTRIES = 1000
const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/

const take = (entries: number, projectId?: string): DemoRecord[] => [...demoRecords({ entries, projectId })]
const only = <T extends DemoRecord['type']>(records: DemoRecord[], type: T): Of<T>[] =>
  records.filter((record): record is Of<T> => record.type === type)

const records = take(ENTRIES)
const modules = only(records, 'module')
const versions = only(records, 'module_version')
const contacts = only(records, 'contact')
const entries = only(records, 'entry')
const events = only(records, 'event')
const entryOf = new Map(entries.map((entry) => [entry.entry_id, entry]))
const contactOf = new Map(contacts.map((contact) => [contact.contact_id, contact]))
const eventsOf = Map.groupBy(events, (event) => event.entry_id)
const viewsOf = (entryId: string) => eventsOf.get(entryId)?.filter((event) => event.page_key) ?? []

/** The definition of the version of a module that is in effect at a time. */
function definitionAt(moduleId: string, time: string): { pages: { page_id: string; page_key: string }[] } {
  const published = versions.filter(
    (version) => version.module_id === moduleId && (version.published_at ?? '~') <= time,
  )
  return JSON.parse(published.at(-1)?.json_string ?? '')
}

function expectUnique(values: string[]): void {
  expect(new Set(values).size).toBe(values.length)
}

describe('the records', () => {
  it('are the same in every run', () => {
    expect(take(300)).toEqual(take(300))
  })

  it('are 400 entries by default', () => {
    expect(only([...demoRecords()], 'entry')).toHaveLength(400)
  })

  it('begin with their type and have the project id', () => {
    for (const record of records) {
      expect(Object.keys(record)[0]).toBe('type')
      expect(record.project_id).toBe(DEMO.projectId)
    }
  })

  it('are parsed by an import unchanged', () => {
    for (const record of take(400)) {
      expect(parseLine(JSON.stringify(record), limitsAt(new Date('2026-07-01')))).toMatchObject({ ok: true, record })
    }
  })

  it('have the same content under another project id', () => {
    const renamed = take(50, 'acme').map((record) => ({ ...record, project_id: DEMO.projectId }))
    expect(renamed).toEqual(take(50))
  })

  it('of a small demo are all in a larger one, in the same order', () => {
    const small = take(37)
    const wanted = new Set(small.map((record) => JSON.stringify(record)))
    expect(take(400).filter((record) => wanted.has(JSON.stringify(record)))).toEqual(small)
  })

  it('are generated lazily', () => {
    const before = process.cpuUsage()
    expect(demoRecords({ entries: 10_000_000 }).take(10_000).toArray()).toHaveLength(10_000)
    expect(process.cpuUsage(before).user / 1_000).toBeLessThan(2_000)
  })

  it('have parents before children, and unique ids', () => {
    const known = new Set<string>()
    const need = (...id: unknown[]) => expect(known, `a parent of ${id}`).toContain(JSON.stringify(id))
    const add = (...id: unknown[]) => {
      expect(known).not.toContain(JSON.stringify(id))
      known.add(JSON.stringify(id))
    }
    for (const record of take(400)) {
      if (record.type !== 'project') need('project', record.project_id)
      switch (record.type) {
        case 'project':
          add('project', record.project_id)
          break
        case 'group':
          add('group', record.group_id)
          break
        case 'module':
          need('group', record.group_id)
          add('module', record.module_id)
          break
        case 'module_version':
          need('module', record.module_id)
          add('version', record.module_id, record.version_number)
          break
        case 'contact':
          add('contact', record.contact_id)
          break
        case 'entry':
          need('module', record.module_id)
          need('contact', record.contact_id)
          add('entry', record.entry_id)
          break
        case 'event':
          need('entry', record.entry_id)
          add('event', record.event_id)
          break
      }
    }
  })

  it('have unique UUIDv7 ids with their time', () => {
    const ids = [
      ...contacts.map((contact) => [contact.contact_id, contact.created_at] as const),
      ...entries.map((entry) => [entry.entry_id, entry.created_at] as const),
      ...events.map((event) => [event.event_id, event.timestamp] as const),
    ]
    expectUnique(ids.map(([id]) => id))
    for (const [id, time] of ids) {
      expect(id).toMatch(UUID_V7)
      expect(Number.parseInt(id.replaceAll('-', '').slice(0, 12), 16)).toBe(Date.parse(time))
    }
  })

  it('have timestamps before July 2026, in UTC with milliseconds', () => {
    for (const record of records) {
      for (const [field, value] of Object.entries(record)) {
        if (!field.endsWith('_at') && field !== 'timestamp') continue
        expect(value).toBe(new Date(String(value)).toISOString())
        expect(value < '2026-07-01').toBe(true)
      }
    }
  })
})

describe('modules', () => {
  it('have numbered versions, at least one of them published before the first entry', () => {
    for (const { module_id, created_at } of modules) {
      const own = versions.filter((version) => version.module_id === module_id)
      expect(own.map((version) => version.version_number)).toEqual(own.map((_, index) => index + 1))
      expect(own.length).toBeGreaterThanOrEqual(2)
      expect(own.some((version) => (version.published_at ?? '~') < '2026-01-05')).toBe(true)
      expect(own.some((version) => !version.published_at)).toBe(true)
      for (const version of own) {
        expect(version.saved_at > created_at).toBe(true)
        expect((version.published_at ?? '~') >= version.saved_at).toBe(true)
      }
    }
  })

  it('define pages with unique ids and keys', () => {
    for (const version of versions) {
      const { title, pages } = JSON.parse(version.json_string)
      expect(title).toBeTypeOf('string')
      expectUnique(pages.map((page: { page_id: string }) => page.page_id))
      expectUnique(pages.map((page: { page_key: string }) => page.page_key))
      for (const page of pages) {
        expect(Object.keys(page)).toEqual(['page_id', 'page_key', 'title', 'blocks'])
        expect(page.blocks.length).toBeGreaterThan(0)
      }
    }
  })
})

describe('contacts', () => {
  it('have unique identifiers', () => {
    const identifiers = contacts.flatMap((contact) => contact.identifiers)
    expectUnique(identifiers.map(({ key, value }) => `${key} ${value}`))
    expect(new Set(identifiers.map(({ key }) => key))).toEqual(new Set(['email', 'phone', 'crm_id']))
  })

  it('have addresses and numbers that are reserved for examples', () => {
    for (const { key, value } of contacts.flatMap((contact) => contact.identifiers)) {
      if (key === 'email') expect(value).toMatch(/^"[a-z]+\.[a-z]+\d*@example\.(com|net|org)"$/)
      if (key === 'phone') expect(value).toMatch(/^"\+1 \d{3} 555 01\d\d"$/)
    }
  })

  it('sometimes come back to another module', () => {
    const visits = Map.groupBy(entries, (entry) => entry.contact_id)
    expect(visits.size).toBe(contacts.length)
    for (const visit of visits.values()) {
      expectUnique(visit.map((entry) => entry.module_id))
      expect(visit.every((entry, n) => entry.created_at >= (visit[n - 1]?.created_at ?? ''))).toBe(true)
    }
    expect(visits.values().some((visit) => visit.length === 2)).toBe(true)
  })
})

describe('entries', () => {
  it('last from their creation to their last page view', () => {
    for (const entry of entries) {
      expect(entry.created_at >= '2026-01-05').toBe(true)
      expect(entry.created_at >= (contactOf.get(entry.contact_id)?.created_at ?? '~')).toBe(true)
      const times = eventsOf.get(entry.entry_id)?.map((event) => event.timestamp) ?? []
      expect(times).toEqual(times.toSorted())
      expectUnique(times)
      expect((times[0] ?? '') > entry.created_at).toBe(true)
      expect(viewsOf(entry.entry_id).at(-1)?.timestamp).toBe(entry.updated_at)
    }
  })

  it('contain the name and email of the contact once the page with those questions is left', () => {
    for (const entry of entries) {
      const { name, email } = JSON.parse(entry.entry_data)
      const asking = viewsOf(entry.entry_id).findLastIndex((view) => /email|details/.test(view.page_key ?? ''))
      const furthest = Math.max(...viewsOf(entry.entry_id).map((view) => view.page_index ?? 0))
      const left = asking >= 0 && furthest > (viewsOf(entry.entry_id)[asking]?.page_index ?? 0)
      expect(typeof name).toBe(left ? 'string' : 'undefined')
      const own = contactOf.get(entry.contact_id)?.identifiers.find((identifier) => identifier.key === 'email')
      if (left) expect(JSON.stringify(email)).toBe(own?.value)
      else expect(email).toBeUndefined()
    }
  })
})

describe('events', () => {
  it('are about ten per entry', () => {
    expect(events.length / entries.length).toBeGreaterThan(9)
    expect(events.length / entries.length).toBeLessThan(11)
  })

  it('view pages of the version that was in effect when the entry began', () => {
    for (const event of events) {
      const entry = entryOf.get(event.entry_id) as Of<'entry'>
      if (event.event_type !== 'flowpage.viewed') continue
      const { pages } = definitionAt(entry.module_id, entry.created_at)
      expect(event.total_pages).toBe(pages.length)
      expect(pages[event.page_index ?? -1]).toMatchObject({ page_id: event.page_id, page_key: event.page_key })
    }
  })

  it('are page views or custom events with props that are a JSON object', () => {
    for (const event of events) {
      if (event.page_key) expect(event).toMatchObject({ event_type: 'flowpage.viewed', view_type: 'flowpage' })
      else {
        expect(event.event_type).toBe('custom_event:triggered')
        expect(event.custom_event_name).toMatch(/^[a-z_]+$/)
        expect(JSON.parse(event.custom_event_props ?? '')).toBeInstanceOf(Object)
      }
    }
  })

  it('drop off along the flow, and sometimes go back a page', () => {
    const current = entries.filter((entry) => entry.module_id === DEMO.moduleId && entry.created_at > '2026-02-04T08')
    const reached = Array.from({ length: 7 }, () => 0)
    let back = 0
    for (const { entry_id } of current) {
      const indexes = viewsOf(entry_id).map((view) => view.page_index ?? -1)
      for (const index of new Set(indexes)) reached[index] = (reached[index] ?? 0) + 1
      if (indexes.some((index, n) => index < (indexes[n - 1] ?? 0))) back += 1
    }
    expect(reached[0]).toBe(current.length)
    for (const [index, count] of reached.entries()) {
      if (index > 0) expect(count / (reached[index - 1] ?? 0)).toBeGreaterThan(0.75)
      if (index > 0) expect(count / (reached[index - 1] ?? 0)).toBeLessThan(0.95)
    }
    expect(back).toBeGreaterThan(current.length / 10)
  })
})

describe('the ids of DEMO', () => {
  const smallest = take(1)

  it('refer to a module, a published version and an entry of the smallest demo', () => {
    const [entry] = only(smallest, 'entry')
    expect(entry).toMatchObject({
      entry_id: DEMO.entryId,
      module_id: DEMO.moduleId,
      created_at: '2026-03-01T09:30:00.000Z',
    })
    const version = only(smallest, 'module_version').find(
      ({ module_id, version_number }) => module_id === DEMO.moduleId && version_number === DEMO.versionNumber,
    )
    expect((version?.published_at ?? '~') < '2026-03-01').toBe(true)
  })

  it('refer to an entry with several page views and custom events', () => {
    const own = only(smallest, 'event')
    expect(own.map((event) => event.page_key ?? event.custom_event_name)).toEqual([
      'intro',
      'quiz_started',
      'skin-type',
      'concerns',
      'skin-type',
      'concerns',
      'routine',
      'budget',
      'email',
      'newsletter_opt_in',
      'result',
      'coupon_applied',
      'checkout_started',
    ])
    expect(own.every((event) => event.entry_id === DEMO.entryId)).toBe(true)
  })
})
