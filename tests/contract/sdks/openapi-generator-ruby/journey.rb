# frozen_string_literal: true

# Runs the journey of ../journey.md with the client of openapi-generator (`-g ruby`).

require 'flowtrail'
require 'json'
require 'securerandom'
require 'time'
require 'uri'

# From here on a warning is an error. While it is loaded, the generated code redefines methods.
$VERBOSE = true
def Warning.warn(message, **) = raise(message)

PROJECT = 'demo'
MODULE = 'skin-quiz'

# Letters of several scripts, an emoji, and quotes: what a client may garble.
TEXT = 'Ärger À la carte 日本 🎉 say "hi"'

# A client with the URL and key in the environment variables of these names.
def connect(key, url = 'FLOWTRAIL_URL')
  configuration = Flowtrail::Configuration.new do |config|
    config.host = ENV.fetch(url)
    config.api_key['X-Api-Key'] = ENV.fetch(key)
  end
  Flowtrail::ApiClient.new(configuration)
end

def expect(holds, instead)
  raise "not so: #{instead.inspect}" unless holds
end

def ok(step)
  puts "ok #{step}"
end

# The exception that a call must raise.
def refused
  answer = yield
rescue Flowtrail::ApiError => e
  e
else
  raise "not refused, but #{answer}"
end

# The typed error that a call must raise.
def fault(status, code, &call)
  exception = refused(&call)
  body = Flowtrail::ErrorBody.build_from_hash(JSON.parse(exception.response_body))
  expect([exception.code, body.error.code, body.project_id] == [status, code, PROJECT], exception)
  body
end

def next_by_cursor(headers)
  headers['Next-Cursor']
end

# The cursor in the URL of the next page, which otherwise equals that of this page.
def next_by_link(headers)
  link = headers['Link'] or return
  address = URI(link[/\A<([^>]+)>; rel="next"\z/, 1])
  query = URI.decode_www_form(address.query).to_h
  expect([address.path, query['limit']] == ["/projects/#{PROJECT}/entries-page-views", '50'], link)
  query.fetch('cursor')
end

# The rows of a list, read page by page.
def walk(next_of = method(:next_by_cursor))
  rows = []
  cursor = nil
  loop do
    page, _status, headers = yield cursor
    rows += page
    cursor = next_of.call(headers) or return rows
  end
end

client = connect('FLOWTRAIL_KEY')
modules = Flowtrail::ModulesApi.new(client)
entries = Flowtrail::EntriesApi.new(client)
events = Flowtrail::EventsApi.new(client)

listed = modules.list_modules(PROJECT)
expect(listed.map(&:module_id).include?(MODULE), listed)
ok 'list-modules'

flow, _status, headers = modules.get_module_with_http_info(PROJECT, MODULE)
etag = headers['ETag']
JSON.parse(flow.json_string_prod)
ok 'get-module'

newest = modules.list_module_versions(PROJECT, MODULE).first
ok 'list-versions'

version = modules.get_module_version(PROJECT, MODULE, newest.version_number)
JSON.parse(version.json_string)
expect(version.saved_at == newest.saved_at, version)
ok 'get-version'

by_link = walk(method(:next_by_link)) do |cursor|
  entries.list_entry_page_views_with_http_info(PROJECT, limit: 50, cursor: cursor)
end
by_cursor = walk do |cursor|
  direction = Flowtrail::SortDirection::ASC
  entries.list_entry_page_views_with_http_info(PROJECT, limit: 30, direction: direction, cursor: cursor)
end
expect(by_link.size >= 200, by_link.size)
expect(by_link.map(&:entry_id).uniq.size == by_link.size, by_link)
expect(by_cursor.map(&:entry_id).sort == by_link.map(&:entry_id).sort, by_cursor)
middle = by_cursor[150].updated_at
since = ->(time) { entries.list_entry_page_views(PROJECT, limit: 1000, direction: 'ASC', updated_after: time) }
expect(since.call(middle.iso8601(3)) == by_cursor.select { |entry| entry.updated_at >= middle }, middle)
unread = fault(400, 'invalid_request') { since.call(middle) }
expect(unread.error.details.first.pointer == '/query/updated_after', unread)
puts "-- page-through: a Time is sent as #{middle}, which RFC 3339 does not allow; all else is done, with text"

first = by_cursor.first
entry = entries.get_entry(PROJECT, first.entry_id)
JSON.parse(entry.entry_data)
expect(entry.created_at == first.created_at, entry)
expect(entry.created_at.is_a?(Time) && entry.created_at.utc?, entry)
ok 'get-entry'

events_of = lambda do |entry_id|
  walk { |cursor| entries.list_entry_events_with_http_info(PROJECT, entry_id, limit: 2, cursor: cursor) }
end
views = events_of.call(first.entry_id).select { |event| event.view_type == 'flowpage' }
expect(views.map(&:timestamp).reverse == first.page_views.map(&:timestamp), views)
ok 'list-events'

# An identifier that no other contact has.
def identifier(key, text = '')
  Flowtrail::ContactIdentifier.new(key: key, value: "#{text}#{SecureRandom.uuid}".to_json)
end

# A current custom event. A Time would be sent as in a query, and refused.
def event_of(*identifiers)
  Flowtrail::CustomEventInput.new(
    module_id: MODULE,
    timestamp: Time.now.utc.iso8601(3),
    custom_event_name: TEXT,
    custom_event_props: { by: 'openapi-generator', said: TEXT }.to_json,
    identifiers: identifiers
  )
end

