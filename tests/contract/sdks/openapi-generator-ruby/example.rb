# frozen_string_literal: true

require 'flowtrail'
require 'json'

url = ENV.fetch('FLOWTRAIL_URL', 'http://127.0.0.1:3000')
configuration = Flowtrail::Configuration.new do |config|
  config.scheme = url[/\A\w+/]
  config.host = url
  config.api_key['X-Api-Key'] = ENV.fetch('FLOWTRAIL_KEY')
  config.timeout = 10
end
client = Flowtrail::ApiClient.new(configuration)

# Every entry with its page views, page by page.
entries = Flowtrail::EntriesApi.new(client)
cursor = nil
loop do
  page, _status, headers = entries.list_entry_page_views_with_http_info('demo', limit: 100, cursor: cursor)
  page.each { |entry| puts "#{entry.entry_id} #{entry.created_at.to_date} #{entry.page_views.size}" }
  cursor = headers['Next-Cursor'] or break
end

# A custom event, recorded once however often this is sent.
order = Flowtrail::CustomEventInput.new(
  module_id: 'skin-quiz',
  timestamp: Time.utc(2026, 3, 1, 9, 41, 12.345r).iso8601(3),
  custom_event_name: 'order_placed',
  identifiers: [Flowtrail::ContactIdentifier.new(key: 'email', value: 'amara.okafor@example.com'.to_json)]
)
begin
  result = Flowtrail::EventsApi.new(client).record_custom_event('demo', order, idempotency_key: 'order-10042')
  puts result.entry_id
rescue Flowtrail::ApiError => e
  raise if e.response_body.to_s.empty?

  body = Flowtrail::ErrorBody.build_from_hash(JSON.parse(e.response_body))
  puts "#{body.error.code} #{body.error.details}"
end
