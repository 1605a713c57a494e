"""Runs the journey of ../journey.md with the models of datamodel-code-generator, over httpx, for they make no calls."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import uuid4

import httpx
from flowtrail import (
    ContactIdentifier,
    CustomEventBatch,
    CustomEventBatchItem,
    CustomEventBatchResult,
    CustomEventInput,
    CustomEventResult,
    EntryEvent,
    EntryPageViews,
    ErrorBody,
    FlowEntry,
    FlowModule,
    ListEntryEventsParametersQuery,
    ListEntryEventsResponse,
    ListEntryPageViewsParametersQuery,
    ListEntryPageViewsResponse,
    ListErasuresParametersQuery,
    ListErasuresResponse,
    ListModulesResponse,
    ListModuleVersionsResponse,
    ListProjectEventsParametersQuery,
    ListProjectEventsResponse,
    ModuleVersion,
    SortDirection,
)
from pydantic import BaseModel

PROJECT = "demo"
MODULE = "skin-quiz"
# Letters of several scripts, an emoji, and quotes: what a client may garble.
TEXT = 'Ärger 日本 🎉 say "hi"'
Model = TypeVar("Model", bound=BaseModel)


def connect(key: str, url: str = "FLOWTRAIL_URL") -> httpx.Client:
    """A client for the project, with the URL and key in the environment variables of these names."""
    return httpx.Client(base_url=f"{os.environ[url]}/projects/{PROJECT}", headers={"X-Api-Key": os.environ[key]})


def read(model: type[Model], answer: httpx.Response) -> Model:
    """The body of a call that must succeed."""
    assert answer.is_success, answer.text
    return model.model_validate_json(answer.content)


def fault(status: int, code: str, answer: httpx.Response) -> ErrorBody:
    """The error of a call that must fail."""
    error = ErrorBody.model_validate_json(answer.content)
    assert (answer.status_code, error.error.code, error.project_id) == (status, code, PROJECT), error
    return error


def ok(step: str) -> None:
    print("ok", step, flush=True)


client = connect("FLOWTRAIL_KEY")

assert MODULE in [module.module_id for module in read(ListModulesResponse, client.get("modules")).root]
ok("list-modules")

module = client.get(f"modules/{MODULE}")
json.loads(read(FlowModule, module).json_string_prod)
ok("get-module")

newest = read(ListModuleVersionsResponse, client.get(f"modules/{MODULE}/versions")).root[0]
ok("list-versions")

version = read(ModuleVersion, client.get(f"modules/{MODULE}/versions/{newest.version_number}"))
json.loads(version.json_string)
assert version.saved_at == newest.saved_at
ok("get-version")


def get_list(path: str, query: BaseModel) -> httpx.Response:
    return client.get(path, params=query.model_dump(mode="json", exclude_none=True))


def by_link(path: str, query: BaseModel) -> Iterator[httpx.Response]:
    """The pages of a list, by the URLs in their headers."""
    page = get_list(path, query)
    yield page
    while link := page.links.get("next"):
        page = client.get(page.url.join(link["url"]))
        yield page


def by_cursor(path: str, query: BaseModel) -> Iterator[httpx.Response]:
    """The same by the cursors in their headers."""
    page = get_list(path, query)
    yield page
    while cursor := page.headers.get("Next-Cursor"):
        page = get_list(path, query.model_copy(update={"cursor": cursor}))
        yield page


def entries_of(pages: Iterator[httpx.Response]) -> list[EntryPageViews]:
    return [entry for page in pages for entry in read(ListEntryPageViewsResponse, page).root]


def events_of(entry_id: str) -> list[EntryEvent]:
    pages = by_cursor(f"entries/{entry_id}/events", ListEntryEventsParametersQuery(limit=2))
    return [event for page in pages for event in read(ListEntryEventsResponse, page).root]


linked = entries_of(by_link("entries-page-views", ListEntryPageViewsParametersQuery(limit=50)))
ascending = ListEntryPageViewsParametersQuery(limit=30, direction=SortDirection.asc)
entries = entries_of(by_cursor("entries-page-views", ascending))
assert len(linked) >= 200
assert len({entry.entry_id for entry in linked}) == len(linked)
assert {entry.entry_id for entry in entries} == {entry.entry_id for entry in linked}
middle = entries[150].updated_at
since = ascending.model_copy(update={"limit": 1000, "updated_after": middle})
later = read(ListEntryPageViewsResponse, get_list("entries-page-views", since))
assert later.root == [entry for entry in entries if entry.updated_at >= middle]
ok("page-through")

first = entries[0]
entry = read(FlowEntry, client.get(f"entries/{first.entry_id}"))
json.loads(entry.entry_data)
assert entry.created_at == first.created_at
assert entry.created_at.utcoffset() == timedelta(0)
ok("get-entry")

views = [event for event in events_of(first.entry_id) if event.view_type == "flowpage"]
assert [view.timestamp for view in reversed(views)] == [view.timestamp for view in first.page_views]
ok("list-events")


def unguessable(key: str) -> ContactIdentifier:
    return ContactIdentifier(key=key, value=json.dumps(f"{TEXT} {uuid4()}", ensure_ascii=False))


def event_of(*identifiers: ContactIdentifier) -> CustomEventInput:
    return CustomEventInput(
        module_id=MODULE,
        timestamp=datetime.now(UTC),
        custom_event_name=TEXT,
        custom_event_props=json.dumps({"said": TEXT}, ensure_ascii=False),
        identifiers=list(identifiers),
    )


def record(
    event: CustomEventInput, idempotency_key: str | None = None, client: httpx.Client = client
) -> httpx.Response:
    headers = {"Content-Type": "application/json"}
    if idempotency_key is not None:
        headers["Idempotency-Key"] = idempotency_key
    return client.post("events", content=event.model_dump_json(), headers=headers)


known = unguessable(TEXT)
taken = event_of(known, unguessable("email"))
idempotency_key = str(uuid4())
recorded = read(CustomEventResult, record(taken, idempotency_key))
assert recorded.contact_id
(found,) = events_of(recorded.entry_id)
assert (found.custom_event_name, found.custom_event_props) == (TEXT, taken.custom_event_props)
assert found.timestamp == recorded.timestamp
assert read(CustomEventResult, record(event_of(known))).contact_id == recorded.contact_id
ok("record")

replay = record(taken, idempotency_key)
assert read(CustomEventResult, replay) == recorded
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


def record_batch() -> httpx.Response:
    return client.post(
        "events/batch", content=batch.model_dump_json(exclude_none=True), headers={"Content-Type": "application/json"}
    )


accepted, rejected = read(CustomEventBatchResult, record_batch()).results
assert (accepted.status, accepted.replayed) == (200, False), accepted
assert accepted.event and accepted.event.custom_event_name == TEXT
assert accepted.event.timestamp == recorded.timestamp
assert rejected.status == 404 and rejected.error and rejected.error.code == "module_does_not_exist", rejected
assert (rejected.project_id, rejected.module_id) == (PROJECT, "hair-quiz")
repeated, _ = read(CustomEventBatchResult, record_batch()).results
assert repeated.event and repeated.event.event_id == accepted.event.event_id
assert repeated.replayed
ok("record-batch")

newest_first = ListProjectEventsParametersQuery(direction=SortDirection.desc, limit=1)
(before,) = read(ListProjectEventsResponse, get_list("events", newest_first)).root
fresh = read(CustomEventResult, record(event_of(unguessable("email"))))
after = ListProjectEventsParametersQuery(direction=SortDirection.asc, after=before.position, wait=5)
page = get_list("events", after)
(latest,) = read(ListProjectEventsResponse, page).root
assert latest.event_id == fresh.event_id
assert latest.position > before.position
assert latest.recorded_at.utcoffset() == timedelta(0)
assert "Link" not in page.headers
rest = ListProjectEventsParametersQuery(direction=SortDirection.asc, cursor=page.headers["Next-Cursor"])
assert read(ListProjectEventsResponse, get_list("events", rest)).root == []
ok("follow-feed")

newest_erasure = ListErasuresParametersQuery(direction=SortDirection.desc, limit=1)
(erasure,) = read(ListErasuresResponse, get_list("erasures", newest_erasure)).root
assert erasure.contact_id and len(erasure.entry_ids) == 2 and all(erasure.entry_ids), erasure
assert erasure.erased_at.utcoffset() == timedelta(0)
further = ListErasuresParametersQuery(direction=SortDirection.asc, after=erasure.position)
page = get_list("erasures", further)
assert read(ListErasuresResponse, page).root == []
assert "Link" not in page.headers and page.headers["Next-Cursor"]
ok("list-erasures")

unchanged = client.get(f"modules/{MODULE}", headers={"If-None-Match": module.headers["ETag"]})
assert unchanged.status_code == 304
ok("conditional")

cursor = ListEntryEventsParametersQuery(cursor="AWJ4")
error = fault(400, "invalid_request", get_list(f"entries/{first.entry_id}/events", cursor))
assert error.error.details and error.error.details[0].pointer == "/query/cursor"
ok("error-400")

fault(401, "unauthorized", connect("FLOWTRAIL_OTHER_KEY").get("modules"))
ok("error-401")

fault(403, "insufficient_scope", record(taken, client=connect("FLOWTRAIL_READ_KEY")))
ok("error-403")

error = fault(404, "module_does_not_exist", client.get("modules/hair-quiz"))
assert error.module_id == "hair-quiz"
ok("error-404-module")

error = fault(404, "module_version_does_not_exist", client.get(f"modules/{MODULE}/versions/99"))
assert (error.module_id, error.version_number) == (MODULE, 99)
ok("error-404-version")

error = fault(404, "entry_not_found", client.get("entries/nobody"))
assert error.entry_id == "nobody"
ok("error-404-entry")

mine, yours = unguessable("crm_id"), unguessable("phone")
for identifier in (mine, yours):
    read(CustomEventResult, record(event_of(identifier)))
fault(409, "identifier_conflict", record(event_of(mine, yours)))
ok("error-409")

# The models have the limits of the document, but a copy's changes are not validated.
large = event_of(mine).model_copy(update={"custom_event_name": "x" * 256 * 1024})
fault(413, "payload_too_large", record(large))
ok("error-413")

fault(422, "idempotency_key_reused", record(event_of(mine), idempotency_key))
ok("error-422")

limited = connect("FLOWTRAIL_KEY", "FLOWTRAIL_LIMITED_URL")
limited.get("modules")
refused = limited.get("modules")
fault(429, "rate_limited", refused)
assert int(refused.headers["Retry-After"]) > 0
ok("error-429")
