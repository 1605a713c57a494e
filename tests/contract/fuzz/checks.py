"""Checks that schemathesis does not have; like its own, each runs on every response."""

import json
import os
from urllib.parse import parse_qsl, quote, unquote, urljoin, urlsplit

import jsonschema_rs
import requests
import schemathesis
from schemathesis.core.result import Ok
from schemathesis.core.transforms import UNRESOLVABLE

BASE_URL = os.environ['FLOWTRAIL_URL']

# With this many examples every link is followed.
FULL_RUN_examples = 200

# Headers that any HTTP response may have and the document need not mention.
GENERAL_HEADERS = {
    'connection',
    'content-encoding',
    'content-length',
    'content-security-policy',
    'content-type',
    'cross-origin-resource-policy',
    'date',
    'keep-alive',
    'referrer-policy',
    'transfer-encoding',
    'x-content-type-options',
    'x-frame-options',
}

# Response fields that must equal a parameter of the path.
FIELDS = {'project_id': 'projectId', 'module_id': 'moduleId', 'version_number': 'versionNumber', 'entry_id': 'entryId'}


def definition(case):
    """The operation, as written in the document."""
    return case.operation.definition.raw


def rows(response):
    """The records of a list, or the only record. response_schema_conformance reports anything else."""
    body = response.json()
    return [row for row in (body if isinstance(body, list) else [body]) if isinstance(row, dict)]


@schemathesis.check
def recorded_event_is_listed(context, response, case):
    """After a 200 the next read of the entry's events shows the event."""
    if definition(case)['operationId'] != 'recordCustomEvent' or response.status_code != 200:
        return
    event = response.json()
    entry = quote(str(event.get('entry_id')), safe='')
    url = f'/projects/{case.path_parameters["projectId"]}/entries/{entry}/events?limit=1000'
    key = response.request.headers['X-Api-Key']
    assert any(event.items() <= row.items() for row in walk(url, key)), f'{url} does not show the event'


def walk(url, key):
    """The rows of all pages of a list."""
    while url:
        page = requests.get(urljoin(BASE_URL, url), headers={'X-Api-Key': key}, timeout=10)
        assert page.status_code == 200, f'{page.status_code} for {url}'
        yield from rows(page)
        url = page.links.get('next', {}).get('url')


@schemathesis.check
class items_have_their_results:
    """Each event of a batch has a result, in order: of an event that the schema rejects it is a 400.

    negative_data_rejection cannot tell, since the response is a 200.
    """

    def __init__(self):
        self.validator = None

    def after_response(self, context, response, case):
        if definition(case)['operationId'] != 'recordCustomEvents' or response.status_code != 200:
            return
        if self.validator is None:
            components = case.operation.schema.raw_schema['components']
            schema = {'$ref': '#/components/schemas/CustomEventBatchItem', 'components': components}
            self.validator = jsonschema_rs.Draft4Validator(schema)
        events, results = json.loads(response.request.body)['events'], response.json()['results']
        assert len(results) == len(events), f'{len(results)} results of {len(events)} events'
        for i, (event, result) in enumerate(zip(events, results)):
            is_valid = self.validator.is_valid(event)
            expected = (200, 404, 409, 422) if is_valid and not case.meta.generation.mode.is_negative else (400,)
            if not is_valid or expected[0] == 200:
                assert result['status'] in expected, f'{result["status"]} for event {i}: {result.get("error")}'
            if result['status'] == 200:
                sent = (event['module_id'], event['custom_event_name'], event.get('custom_event_props', '{}'))
                recorded = tuple(result['event'][name] for name in ('module_id', 'custom_event_name', 'custom_event_props'))
                assert recorded == sent, f'event {i} is recorded as {recorded}'


@schemathesis.check
def imports_count_each_record(context, response, case):
    """An import counts each record once, and changes nothing when it is repeated; a conflict is named."""
    if definition(case)['operationId'] != 'importRecords' or response.status_code not in (200, 409):
        return
    body, result = response.request.body, response.json()
    if response.status_code == 409:
        [detail] = result['error']['details']
        line = body.split(b'\n')[int(detail['pointer'].split('/')[2]) - 1]
        assert b'"entry_id": "none' in line, f'{detail["pointer"]} is no conflict: {line}'
        return
    keys = ('type', 'contact_id', 'entry_id', 'timestamp')
    lines = body.decode().rstrip('\n').split('\n')
    records = {tuple(record.get(key) for key in keys) for record in map(json.loads, lines)}
    assert sum(result[name] for name in ('added', 'changed', 'unchanged')) == result['records'] == len(records), str(result)
    again = requests.post(response.request.url, data=body, headers=dict(response.request.headers), timeout=10)
    assert (again.status_code, again.json()['unchanged']) == (200, len(records)), f'{again.status_code} for the same import'


