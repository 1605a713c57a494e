"""Runs the journey of ../journey.md with the client of openapi-generator (`-g python`)."""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from flowtrail import (
    ApiClient,
    ErrorBody,
    ApiException,
    ApiResponse,
    Configuration,
    ContactIdentifier,
    CustomEventBatch,
    CustomEventBatchItem,
    CustomEventInput,
    EntriesApi,
    EntryEvent,
    ErasuresApi,
    EventsApi,
    ModulesApi,
    SortDirection,
)

PROJECT = "demo"
MODULE = "skin-quiz"
# Letters of several scripts, an emoji, and quotes: what a client may garble.
TEXT = 'Ärger 日本 🎉 say "hi"'
Answer = TypeVar("Answer")
Row = TypeVar("Row")


def connect(key: str, url: str = "FLOWTRAIL_URL", retries: int | None = None) -> ApiClient:
    """A client with the URL and key in the environment variables of these names."""
    return ApiClient(Configuration(host=os.environ[url], api_key={"ApiKey": os.environ[key]}, retries=retries))


def header(answer: ApiResponse[Answer], name: str) -> str | None:
    """A header of a response, which has them in a plain dict under the names as sent."""
    headers = {sent.lower(): value for sent, value in (answer.headers or {}).items()}
    return headers.get(name.lower())


def refused(call: Callable[[], object]) -> ApiException:
    """The exception that a call must raise."""
    try:
        answer = call()
    except ApiException as exception:
        return exception
    raise AssertionError(f"not refused, but {answer}")


def fault(status: int, code: str, call: Callable[[], object]) -> ErrorBody:
    """The typed error that a call must raise."""
    exception = refused(call)
    error = exception.data
    assert isinstance(error, ErrorBody), exception
    assert (exception.status, error.error.code, error.project_id) == (status, code, PROJECT), exception
    return error


def next_by_link(page: ApiResponse[Answer]) -> str | None:
    """The cursor in the URL of the next page, which otherwise equals that of this page."""
    link = header(page, "Link")
    if link is None:
        return None
    match = re.fullmatch(r'<([^>]+)>; rel="next"', link)
    assert match, link
    address = urlsplit(match[1])
    query = parse_qs(address.query)
    assert (address.path, query["limit"]) == (f"/projects/{PROJECT}/entries-page-views", ["50"]), link
    return query["cursor"][0]


def next_by_cursor(page: ApiResponse[Answer]) -> str | None:
    return header(page, "Next-Cursor")


def walk(
    page_at: Callable[[str | None], ApiResponse[list[Row]]],
    next_of: Callable[[ApiResponse[list[Row]]], str | None] = next_by_cursor,
) -> Iterator[Row]:
    """The rows of a list, read page by page."""
    page = page_at(None)
    yield from page.data
    while cursor := next_of(page):
        page = page_at(cursor)
        yield from page.data


def ok(step: str) -> None:
    print("ok", step, flush=True)


client = connect("FLOWTRAIL_KEY")
modules, entries, events = ModulesApi(client), EntriesApi(client), EventsApi(client)

assert MODULE in [module.module_id for module in modules.list_modules(PROJECT)]
ok("list-modules")

module = modules.get_module_with_http_info(PROJECT, MODULE)
json.loads(module.data.json_string_prod)
ok("get-module")

newest = modules.list_module_versions(PROJECT, MODULE)[0]
ok("list-versions")

version = modules.get_module_version(PROJECT, MODULE, newest.version_number)
json.loads(version.json_string)
assert version.saved_at == newest.saved_at
ok("get-version")

by_link = list(
    walk(lambda cursor: entries.list_entry_page_views_with_http_info(PROJECT, limit=50, cursor=cursor), next_by_link)
)
by_cursor = list(
    walk(
        lambda cursor: entries.list_entry_page_views_with_http_info(
            PROJECT, limit=30, direction=SortDirection.ASC, cursor=cursor
        )
    )
)
assert len(by_link) >= 200
assert len({entry.entry_id for entry in by_link}) == len(by_link)
assert {entry.entry_id for entry in by_cursor} == {entry.entry_id for entry in by_link}
middle = by_cursor[150].updated_at
later = entries.list_entry_page_views(PROJECT, limit=1000, direction=SortDirection.ASC, updated_after=middle)
assert later == [entry for entry in by_cursor if entry.updated_at >= middle]
ok("page-through")

first = by_cursor[0]
entry = entries.get_entry(PROJECT, first.entry_id)
json.loads(entry.entry_data)
assert entry.created_at == first.created_at
assert entry.created_at.utcoffset() == timedelta(0)
ok("get-entry")


