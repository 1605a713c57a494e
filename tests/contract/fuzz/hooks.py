"""Teaches schemathesis the rules that OpenAPI 3.0.3 cannot state, so that the calls it generates as valid are valid.

A rule for one value is a format, which applies when calls are generated, so that an invalid call is invalid in one place.
A rule between values is applied just before a call; values that the schema itself rejects are left unchanged.
"""

import copy
import json
import re
import uuid
from datetime import datetime

import schemathesis
from hypothesis import strategies as st

import checks  # noqa: F401  registers the checks

PROJECT = 'demo'

TEXT = st.text(st.characters(exclude_categories=['Cs']), max_size=20)
STORABLE_TEXT = st.text(st.characters(exclude_categories=['Cs'], exclude_characters='\0'), min_size=1, max_size=20)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.booleans() | NUMBERS | STORABLE_TEXT


def objects_of(values):
    return st.dictionaries(TEXT, values, max_size=3)


def json_texts(values, padded, lengths):
    """Values as JSON text, and texts of the lengths around the limits, which random values would not reach."""
    written = st.builds(lambda value, ascii: json.dumps(value, ensure_ascii=ascii), values, st.booleans())
    at_limits = st.sampled_from(lengths).map(lambda length: padded.replace('…', 'x' * (length - len(padded) + 1)))
    return written | at_limits


VALUES = st.recursive(st.none() | SCALARS, lambda values: st.lists(values, max_size=3) | objects_of(values))
# An identifier's value is JSON text of a non-empty string, a number or a boolean.
IDENTIFIER_VALUES = st.integers(0, 9).map(str) | json_texts(SCALARS, '"…"', [3, 1023, 1024, 1025])
# A custom event's properties are the text of a JSON object, whose size is limited in bytes.
EVENT_PROPS = json_texts(objects_of(VALUES), '{"p":"…"}', [32767, 32768, 32769])
OFFSETS = st.builds('{}{:02}:{:02}'.format, st.sampled_from('+-'), st.integers(0, 23), st.integers(0, 59))
# Timestamps are in the years 1 to 9999 in UTC, and those of events at most 24 hours ahead.
TIMESTAMPS = st.builds(
    '{}{}{}'.format,
    st.datetimes(datetime(1, 1, 2), datetime(2026, 1, 1)).map(lambda at: at.isoformat('T', 'seconds')),
    st.just('') | st.text('0123456789', min_size=1, max_size=9).map('.{}'.format),
    st.sampled_from('Zz') | OFFSETS,
)
schemathesis.openapi.format('identifier-value', IDENTIFIER_VALUES)
schemathesis.openapi.format('event-props', EVENT_PROPS)
schemathesis.openapi.format('date-time', TIMESTAMPS)


def visit(number, views, entry_data):
    """Records that are the same for the same number, but for what may change."""
    contact, entry = f'visitor {number} é', f'visit {number} 🎉'
    identifiers = [{'key': 'visitor', 'value': json.dumps(contact)}]
    event = {'type': 'event', 'entry_id': entry, 'event_type': 'flowpage.viewed', 'view_type': 'flowpage'}
    return [
        {'type': 'contact', 'contact_id': contact, 'identifiers': identifiers},
        {
            **{'type': 'entry', 'entry_id': entry, 'module_id': 'skin-quiz', 'contact_id': contact},
            **{'updated_at': '2026-03-01T09:00:00Z', 'entry_data': entry_data},
        },
        *(
            {**event, 'timestamp': f'2026-03-01T09:00:0{i}Z', 'page_id': f'p{i}', 'page_key': f'k{i}', 'page_index': i}
            for i in range(views)
        ),
    ]


def lines(records):
    return '\n'.join(json.dumps(record, ensure_ascii=False) for record in records).encode()


VISITS = st.lists(st.builds(visit, st.integers(0, 99), st.integers(0, 9), json_texts(VALUES, '"…"', [9])), min_size=1, max_size=3)
VALID_LINES = VISITS.map(lambda visits: lines(record for records in visits for record in records))
# Valid, but of an entry that is not stored.
CONFLICT = lines(visit(0, 1, '{}')[2:]).replace(b'visit 0', b'none')
schemathesis.openapi.media_type('application/x-ndjson', VALID_LINES | VALID_LINES.map(lambda valid: valid + b'\n' + CONFLICT))


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """Only the project of the key is valid; values and properties are JSON inside strings."""
    components = raw_schema['components']
    components['parameters']['ProjectId']['schema'] = {'type': 'string', 'enum': [PROJECT]}
    components['schemas']['ContactIdentifier']['properties']['value']['format'] = 'identifier-value'
    patterns = [components['schemas']['ResourceId']]
    for name in ('CustomEventInput', 'CustomEventBatchItem'):
        # YAML's anchors make them the same object.
        event = copy.deepcopy(components['schemas'][name])
        event['properties']['custom_event_props']['format'] = 'event-props'
        patterns.append(event['properties']['custom_event_name'])
        components['schemas'][name] = event
    # The patterns leave out the control characters from U+0080 on, for engines that match bytes.
    for schema in patterns:
        schema['pattern'] = schema['pattern'].replace(r'\x7F]', r'\x7F-\x9F]')


