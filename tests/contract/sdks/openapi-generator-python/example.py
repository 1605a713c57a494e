import json
import os
from datetime import UTC, datetime

import flowtrail

client = flowtrail.ApiClient(
    flowtrail.Configuration(
        host=os.environ.get("FLOWTRAIL_URL", "http://127.0.0.1:3000"),
        api_key={"ApiKey": os.environ["FLOWTRAIL_KEY"]},
    )
)

# Every entry with its page views, page by page.
entries = flowtrail.EntriesApi(client)
cursor = None
while True:
    page = entries.list_entry_page_views_with_http_info("demo", limit=100, cursor=cursor)
    for entry in page.data:
        print(entry.entry_id, entry.created_at.date(), len(entry.page_views))
    cursor = (page.headers or {}).get("next-cursor")
    if cursor is None:
        break

# A custom event, recorded once however often this is sent.
order = flowtrail.CustomEventInput(
    module_id="skin-quiz",
    timestamp=datetime(2026, 3, 1, 9, 41, 12, 345_000, tzinfo=UTC),
    custom_event_name="order_placed",
    identifiers=[flowtrail.ContactIdentifier(key="email", value=json.dumps("amara.okafor@example.com"))],
)
try:
    result = flowtrail.EventsApi(client).record_custom_event("demo", order, idempotency_key="order-10042")
    print(result.entry_id)
except flowtrail.ApiException as exception:
    if not isinstance(exception.data, flowtrail.ErrorBody):
        raise
    print(exception.data.error.code, exception.data.error.details)
