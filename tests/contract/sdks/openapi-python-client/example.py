import json
import os
from datetime import UTC, datetime

from flowtrail import AuthenticatedClient
from flowtrail.api.entries import list_entry_page_views
from flowtrail.api.events import record_custom_event
from flowtrail.models import ErrorBody, ContactIdentifier, CustomEventInput
from flowtrail.types import UNSET

client = AuthenticatedClient(
    base_url=os.environ.get("FLOWTRAIL_URL", "http://127.0.0.1:3000"),
    token=os.environ["FLOWTRAIL_KEY"],
    auth_header_name="X-Api-Key",
    prefix="",
    raise_on_unexpected_status=True,
)

# Every entry with its page views, page by page.
cursor: str | None = None
while True:
    page = list_entry_page_views.sync_detailed("demo", client=client, limit=100, cursor=cursor or UNSET)
    if page.parsed is None or isinstance(page.parsed, ErrorBody):
        raise RuntimeError(page.parsed)
    for entry in page.parsed:
        print(entry.entry_id, entry.created_at.date(), len(entry.page_views))
    cursor = page.headers.get("Next-Cursor")
    if cursor is None:
        break

# A custom event, recorded once however often this is sent.
order = CustomEventInput(
    module_id="skin-quiz",
    timestamp=datetime(2026, 3, 1, 9, 41, 12, 345_000, tzinfo=UTC),
    custom_event_name="order_placed",
    identifiers=[ContactIdentifier(key="email", value=json.dumps("amara.okafor@example.com"))],
)
result = record_custom_event.sync("demo", client=client, body=order, idempotency_key="order-10042")
if isinstance(result, ErrorBody):
    print(result.error.code, result.error.details)
elif result:
    print(result.entry_id)
