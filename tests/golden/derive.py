"""Derives the golden vectors, independently of the code that they test. See README.md."""
import base64, hashlib, json, pathlib, zlib

HERE = pathlib.Path(__file__).parent
compact = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
sha256 = lambda data: hashlib.sha256(data if isinstance(data, bytes) else data.encode())
base64url = lambda data: base64.urlsafe_b64encode(data).rstrip(b"=").decode()

# Identifiers: SHA-256 of key, NUL and canonical value.
canonical = [
    ("email", '"ana@example.com"', "sana@example.com"),
    ("email", '"\\u0061na@example.com"', "sana@example.com"),
    ("name", '"\\ud83e\\udd89 \\/ é"', "s🦉 / é"),
    ("crm", "12345678901234567890", "n1234567890123456789e1"),
    ("crm", " 1.50e2\n", "n15e1"),
    ("n", "-0.001", "n-1e-3"),
    ("n", "-0.0", "n0"),
    ("n", "1e999999999", "n1e999999999"),
    ("vip", "true", "btrue"),
    ("contact_id", '"c1"', "sc1"),
]
identifier_digest = lambda key, canonical_value: sha256(f"{key}\0{canonical_value}").hexdigest()
identifier_digests = [
    {"key": key, "value": value, "canonical": text, "digest": identifier_digest(key, text)} for key, value, text in canonical
]

# Requests: SHA-256 of the JSON of the parsed fields, identifiers as sorted digests.
post = {"module_id": "quiz", "timestamp": "2026-03-01T10:30:00.5009+01:00", "custom_event_name": "bought 🦉"}
def request(changes, props, identifiers):
    fields = ["quiz", "2026-03-01T09:30:00.500Z", "bought 🦉", props, sorted(identifier_digest(k, c) for k, v, c in identifiers)]
    body = {**post, **changes, "identifiers": [{"key": k, "value": v} for k, v, c in identifiers]}
    return {"body": body, "digest": sha256(compact(fields)).hexdigest()}
request_digests = [
    request({}, "{}", [canonical[0]]),
    request({"custom_event_props": '{ "a" : "\\u00e9" }'}, '{ "a" : "\\u00e9" }', [canonical[1], canonical[4], canonical[8]]),
]

# Events without id: SHA-256 of the JSON of the fields given, in the order of docs/import.md, timestamps in UTC.
view = {"type": "event", "project_id": "acme", "entry_id": "e1", "timestamp": "2026-02-01T00:00:00.000Z", "event_type": "flowpage.viewed",
        "view_type": "flowpage", "page_id": "p1", "page_key": "intro", "page_index": 0}
custom = {"type": "event", "project_id": "acme", "entry_id": "é 🦉 \u2028", "timestamp": "2026-02-01T00:00:00.123Z",
          "event_type": "custom_event:triggered", "custom_event_name": 'a"b\\c/'}
events = [view, {**view, "total_pages": None}, custom, {**custom, "custom_event_props": "{}"},
          {**view, "module_version_number": 3, "max_page_id": "p9", "max_page_key": "end", "max_page_index": 9, "total_pages": 10},
          {**view, "max_page_id": None, "max_page_key": None, "max_page_index": None, "total_pages": None},
          {"type": "event", "project_id": "acme", "entry_id": "e1", "timestamp": "0001-01-01T00:00:00.000Z", "event_type": "survey.answered"}]
event_ids = [{"line": event, "event_id": base64url(sha256(compact(event)).digest())} for event in events]

# Cursors: version, 12 bytes of SHA-256 of the JSON of operation, path, filters and direction; the key as JSON; CRC-32.
def cursor(scope, key):
    body = bytes([1]) + sha256(compact(scope)).digest()[:12] + compact(key).encode()
    return {"scope": scope, "key": key, "cursor": base64url(body + zlib.crc32(body).to_bytes(4, "big"))}
instant = "2026-02-01T00:00:00.000Z"
cursors = {
    "listModuleVersions": cursor(["listModuleVersions", "acme", "quiz", "DESC"], [10]),
    "listEntryEvents": cursor(["listEntryEvents", "acme", "e1", "ASC"], [instant, "v1"]),
    "listEntryPageViews": cursor(["listEntryPageViews", "acme", None, None, "DESC"], ["2026-02-03T00:00:00.000Z", "e2"]),
    "listEntryPageViews in a window": cursor(
        ["listEntryPageViews", "acme", instant, "2026-02-04T00:00:00.000Z", "ASC"], ["2026-02-02T00:00:00.000Z", "e1"]),
    "listEntries": cursor(["listEntries", "acme", None, None, "DESC"], ["2026-02-03T00:00:00.000Z", "e2"]),
    # Positions of rows are the clock's, so these begin after a later one, which an empty page repeats.
    "listProjectEvents": cursor(["listProjectEvents", "acme", "ASC"], [9007199254740991]),
    "listErasures": cursor(["listErasures", "acme", "ASC"], [9007199254740990]),
}