def make_keys_unique(case):
    """Makes the identifier keys of an event, or of each event of a batch, unique."""
    events = case.body.get('events') if isinstance(case.body, dict) else None
    for event in events if isinstance(events, list) else [case.body]:
        make_keys_of_event_unique(event)


def make_keys_of_event_unique(event):
    identifiers = event.get('identifiers') if isinstance(event, dict) else None
    if not isinstance(identifiers, list):
        return
    seen = set()
    for identifier in identifiers:
        key = identifier.get('key') if isinstance(identifier, dict) else None
        if not isinstance(key, str):
            continue
        if key in seen:
            identifier['key'] = key = f'{len(seen)}{key}'[: max(128, len(key))]
        seen.add(key)


def order_window(case):
    """Puts `updated_after` before `updated_before`, by a millisecond or more."""
    after, before = (timestamp(case.query.get(name)) for name in ('updated_after', 'updated_before'))
    if after is None or before is None or after < before:
        return
    later = case.query.pop('updated_after')
    if after > before:
        case.query.update(updated_after=case.query['updated_before'], updated_before=later)


def timestamp(text):
    """The timestamp to the millisecond, or None when the text is none."""
    try:
        at = datetime.fromisoformat(text.upper())
    except (AttributeError, ValueError):
        return None
    return at.replace(microsecond=at.microsecond // 1000 * 1000) if at.tzinfo else None


# By cursor, the path parameters and filters of the request that returned it.
PAGES = {}


@schemathesis.hook
def after_call(context, case, response):
    for cursor in response.headers.get('next-cursor', []):
        filters = {name: value for name, value in case.query.items() if name not in ('limit', 'cursor', 'after', 'wait')}
        PAGES[cursor] = (dict(case.path_parameters), filters)


def use_known_cursor(case):
    """Uses a cursor only if the service returned it, and with the path, direction and filters of that request."""
    cursor = case.query.get('cursor')
    if not isinstance(cursor, str) or not re.fullmatch('[A-Za-z0-9_-]{1,2048}', cursor):
        return
    if cursor not in PAGES:
        del case.query['cursor']
        return
    path_parameters, filters = PAGES[cursor]
    case.path_parameters.update(path_parameters)
    case.query = {**filters, **{name: case.query[name] for name in ('limit', 'cursor') if name in case.query}}


def whole(value):
    """The whole number that a query holds, as a number or in decimal digits, or None."""
    is_whole = isinstance(value, (int, str)) and re.fullmatch('0|[1-9][0-9]{0,15}', str(value))
    return int(value) if is_whole else None


def choose_place(case):
    """Uses `after` without a cursor, `after` and `wait` with ascending direction, and waits for a second at most."""
    after, wait = (whole(case.query.get(name)) for name in ('after', 'wait'))
    is_given = after is not None and after < 2**53
    is_waiting = wait is not None and 0 < wait <= 30
    if is_given:
        case.query.pop('cursor', None)
    elif is_waiting and 'cursor' in case.query and case.query.get('direction') != 'ASC':
        del case.query['wait']
        return
    if is_waiting:
        case.query['wait'] = 1
    if (is_given or is_waiting) and case.query.get('direction') in (None, 'DESC'):
        case.query['direction'] = 'ASC'


# By idempotency key, the event that was sent with it.
SENT = {}


def use_own_idempotency_key(case):
    """Uses a key for one event: a link repeats that event, any other call gets a new key."""
    key = case.headers.get('Idempotency-Key')
    if not isinstance(key, str) or not re.fullmatch(r'[\x21-\x7E]{1,255}', key):
        return
    if key in SENT:
        case.body = SENT[key]
    else:
        case.headers['Idempotency-Key'] = f'{uuid.uuid4()}{key}'[:255]
        SENT[case.headers['Idempotency-Key']] = case.body


@schemathesis.hook
def before_call(context, case, kwargs):
    for rule in (make_keys_unique, order_window, use_known_cursor, choose_place, use_own_idempotency_key):
        rule(case)
