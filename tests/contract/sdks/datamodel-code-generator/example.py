import json
import os
from datetime import UTC, datetime

import httpx
from flowtrail import (
    ContactIdentifier,
    CustomEventInput,
    CustomEventResult,
    ErrorBody,
    ListEntryPageViewsParametersQuery,
    ListEntryPageViewsResponse,
)

client = httpx.Client(
    base_url=os.environ.get("FLOWTRAIL_URL", "http://127.0.0.1:3000"),
    headers={"X-Api-Key": os.environ["FLOWTRAIL_KEY"]},
)

# Every entry with its page views, page by page.
cursor: str | None = None
while True:
    query = ListEntryPageViewsParametersQuery(limit=100, cursor=cursor)
    page = client.get("/projects/demo/entries-page-views", params=query.model_dump(mode="json", exclude_none=True))
    page.raise_for_status()
    for entry in ListEntryPageViewsResponse.model_validate_json(page.content).root:
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
answer = client.post(
    "/projects/demo/events",
    content=order.model_dump_json(),
    headers={"Content-Type": "application/json", "Idempotency-Key": "order-10042"},
)
if answer.is_success:
    print(CustomEventResult.model_validate_json(answer.content).entry_id)
else:
    refusal = ErrorBody.model_validate_json(answer.content)
    print(refusal.error.code, refusal.error.details)