taken = event_of(identifier('email'), identifier(TEXT, TEXT))
once = { idempotency_key: SecureRandom.uuid }
recorded = events.record_custom_event(PROJECT, taken, once)
expect(!recorded.contact_id.empty?, recorded)
expect(recorded.timestamp.iso8601(3) == taken.timestamp, recorded)
found = events_of.call(recorded.entry_id)
expect(found.size == 1 && found.first.timestamp == recorded.timestamp, found)
expect([found.first.custom_event_name, found.first.custom_event_props] == [TEXT, taken.custom_event_props], found)
# The service understood the identifier as it was meant: it is the same contact's.
again = events.record_custom_event(PROJECT, event_of(taken.identifiers.last))
expect(again.contact_id == recorded.contact_id, again)
ok 'record'

replayed, _status, headers = events.record_custom_event_with_http_info(PROJECT, taken, once)
expect(replayed == recorded, replayed)
expect(headers['Idempotent-Replayed'] == 'true', headers)
ok 'replay'

items = [MODULE, 'hair-quiz'].map do |module_id|
  Flowtrail::CustomEventBatchItem.new(
    module_id: module_id,
    timestamp: taken.timestamp,
    custom_event_name: TEXT,
    identifiers: taken.identifiers,
    idempotency_key: SecureRandom.uuid
  )
end
batch = Flowtrail::CustomEventBatch.new(events: items)
results = events.record_custom_events(PROJECT, batch).results
expect(results.size == 2, results)
accepted, rejected = results
expect([accepted.status, accepted.replayed, accepted.event.custom_event_name] == [200, false, TEXT], accepted)
expect(accepted.event.timestamp == recorded.timestamp, accepted)
expect([rejected.status, rejected.error.code] == [404, 'module_does_not_exist'], rejected)
expect([rejected.project_id, rejected.module_id] == [PROJECT, 'hair-quiz'], rejected)
repeated = events.record_custom_events(PROJECT, batch).results.first
expect(repeated.event == accepted.event && repeated.replayed, repeated)
ok 'record-batch'

before = events.list_project_events(PROJECT, direction: 'DESC', limit: 1).first
fresh = events.record_custom_event(PROJECT, event_of(identifier('email')))
following = { direction: 'ASC', after: before.position, wait: 5, limit: 10 }
page, _status, headers = events.list_project_events_with_http_info(PROJECT, following)
expect(page.map(&:event_id) == [fresh.event_id], page)
latest = page.first
expect(latest.position > before.position, latest)
expect(latest.recorded_at.is_a?(Time) && latest.recorded_at.utc?, latest)
cursor = next_by_cursor(headers)
expect(cursor && headers['Link'].nil?, headers)
rest = events.list_project_events(PROJECT, direction: 'ASC', cursor: cursor)
expect(rest == [], rest)
ok 'follow-feed'

erasures = Flowtrail::ErasuresApi.new(client)
erasure = erasures.list_erasures(PROJECT, direction: 'DESC', limit: 1).first
expect([erasure.contact_id, *erasure.entry_ids].map(&:empty?) == [false] * 3, erasure)
expect(erasure.erased_at.is_a?(Time) && erasure.erased_at.utc?, erasure)
none, _status, headers = erasures.list_erasures_with_http_info(PROJECT, direction: 'ASC', after: erasure.position)
expect(none == [], none)
expect(next_by_cursor(headers) && headers['Link'].nil?, headers)
ok 'list-erasures'

unchanged = refused { modules.get_module(PROJECT, MODULE, if_none_match: etag) }
expect(unchanged.code == 304, unchanged)
ok 'conditional'

invalid = fault(400, 'invalid_request') { entries.list_entry_events(PROJECT, first.entry_id, cursor: 'AWJ4') }
expect(invalid.error.details.first.pointer == '/query/cursor', invalid)
ok 'error-400'

stranger = Flowtrail::ModulesApi.new(connect('FLOWTRAIL_OTHER_KEY'))
fault(401, 'unauthorized') { stranger.list_modules(PROJECT) }
ok 'error-401'

reader = Flowtrail::EventsApi.new(connect('FLOWTRAIL_READ_KEY'))
fault(403, 'insufficient_scope') { reader.record_custom_event(PROJECT, taken) }
ok 'error-403'

unknown = fault(404, 'module_does_not_exist') { modules.get_module(PROJECT, 'hair-quiz') }
expect(unknown.module_id == 'hair-quiz', unknown)
ok 'error-404-module'

unknown = fault(404, 'module_version_does_not_exist') { modules.get_module_version(PROJECT, MODULE, 99) }
expect([unknown.module_id, unknown.version_number] == [MODULE, 99], unknown)
ok 'error-404-version'

unknown = fault(404, 'entry_not_found') { entries.get_entry(PROJECT, 'nobody') }
expect(unknown.entry_id == 'nobody', unknown)
ok 'error-404-entry'

mine = identifier('crm_id')
yours = identifier('phone')
[mine, yours].each { |known| events.record_custom_event(PROJECT, event_of(known)) }
fault(409, 'identifier_conflict') { events.record_custom_event(PROJECT, event_of(mine, yours)) }
ok 'error-409'

# The model refuses a name that is too long, a hash may have it.
large = taken.to_hash.merge(custom_event_name: 'x' * 256 * 1024)
fault(413, 'payload_too_large') { events.record_custom_event(PROJECT, large) }
ok 'error-413'

fault(422, 'idempotency_key_reused') { events.record_custom_event(PROJECT, event_of(mine), once) }
ok 'error-422'

limited = Flowtrail::ModulesApi.new(connect('FLOWTRAIL_KEY', 'FLOWTRAIL_LIMITED_URL'))
begin
  limited.list_modules(PROJECT)
rescue Flowtrail::ApiError
  # An earlier journey may have used up the rate limit.
end
fault(429, 'rate_limited') { limited.list_modules(PROJECT) }
headers = refused { limited.list_modules(PROJECT) }.response_headers
expect(Integer(headers['Retry-After']).positive?, headers)
ok 'error-429'