def events_of(entry_id: str) -> list[EntryEvent]:
    return list(
        walk(lambda cursor: entries.list_entry_events_with_http_info(PROJECT, entry_id, limit=2, cursor=cursor))
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
recorded = events.record_custom_event(PROJECT, taken, idempotency_key=idempotency_key)
assert recorded.contact_id
(found,) = events_of(recorded.entry_id)
assert (found.custom_event_name, found.custom_event_props) == (TEXT, taken.custom_event_props)
assert found.timestamp == recorded.timestamp
again = events.record_custom_event(PROJECT, event_of(known))
assert again.contact_id == recorded.contact_id
ok("record")

replay = events.record_custom_event_with_http_info(PROJECT, taken, idempotency_key=idempotency_key)
assert replay.data == recorded
assert header(replay, "Idempotent-Replayed") == "true"
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
accepted, rejected = events.record_custom_events(PROJECT, batch).results
assert (accepted.status, accepted.replayed) == (200, False), accepted
assert accepted.event and accepted.event.custom_event_name == TEXT
assert accepted.event.timestamp == recorded.timestamp
assert rejected.status == 404 and rejected.error and rejected.error.code == "module_does_not_exist", rejected
assert (rejected.project_id, rejected.module_id) == (PROJECT, "hair-quiz")
repeated, _ = events.record_custom_events(PROJECT, batch).results
assert repeated.event and repeated.event.event_id == accepted.event.event_id
assert repeated.replayed
ok("record-batch")

(before,) = events.list_project_events(PROJECT, direction=SortDirection.DESC, limit=1)
fresh = events.record_custom_event(PROJECT, event_of(unguessable("email")))
page = events.list_project_events_with_http_info(
    PROJECT, direction=SortDirection.ASC, after=before.position, wait=5, limit=10
)
(latest,) = page.data
assert latest.event_id == fresh.event_id
assert latest.position > before.position
assert latest.recorded_at.utcoffset() == timedelta(0)
assert header(page, "Link") is None
cursor = next_by_cursor(page)
assert cursor
assert events.list_project_events(PROJECT, direction=SortDirection.ASC, cursor=cursor) == []
ok("follow-feed")

erasures = ErasuresApi(client)
(erasure,) = erasures.list_erasures(PROJECT, direction=SortDirection.DESC, limit=1)
assert erasure.contact_id and len(erasure.entry_ids) == 2 and all(erasure.entry_ids), erasure
assert erasure.erased_at.utcoffset() == timedelta(0)
none = erasures.list_erasures_with_http_info(PROJECT, direction=SortDirection.ASC, after=erasure.position)
assert none.data == []
assert header(none, "Link") is None and next_by_cursor(none)
ok("list-erasures")

unchanged = refused(lambda: modules.get_module(PROJECT, MODULE, if_none_match=header(module, "ETag")))
assert unchanged.status == 304
ok("conditional")

error = fault(400, "invalid_request", lambda: entries.list_entry_events(PROJECT, first.entry_id, cursor="AWJ4"))
assert error.error.details and error.error.details[0].pointer == "/query/cursor"
ok("error-400")

stranger = ModulesApi(connect("FLOWTRAIL_OTHER_KEY"))
fault(401, "unauthorized", lambda: stranger.list_modules(PROJECT))
ok("error-401")

reader = EventsApi(connect("FLOWTRAIL_READ_KEY"))
fault(403, "insufficient_scope", lambda: reader.record_custom_event(PROJECT, taken))
ok("error-403")

error = fault(404, "module_does_not_exist", lambda: modules.get_module(PROJECT, "hair-quiz"))
assert error.module_id == "hair-quiz"
ok("error-404-module")

error = fault(404, "module_version_does_not_exist", lambda: modules.get_module_version(PROJECT, MODULE, 99))
assert (error.module_id, error.version_number) == (MODULE, 99)
ok("error-404-version")

error = fault(404, "entry_not_found", lambda: entries.get_entry(PROJECT, "nobody"))
assert error.entry_id == "nobody"
ok("error-404-entry")

mine, yours = unguessable("crm_id"), unguessable("phone")
for identifier in (mine, yours):
    events.record_custom_event(PROJECT, event_of(identifier))
fault(409, "identifier_conflict", lambda: events.record_custom_event(PROJECT, event_of(mine, yours)))
ok("error-409")

# The client checks the length of props in characters, and then sends twelve bytes for each of these.
large = event_of(mine, props=json.dumps({"note": "\N{HERB}\N{DROPLET}" * 16_000}, ensure_ascii=False))
fault(413, "payload_too_large", lambda: events.record_custom_event(PROJECT, large))
ok("error-413")

another = event_of(mine)
fault(
    422,
    "idempotency_key_reused",
    lambda: events.record_custom_event(PROJECT, another, idempotency_key=idempotency_key),
)
ok("error-422")

# By default the client waits for the time in Retry-After and retries.
limited = ModulesApi(connect("FLOWTRAIL_KEY", "FLOWTRAIL_LIMITED_URL", retries=0))
with suppress(ApiException):  # an earlier journey may have used up the rate limit
    limited.list_modules(PROJECT)
fault(429, "rate_limited", lambda: limited.list_modules(PROJECT))
headers = refused(lambda: limited.list_modules(PROJECT)).headers
assert headers and int(headers["Retry-After"]) > 0
ok("error-429")
