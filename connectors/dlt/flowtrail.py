"""A dlt source of a Flowtrail project: modules, versions, entries, events, of which the page views are a view, and erasures.

Run as a program, it copies the project to the DuckDB database flowtrail_copy.duckdb, with --all-entries all entries again. It
remembers in the folder dlt_pipelines how far it came, so that each folder has a copy of its own. See docs/sync.md.
"""

import argparse
import os
from datetime import timedelta
from typing import Any, Iterator
from urllib.parse import quote

import dlt
from dlt.sources.helpers.rest_client import RESTClient
from dlt.sources.helpers.rest_client.auth import APIKeyAuth
from dlt.sources.helpers.rest_client.paginators import HeaderLinkPaginator

Records = Iterator[list[dict[str, Any]]]

# A commit may take a while after the time that an entry says it was updated at.
COMMIT_LAG = timedelta(minutes=5)


def columns(*, required: str, optional: str = "") -> dict[str, Any]:
    """Columns by name, so that no text is taken for a time because it looks like one."""
    types = {
        "_at": "timestamp",
        "timestamp": "timestamp",
        "_number": "bigint",
        "_index": "bigint",
        "total_pages": "bigint",
        "position": "bigint",
        "entry_ids": "json",
    }
    return {
        name: {
            "data_type": next((type for end, type in types.items() if name.endswith(end)), "text"),
            "nullable": name in optional.split(),
        }
        for name in f"{required} {optional}".split()
    }


MODULE = columns(required="module_id title group_id project_id json_string_prod")
VERSION = columns(required="module_id version_number saved_at json_string")
ENTRY = columns(
    required="entry_id group_id project_id module_id contact_id created_at updated_at entry_data",
    # The position of the last erasure that the service or the copy had when the entry was read. An erasure of its contact
    # with a greater one came later, and deletes it; one with a smaller one came before, and the contact has been imported
    # again.
    optional="erasure_position",
)
# An entry that is updated while all are read comes twice, and its newest state counts.
ENTRY["updated_at"]["dedup_sort"] = "desc"
EVENT = columns(
    required="event_id entry_id contact_id project_id group_id module_id module_version_number timestamp event_type"
    " recorded_at position",
    optional="page_id page_key page_index max_page_id max_page_key max_page_index total_pages view_type"
    " custom_event_name custom_event_props",
)
ERASURE = columns(required="erasure_id position contact_id entry_ids erased_at")

PAGE_VIEWS = "CREATE OR REPLACE VIEW page_views AS SELECT * FROM events WHERE event_type = 'flowpage.viewed'"


