"""Runs the journey of ../journey.md with the client of openapi-python-client."""

import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from flowtrail import AuthenticatedClient
from flowtrail.api.entries import get_entry, list_entry_events, list_entry_page_views
from flowtrail.api.erasures import list_erasures
from flowtrail.api.events import list_project_events, record_custom_event, record_custom_events
from flowtrail.api.modules import get_module, get_module_version, list_module_versions, list_modules
from flowtrail.models import (
    ErrorBody,
    ContactIdentifier,
    CustomEventBatch,
    CustomEventBatchItem,
    CustomEventInput,
    EntryEvent,
    FlowEntry,
    FlowModule,
    ModuleVersion,
    SortDirection,
)
from flowtrail.types import UNSET, Response, Unset

PROJECT = "demo"
MODULE = "skin-quiz"
# Letters of several scripts, an emoji, and quotes: what a client may garble.
TEXT = 'Ärger 日本 🎉 say "hi"'
Answer = TypeVar("Answer")
Row = TypeVar("Row")


def connect(key: str, url: str = "FLOWTRAIL_URL") -> AuthenticatedClient:
    """A client with the URL and key in the environment variables of these names."""
    return AuthenticatedClient(
        base_url=os.environ[url],
        token=os.environ[key],
        auth_header_name="X-Api-Key",
        prefix="",
        raise_on_unexpected_status=True,
    )


def good(answer: Answer | ErrorBody | None) -> Answer:
    """The result of a call that must succeed."""
    assert answer is not None and not isinstance(answer, ErrorBody), answer
    return answer


def only(kind: type[Answer], answer: object) -> Answer:
    """The same for an operation with a 304, whose missing body the generator types as Any; a class narrows it."""
    assert isinstance(answer, kind), answer
    return answer


def fault(status: int, code: str, answer: Response[Answer | ErrorBody]) -> ErrorBody:
    """The typed error of a call that must fail."""
    error = answer.parsed
    assert isinstance(error, ErrorBody), answer
    assert (answer.status_code, error.error.code, error.project_id) == (status, code, PROJECT), answer
    return error


def next_by_link(page: Response[Answer]) -> str | None:
    """The cursor in the URL of the next page, which otherwise equals that of this page."""
    link = page.headers.get("Link")
    if link is None:
        return None
    match = re.fullmatch(r'<([^>]+)>; rel="next"', link)
    assert match, link
    address = urlsplit(match[1])
    query = parse_qs(address.query)
    assert (address.path, query["limit"]) == (f"/projects/{PROJECT}/entries-page-views", ["50"]), link
    return query["cursor"][0]


def next_by_cursor(page: Response[Answer]) -> str | None:
    return page.headers.get("Next-Cursor")


def walk(
    page_at: Callable[[str | Unset], Response[ErrorBody | list[Row]]],
    next_of: Callable[[Response[ErrorBody | list[Row]]], str | None] = next_by_cursor,
) -> Iterator[Row]:
    """The rows of a list, read page by page."""
    page = page_at(UNSET)
    yield from good(page.parsed)
    while cursor := next_of(page):
        page = page_at(cursor)
        yield from good(page.parsed)


def ok(step: str) -> None:
    print("ok", step, flush=True)


client = connect("FLOWTRAIL_KEY")

assert MODULE in [module.module_id for module in good(list_modules.sync(PROJECT, client=client))]
ok("list-modules")

module = get_module.sync_detailed(PROJECT, MODULE, client=client)
json.loads(only(FlowModule, module.parsed).json_string_prod)
ok("get-module")

newest = good(list_module_versions.sync(PROJECT, MODULE, client=client))[0]
ok("list-versions")

version = only(ModuleVersion, get_module_version.sync(PROJECT, MODULE, newest.version_number, client=client))
json.loads(version.json_string)
assert version.saved_at == newest.saved_at
ok("get-version")

