"""What schemathesis does not check by itself; like its own checks, each is asked about every answer."""

import os
from urllib.parse import parse_qsl, quote, unquote, urljoin, urlsplit

import requests
import schemathesis
from schemathesis.core.result import Ok
from schemathesis.core.transforms import UNRESOLVABLE

BASE_URL = os.environ['FLOWTRAIL_URL']

# As many examples as are enough to follow every link.
FULL_RUN_examples = 200

# What every HTTP answer may have and the document rightly says nothing of.
PLUMBING = {
    'connection',
    'content-length',
    'content-type',
    'date',
    'keep-alive',
    'transfer-encoding',
    'x-content-type-options',
}

# Fields of the answers that name what a parameter of the path names.
FIELDS = {'project_id': 'projectId', 'module_id': 'moduleId', 'version_number': 'versionNumber', 'entry_id': 'entryId'}


def definition(case):
    """The operation as the document has it."""
    return case.operation.definition.raw


def rows(response):
    """The records of a list, or the one that is answered. Whatever else there is, response_schema_conformance finds."""
    body = response.json()
    return [row for row in (body if isinstance(body, list) else [body]) if isinstance(row, dict)]


@schemathesis.check
def recorded_event_is_listed(context, response, case):
    """200 means that the next read of the entry's events shows the event."""
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
def answer_is_about_the_path(context, response, case):
    """No row is of another project, module or entry than the path names."""
    if response.status_code != 200:
        return
    for row in rows(response):
        for field, parameter in FIELDS.items():
            if field in row and parameter in case.path_parameters:
                named = unquote(str(case.path_parameters[parameter]))
                assert str(row[field]) == named, f'{field} is {row[field]!r}, {parameter} is {named!r}'


@schemathesis.check
def only_what_is_documented_is_taken(context, response, case):
    """A query parameter or media type that the operation does not have is refused: schemathesis lets it be ignored."""
    request = response.request
    sent = {name for name, _ in parse_qsl(urlsplit(request.url).query, keep_blank_values=True)}
    unknown = sent - {parameter.name for parameter in case.operation.query}
    media_type = request.headers.get('Content-Type', '').partition(';')[0]
    if media_type and 'requestBody' in definition(case):
        unknown |= {media_type} - set(definition(case)['requestBody']['content'])
    assert not unknown or response.status_code >= 400, f'taken: {", ".join(sorted(unknown))}'


@schemathesis.check
def headers_are_documented(context, response, case):
    """schemathesis checks the documented headers; this finds the others."""
    documented = definition(case)['responses'].get(str(response.status_code))
    if documented is None:
        return
    headers = case.operation.responses.find_by_status_code(response.status_code).headers
    known = {name.lower() for name, _ in headers.items()}
    unknown = {name.lower() for name in response.headers} - known - PLUMBING
    assert not unknown, f'not documented: {", ".join(sorted(unknown))}'


@schemathesis.check
class keys_open_their_own:
    """What a key may do is refused to a key of another project with 401, to one without the scope with 403."""

    def __init__(self):
        self.passed = set()

    def after_response(self, context, response, case):
        operation = definition(case)
        if response.status_code != 200 or operation['operationId'] in self.passed:
            return
        other_scope = 'WRITE' if operation['x-required-scope'] == 'read' else 'READ'
        for owner, expected in (('OTHER', 401), (other_scope, 403)):
            request = response.request
            headers = {**request.headers, 'X-Api-Key': os.environ[f'FLOWTRAIL_{owner}_KEY']}
            answer = requests.request(request.method, request.url, headers=headers, data=request.body, timeout=10)
            assert answer.status_code == expected, f'{answer.status_code} with FLOWTRAIL_{owner}_KEY, not {expected}'
        self.passed.add(operation['operationId'])


@schemathesis.check
class links_lead_on:
    """A link that is followed as declared leads to something, and a full run follows every link."""

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
        if ' nextPage ' in name:
            assert rows(response), 'the next page is empty'
        if ' repetition ' in name:
            first = recorder.find_response(case_id=step.parent_id)
            assert response.content == first.content, 'the repetition has another answer'
            assert response.headers.get('idempotent-replayed') == ['true'], 'the repetition does not say that it is one'
        self.followed.setdefault(name, set()).add(case.id)

    def after_run(self, context):
        declared = [
            f'{method.upper()} {path} -> [{status}] {link} -> '
            for path, item in self.schema.raw_schema['paths'].items()
            for method, operation in item.items()
            for status, response in operation['responses'].items()
            for link, definition in response.get('links', {}).items()
            if 'x-schemathesis' not in definition  # its own guesses
        ]
        missing = [link for link in declared if not any(name.startswith(link) for name in self.followed)]
        times = sum(len(cases) for cases in self.followed.values())
        print(f'     {len(declared) - len(missing)} of {len(declared)} links followed as declared, {times} times')
        is_full = self.schema.config.generation.max_examples >= FULL_RUN_examples
        assert not (is_full and missing), f'never followed: {missing}'


def is_followed(transition, case):
    """Whether a valid call has what its link is about, where schemathesis at times tries something else."""
    if transition.is_inferred or case.meta.generation.mode.is_negative:
        return False
    for container, parameters in transition.parameters.items():
        for name, parameter in parameters.items():
            # Without a cursor there is no next page, without a key no repetition. The rest is up to the caller.
            if container == 'path_parameters' or name in ('cursor', 'Idempotency-Key'):
                value = parameter.value.ok() if isinstance(parameter.value, Ok) else UNRESOLVABLE
                sent = getattr(case, container).get(name)
                if value is UNRESOLVABLE or unquote(str(sent)) != unquote(str(value)):
                    return False
    return True