@dlt.source(name="flowtrail")
def flowtrail(
    url: str = dlt.config.value, project: str = dlt.config.value, api_key: str = dlt.secrets.value
) -> Any:
    """All data of a project. Each run reads what is new since the one before.

    Args:
        url: where the service is, for example http://127.0.0.1:3000
        project: the id of the project
        api_key: a key of the project with the scope read
    """
    client = RESTClient(
        base_url=f"{url.rstrip('/')}/projects/{quote(project, safe='')}",
        auth=APIKeyAuth(name="X-Api-Key", api_key=api_key),
        paginator=HeaderLinkPaginator(),
    )

    def check_project() -> None:
        copied = dlt.current.source_state().setdefault("project", project)
        if copied != project:
            raise ValueError(f"This is a copy of the project {copied}: use another pipeline and dataset for {project}.")

    def pages(path: str, **parameters: Any) -> Records:
        """The pages of a list, oldest first."""
        return client.paginate(path, params={"direction": "ASC", "limit": 1000, **parameters})

    def one(path: str) -> Any:
        response = client.get(path)
        response.raise_for_status()
        return response.json()

    def of_module(module: dict[str, Any], rest: str = "") -> str:
        return f"modules/{quote(module['module_id'], safe='')}{rest}"

    @dlt.resource(primary_key="module_id", write_disposition="replace", columns=MODULE)
    def modules() -> Records:
        check_project()
        for page in client.paginate("modules"):
            yield [one(of_module(module)) for module in page]

    @dlt.transformer(
        data_from=modules,
        primary_key=("module_id", "version_number"),
        write_disposition="merge",
        columns=VERSION,
    )
    def module_versions(page: list[dict[str, Any]]) -> Records:
        """Versions never change, so each is read once, unless a restored backup lacked it and it was saved anew."""
        saved_by_module = dlt.current.resource_state().setdefault("saved_at", {})
        for module in page:
            saved = saved_by_module.setdefault(module["module_id"], {})
            for versions in pages(of_module(module, "/versions")):
                listed = {str(version["version_number"]): version["saved_at"] for version in versions}
                new = {number: saved_at for number, saved_at in listed.items() if saved.get(number) != saved_at}
                yield [one(of_module(module, f"/versions/{number}")) for number in new]
                saved.update(new)

    @dlt.resource(primary_key="entry_id", write_disposition="merge", columns=ENTRY)
    def entries(
        updated_at: dlt.sources.incremental[str] = dlt.sources.incremental(
            "updated_at", lag=COMMIT_LAG.total_seconds()
        ),
    ) -> Records:
        check_project()
        # Those that the copy has count too: the service has none of before the project was moved to it.
        copied = dlt.current.resource_state("erasures").get("incremental", {}).get("position", {}).get("last_value") or 0
        last_erasure = max([copied, *(erasure["position"] for erasure in one("erasures?limit=1"))])
        for page in pages("entries", updated_after=updated_at.last_value):
            yield [{**entry, "erasure_position": last_erasure} for entry in page]

    @dlt.resource(primary_key="event_id", write_disposition="merge", columns=EVENT)
    def events(
        position: dlt.sources.incremental[int] = dlt.sources.incremental(
            "position", initial_value=0, range_start="open"
        ),
    ) -> Records:
        """Events in the order in which they were committed: whatever comes later has a greater position."""
        check_project()
        yield from pages("events", after=position.last_value)

    @dlt.resource(primary_key="erasure_id", write_disposition="merge", columns=ERASURE)
    def erasures(
        position: dlt.sources.incremental[int] = dlt.sources.incremental(
            "position", initial_value=0, range_start="open"
        ),
    ) -> Records:
        """Contacts that the operator has erased. Their rows stay in the destination until apply_erasures()."""
        check_project()
        yield from pages("erasures", after=position.last_value)

    return modules, module_versions, entries, events, erasures


def apply_erasures(pipeline: dlt.Pipeline) -> None:
    """Deletes the events and entries of erased contacts from the destination. Call it after each run."""
    tables = pipeline.default_schema.data_table_names(seen_data_only=True)
    if "erasures" not in tables:
        return
    with pipeline.sql_client() as client:
        erasures = client.make_qualified_table_name("erasures")
        for table, position in {"events": "position", "entries": "coalesce(erasure_position, 0)"}.items():
            if table in tables:
                client.execute_sql(
                    f"DELETE FROM {client.make_qualified_table_name(table)} WHERE EXISTS (SELECT 1 FROM"
                    f" (SELECT contact_id AS erased_contact, position AS erased_before FROM {erasures}) AS erasure"
                    f" WHERE erased_contact = contact_id AND erased_before > {position})"
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Copies a Flowtrail project to flowtrail_copy.duckdb.")
    parser.add_argument("--all-entries", action="store_true", help="read all entries again, not only those updated since")
    arguments = parser.parse_args()
    settings = [os.environ.get(name, "") for name in ("FLOWTRAIL_URL", "FLOWTRAIL_PROJECT", "FLOWTRAIL_KEY")]
    if not all(settings) or not settings[2].isascii():
        parser.error("set FLOWTRAIL_URL, FLOWTRAIL_PROJECT and FLOWTRAIL_KEY to the service, the project and a key of it")
    pipeline = dlt.pipeline(
        "flowtrail_copy", pipelines_dir="dlt_pipelines", destination="duckdb", dataset_name="flowtrail"
    )
    # Else both would keep what is erased.
    dlt.config["load.truncate_staging_dataset"] = True
    dlt.config["load.delete_completed_jobs"] = True
    source = flowtrail(*settings)
    if pipeline.has_pending_data:
        # A run that was killed had read it.
        pipeline.run()
    if arguments.all_entries:
        pipeline.run(source.with_resources("entries"), refresh="drop_data", loader_file_format="jsonl")
    # DuckDB reads it in a third of the time of the default, which is made for databases that only take SQL.
    print(pipeline.run(source, loader_file_format="jsonl"))
    apply_erasures(pipeline)
    # dlt makes no table without rows.
    if "events" in pipeline.default_schema.data_table_names(seen_data_only=True):
        with pipeline.sql_client() as client:
            client.execute_sql(PAGE_VIEWS)