by_link = list(
    walk(
        lambda cursor: list_entry_page_views.sync_detailed(PROJECT, client=client, limit=50, cursor=cursor),
        next_by_link,
    )
)
by_cursor = list(
    walk(
        lambda cursor: list_entry_page_views.sync_detailed(
            PROJECT, client=client, limit=30, direction=SortDirection.ASC, cursor=cursor
        )
    )
)
assert len(by_link) >= 200
assert len({entry.entry_id for entry in by_link}) == len(by_link)
assert {entry.entry_id for entry in by_cursor} == {entry.entry_id for entry in by_link}
middle = by_cursor[150].updated_at
later = list_entry_page_views.sync(
    PROJECT, client=client, limit=1000, direction=SortDirection.ASC, updated_after=middle
)
assert good(later) == [entry for entry in by_cursor if entry.updated_at >= middle]
ok("page-through")

first = by_cursor[0]
entry = only(FlowEntry, get_entry.sync(PROJECT, first.entry_id, client=client))
json.loads(entry.entry_data)
assert entry.created_at == first.created_at
assert entry.created_at.utcoffset() == timedelta(0)
ok("get-entry")


def events_of(entry_id: str) -> list[EntryEvent]:
    return list(
        walk(lambda cursor: list_entry_events.sync_detailed(PROJECT, entry_id, client=client, limit=2, cursor=cursor))
    )


views = [event for event in events_of(first.entry_id) if event.view_type == "flowpage"]
assert [view.timestamp for view in reversed(views)] == [view.timestamp for view in first.page_views]
ok("list-events")


def unguessable(key: str) -> ContactIdentifier:
    return ContactIdentifier(key=key, value=json.dumps(f"{TEXT} {uuid4()}", ensure_ascii=False))


def event_of(*identifiers: ContactIdentifier, props: str = "{}") -> CustomEventInput:
    return CustomEventInput(
        module_id=MODULE,
        timestamp=datetime.now(UTC),
        custom_event_name=TEXT,
        custom_event_props=props,
        identifiers=list(identifiers),
    )


known = unguessable(TEXT)
taken = event_of(known, unguessable("email"), props=json.dumps({"said": TEXT}, ensure_ascii=False))
idempotency_key = str(uuid4())
recorded = good(record_custom_event.sync(PROJECT, client=client, body=taken, idempotency_key=idempotency_key))
assert recorded.contact_id
(found,) = events_of(recorded.entry_id)
assert (found.custom_event_name, found.custom_event_props) == (TEXT, taken.custom_event_props)
assert found.timestamp == recorded.timestamp
again = good(record_custom_event.sync(PROJECT, client=client, body=event_of(known)))
assert again.contact_id == recorded.contact_id
ok("record")

replay = record_custom_event.sync_detailed(PROJECT, client=client, body=taken, idempotency_key=idempotency_key)
assert replay.parsed == recorded
assert replay.headers["Idempotent-Replayed"] == "true"
ok("replay")

batch = CustomEventBatch(
    events=[
        CustomEventBatchItem(
            module_id=module_id,
            timestamp=taken.timestamp,
            custom_event_name=TEXT,
            identifiers=taken.identifiers,
            idempotency_key=str(uuid4()),
        )
        for module_id in (MODULE, "hair-quiz")
    ]
)
accepted, rejected = good(record_custom_events.sync(PROJECT, client=client, body=batch)).results
assert (accepted.status, accepted.replayed) == (200, False), accepted
assert accepted.event and accepted.event.custom_event_name == TEXT
assert accepted.event.timestamp == recorded.timestamp
assert rejected.status == 404 and rejected.error and rejected.error.code == "module_does_not_exist", rejected
assert (rejected.project_id, rejected.module_id) == (PROJECT, "hair-quiz")
repeated, _ = good(record_custom_events.sync(PROJECT, client=client, body=batch)).results
assert repeated.event and repeated.event.event_id == accepted.event.event_id
assert repeated.replayed
ok("record-batch")