@schemathesis.check
def rows_match_the_path(context, response, case):
    """Every row belongs to the project, module and entry in the path."""
    if response.status_code != 200:
        return
    for row in rows(response):
        for field, parameter in FIELDS.items():
            if field in row and parameter in case.path_parameters:
                named = unquote(str(case.path_parameters[parameter]))
                assert str(row[field]) == named, f'{field} is {row[field]!r}, {parameter} is {named!r}'


@schemathesis.check
def undocumented_input_is_rejected(context, response, case):
    """Unknown query parameters and media types are rejected; schemathesis accepts that they are ignored."""
    request = response.request
    sent = {name for name, _ in parse_qsl(urlsplit(request.url).query, keep_blank_values=True)}
    unknown = sent - {parameter.name for parameter in case.operation.query}
    media_type = request.headers.get('Content-Type', '').partition(';')[0]
    if media_type and 'requestBody' in definition(case):
        unknown |= {media_type} - set(definition(case)['requestBody']['content'])
    assert not unknown or response.status_code >= 400, f'accepted: {", ".join(sorted(unknown))}'


@schemathesis.check
def headers_are_documented(context, response, case):
    """There are no undocumented headers; schemathesis checks only the documented ones."""
    documented = definition(case)['responses'].get(str(response.status_code))
    if documented is None:
        return
    headers = case.operation.responses.find_by_status_code(response.status_code).headers
    known = {name.lower() for name, _ in headers.items()}
    unknown = {name.lower() for name in response.headers} - known - GENERAL_HEADERS
    assert not unknown, f'not documented: {", ".join(sorted(unknown))}'


@schemathesis.check
class keys_are_restricted:
    """A call that succeeds gets 401 with a key of another project, and 403 with a key that lacks the scope.

    Instead of 401 it is 429 when many calls to other projects went before.
    """

    def __init__(self):
        self.passed = set()

    def after_response(self, context, response, case):
        operation = definition(case)
        if response.status_code != 200 or operation['operationId'] in self.passed:
            return
        other_scope = 'WRITE' if operation['x-required-scope'] == 'read' else 'READ'
        for owner, expected in (('OTHER', (401, 429)), (other_scope, (403,))):
            request = response.request
            headers = {**request.headers, 'X-Api-Key': os.environ[f'FLOWTRAIL_{owner}_KEY']}
            denied = requests.request(request.method, request.url, headers=headers, data=request.body, timeout=10)
            assert denied.status_code in expected, f'{denied.status_code} with FLOWTRAIL_{owner}_KEY, not {expected}'
        self.passed.add(operation['operationId'])


@schemathesis.check
class links_work:
    """A link that is followed as declared succeeds, and a full run follows every link."""

    def __init__(self):
        self.schema = None
        self.followed = {}

    def after_response(self, context, response, case):
        self.schema = case.operation.schema
        recorder = context.internals.recorder
        step = recorder.cases.get(case.id) if recorder else None
        if step is None or step.transition is None or not is_followed(step.transition, case):
            return
        name = step.transition.id
        assert response.status_code in (200, 304), f'{name} leads to {response.status_code}'
        first = recorder.find_response(case_id=step.parent_id)
        # The cursor of the feed leads on from its last page, too.
        if ' nextPage ' in name and 'link' in first.headers:
            assert rows(response), 'the next page is empty'
        if ' repetition ' in name:
            assert response.content == first.content, 'the repetition has another body'
            assert response.headers.get('idempotent-replayed') == ['true'], 'the repetition lacks Idempotent-Replayed'
        self.followed.setdefault(name, set()).add(case.id)

    def after_run(self, context):
        declared = [
            f'{method.upper()} {path} -> [{status}] {link} -> '
            for path, item in self.schema.raw_schema['paths'].items()
            for method, operation in item.items()
            for status, response in operation['responses'].items()
            for link, definition in response.get('links', {}).items()
            if 'x-schemathesis' not in definition  # inferred, not declared
        ]
        missing = [link for link in declared if not any(name.startswith(link) for name in self.followed)]
        times = sum(len(cases) for cases in self.followed.values())
        print(f'     {len(declared) - len(missing)} of {len(declared)} links followed as declared, {times} times')
        is_full = self.schema.config.generation.max_examples >= FULL_RUN_examples
        assert not (is_full and missing), f'never followed: {missing}'


def is_followed(transition, case):
    """Whether a valid call uses the values of its link, which schemathesis sometimes replaces."""
    if transition.is_inferred or case.meta.generation.mode.is_negative:
        return False
    for container, parameters in transition.parameters.items():
        for name, parameter in parameters.items():
            # A next page needs the cursor, a repetition the key. Other parameters may vary.
            if container == 'path_parameters' or name in ('cursor', 'Idempotency-Key'):
                value = parameter.value.ok() if isinstance(parameter.value, Ok) else UNRESOLVABLE
                sent = getattr(case, container).get(name)
                if value is UNRESOLVABLE or unquote(str(sent)) != unquote(str(value)):
                    return False
    return True