# API keys: CRC-32 in base62 of all before it; the secret's SHA-256 is stored.
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
def base62(number, length):
    return "" if length == 0 else base62(number // 62, length - 1) + DIGITS[number % 62]
def api_key(key_id, secret):
    body = f"ft_{key_id}_{secret}"
    return {"key": body + base62(zlib.crc32(body.encode()), 6), "key_id": key_id, "secret": secret, "secret_hash": sha256(secret).hexdigest()}
api_keys = [api_key("0123456789ab", "ABCDEFGHIJKLMNOPQRSTUVWXYZa"), api_key("zzzzzzzzzzzz", "0" * 27), api_key("Flowtrail000", "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7")]

# A project, and its export: types in order, rows by key, identifiers by key and canonical value, every stored field.
of = {"project_id": "acme"}
unknown = {"max_page_id": None, "max_page_key": None, "max_page_index": None, "total_pages": None}
first_page = {"max_page_id": "p1", "max_page_key": "intro", "max_page_index": 0, "total_pages": 7}
exported = [
    {"type": "project", **of, "name": "Acme\t\"🦉\" \\ \u0001\u007f"},
    {"type": "group", **of, "group_id": "G", "name": "G"},
    {"type": "group", **of, "group_id": "g1", "name": "Growth"},
    {"type": "module", **of, "module_id": "Quiz", "group_id": "g1", "title": "", "created_at": "2026-01-01T00:00:00.000Z"},
    {"type": "module", **of, "module_id": "quiz", "group_id": "g1", "title": "Skin quiz", "created_at": "2026-01-01T00:00:00.000Z"},
    {"type": "module_version", **of, "module_id": "Quiz", "version_number": 7, "saved_at": "2026-01-01T00:00:00.000Z",
     "published_at": "2026-01-01T00:00:00.000Z", "json_string": "{}"},
    {"type": "module_version", **of, "module_id": "quiz", "version_number": 2, "saved_at": "2026-01-01T00:00:00.000Z",
     "published_at": "2026-01-02T00:00:00.000Z", "json_string": ' {"a":1.0,\n"a":"\\u0000"} '},
    {"type": "module_version", **of, "module_id": "quiz", "version_number": 10, "saved_at": "2026-01-03T00:00:00.001Z", "json_string": "{}"},
    {"type": "contact", **of, "contact_id": "C", "created_at": "0001-01-01T00:00:00.000Z", "identifiers": []},
    {"type": "contact", **of, "contact_id": "c1", "created_at": "2026-01-05T00:00:00.000Z",
     "identifiers": [{"key": "a", "value": "true"}, {"key": "a", "value": " 10"}, {"key": "a", "value": "9.0"},
                     {"key": "a", "value": '"\\u0061"'}, {"key": "b", "value": '"x"'}]},
    {"type": "entry", **of, "entry_id": "e1", "module_id": "quiz", "contact_id": "c1", "created_at": "2026-01-31T00:00:00.000Z",
     "updated_at": "2026-02-02T00:00:00.000Z", "entry_data": "[1, 2]"},
    {"type": "entry", **of, "entry_id": "e2", "module_id": "quiz", "contact_id": "c1", "created_at": "2026-01-31T00:00:00.000Z",
     "updated_at": "2026-02-03T00:00:00.000Z", "entry_data": "{}"},
    {"type": "event", **of, "entry_id": "e1", "event_id": "v1", "timestamp": instant, "event_type": "flowpage.viewed", "view_type": "flowpage",
     "page_id": "p1", "page_key": "intro", "page_index": 0, "module_version_number": 2, **first_page},
    {"type": "event", **of, "entry_id": "e1", "event_id": "A", "timestamp": "2026-02-01T00:00:01.000Z", "event_type": "custom_event:triggered",
     "custom_event_name": "bought", "custom_event_props": '{ "plan" : "pro" }', "module_version_number": 2, **first_page},
    {"type": "event", **of, "entry_id": "e1", "event_id": "a", "timestamp": "2026-02-01T00:00:01.000Z", "event_type": "survey.answered",
     "module_version_number": 10, **unknown},
]
# Imported in another order within each type, and with what is derived left out of two events.
parents_first = ["project", "group", "module", "module_version", "contact", "entry", "event"]
imported = sorted(reversed(exported), key=lambda record: parents_first.index(record["type"]))
left_out = {"module_version_number", "max_page_id", "max_page_key", "max_page_index"}
imported = [{k: v for k, v in r.items() if r.get("event_id") not in ("v1", "A") or k not in left_out} for r in imported]
imported = [{**r, "identifiers": r["identifiers"][::-1]} if "identifiers" in r else r for r in imported]

def write(name, text):
    (HERE / name).write_text(text, encoding="utf-8", newline="\n")
lines = lambda records: "".join(compact(record) + "\n" for record in records)
vectors = {"event_id": event_ids, "request_digest": request_digests, "identifier_digest": identifier_digests,
           "cursor": [{"list": name, **vector} for name, vector in cursors.items()], "api_key": api_keys}
write("vectors.ndjson", lines({"vector": kind, **vector} for kind, list in vectors.items() for vector in list))
write("import.ndjson", lines(imported))
write("export.ndjson", lines(exported))