(before,) = good(list_project_events.sync(PROJECT, client=client, direction=SortDirection.DESC, limit=1))
fresh = good(record_custom_event.sync(PROJECT, client=client, body=event_of(unguessable("email"))))
page = list_project_events.sync_detailed(
    PROJECT, client=client, direction=SortDirection.ASC, after=before.position, wait=5, limit=10
)
(latest,) = good(page.parsed)
assert latest.event_id == fresh.event_id
assert latest.position > before.position
assert latest.recorded_at.utcoffset() == timedelta(0)
assert "Link" not in page.headers
cursor = page.headers["Next-Cursor"]
assert list_project_events.sync(PROJECT, client=client, direction=SortDirection.ASC, cursor=cursor) == []
ok("follow-feed")

(erasure,) = good(list_erasures.sync(PROJECT, client=client, direction=SortDirection.DESC, limit=1))
assert erasure.contact_id and len(erasure.entry_ids) == 2 and all(erasure.entry_ids), erasure
assert erasure.erased_at.utcoffset() == timedelta(0)
none = list_erasures.sync_detailed(PROJECT, client=client, direction=SortDirection.ASC, after=erasure.position)
assert none.parsed == []
assert "Link" not in none.headers and none.headers["Next-Cursor"]
ok("list-erasures")

unchanged = get_module.sync_detailed(PROJECT, MODULE, client=client, if_none_match=module.headers["ETag"])
assert (unchanged.status_code, unchanged.parsed) == (304, None)
ok("conditional")

error = fault(
    400, "invalid_request", list_entry_events.sync_detailed(PROJECT, first.entry_id, client=client, cursor="AWJ4")
)
assert error.error.details and error.error.details[0].pointer == "/query/cursor"
ok("error-400")

fault(401, "unauthorized", list_modules.sync_detailed(PROJECT, client=connect("FLOWTRAIL_OTHER_KEY")))
ok("error-401")

reader = connect("FLOWTRAIL_READ_KEY")
fault(403, "insufficient_scope", record_custom_event.sync_detailed(PROJECT, client=reader, body=taken))
ok("error-403")

error = fault(404, "module_does_not_exist", get_module.sync_detailed(PROJECT, "hair-quiz", client=client))
assert error.module_id == "hair-quiz"
ok("error-404-module")

error = fault(
    404, "module_version_does_not_exist", get_module_version.sync_detailed(PROJECT, MODULE, 99, client=client)
)
assert (error.module_id, error.version_number) == (MODULE, 99)
ok("error-404-version")

error = fault(404, "entry_not_found", get_entry.sync_detailed(PROJECT, "nobody", client=client))
assert error.entry_id == "nobody"
ok("error-404-entry")

mine, yours = unguessable("crm_id"), unguessable("phone")
for identifier in (mine, yours):
    good(record_custom_event.sync(PROJECT, client=client, body=event_of(identifier)))
both = record_custom_event.sync_detailed(PROJECT, client=client, body=event_of(mine, yours))
fault(409, "identifier_conflict", both)
ok("error-409")

large = event_of(mine, props=json.dumps({"note": "x" * 256 * 1024}))
fault(413, "payload_too_large", record_custom_event.sync_detailed(PROJECT, client=client, body=large))
ok("error-413")

another = record_custom_event.sync_detailed(
    PROJECT, client=client, body=event_of(mine), idempotency_key=idempotency_key
)
fault(422, "idempotency_key_reused", another)
ok("error-422")

limited = connect("FLOWTRAIL_KEY", "FLOWTRAIL_LIMITED_URL")
list_modules.sync_detailed(PROJECT, client=limited)
refused = list_modules.sync_detailed(PROJECT, client=limited)
fault(429, "rate_limited", refused)
assert int(refused.headers["Retry-After"]) > 0
ok("error-429")
