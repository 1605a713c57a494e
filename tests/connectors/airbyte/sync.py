"""Syncs the source of the manifest to DuckDB, as Airbyte does, in the current folder, which has config.json.

Records are kept by primary key, and committed with the source's state whenever it emits one.
"""

import json
import subprocess
import sys
from pathlib import Path

import duckdb

MANIFEST = Path(__file__).parents[3] / "connectors" / "airbyte" / "manifest.yaml"
TYPES = {"integer": "BIGINT", "timestamp_with_timezone": "TIMESTAMPTZ"}
SOURCE = Path(sys.executable).with_name("source-declarative-manifest")
CATALOG = Path("catalog.json")


def messages(command: str, *arguments: str):
    options = ["--config", "config.json", "--manifest-path", str(MANIFEST), *arguments]
    with subprocess.Popen([SOURCE, command, *options], stdout=subprocess.PIPE, text=True) as source:
        for line in source.stdout:
            message = json.loads(line)
            if message["type"] == "TRACE" and "error" in message["trace"]:
                print(line, file=sys.stderr)
            yield message
    if source.returncode != 0:
        sys.exit(f"{command} ended with {source.returncode}")


# Once, as when a source is set up.
if not CATALOG.exists():
    [status] = [message["connectionStatus"] for message in messages("check") if message["type"] == "CONNECTION_STATUS"]
    if status["status"] != "SUCCEEDED":
        sys.exit(status["message"])
    [catalog] = [message["catalog"] for message in messages("discover") if message["type"] == "CATALOG"]
    configured = [
        {
            "stream": stream,
            "sync_mode": "incremental" if "incremental" in stream["supported_sync_modes"] else "full_refresh",
            "destination_sync_mode": "append_dedup",
        }
        for stream in catalog["streams"]
    ]
    whole = CATALOG.with_suffix(".new")
    whole.write_text(json.dumps({"streams": configured}))
    whole.replace(CATALOG)
streams = {each["stream"]["name"]: each["stream"] for each in json.loads(CATALOG.read_text())["streams"]}

copy = duckdb.connect("copy.duckdb")
copy.execute("CREATE TABLE IF NOT EXISTS state (stream TEXT PRIMARY KEY, state TEXT)")
for name, stream in streams.items():
    # Of its schema, for the statements of docs/sync.md.
    columns = "".join(
        f", {column} {type} AS (CAST(record ->> '{column}' AS {type}))"
        for column, schema in stream["json_schema"]["properties"].items()
        for type in [TYPES.get(str(schema.get("airbyte_type", schema["type"])), "TEXT")]
    )
    copy.execute(
        f"CREATE TABLE IF NOT EXISTS {name} (key TEXT PRIMARY KEY, record JSON, _airbyte_extracted_at TIMESTAMPTZ{columns})"
    )
state = [json.loads(text) for (text,) in copy.execute("SELECT state FROM state").fetchall()]
Path("state.json").write_text(json.dumps(state))

copy.begin()
for message in messages("read", "--catalog", str(CATALOG), "--state", "state.json"):
    if message["type"] == "RECORD":
        name, record = message["record"]["stream"], message["record"]["data"]
        key = json.dumps([record[field] for [field] in streams[name]["source_defined_primary_key"]])
        copy.execute(
            f"INSERT OR REPLACE INTO {name} VALUES (?, ?, to_timestamp(? / 1000))",
            [key, json.dumps(record), message["record"]["emitted_at"]],
        )
    elif message["type"] == "STATE":
        stream = message["state"]["stream"]["stream_descriptor"]["name"]
        copy.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", [stream, json.dumps(message["state"])])
        copy.commit()
        copy.begin()
copy.commit()
for name in streams:
    print(name, copy.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0])
