"""Prints the rows of all tables in a schema of a DuckDB database as JSON: rows.py FILE SCHEMA."""

import json
import sys

import duckdb

file, schema = sys.argv[1:]
copy = duckdb.connect(file, read_only=True)
columns = copy.execute(
    "SELECT table_name, column_name, data_type FROM information_schema.columns"
    " WHERE table_schema = ? ORDER BY ordinal_position",
    [schema],
).fetchall()
types = {}
for table, column, data_type in columns:
    types.setdefault(table, {})[column] = data_type


def value(column: str, data_type: str) -> str:
    if data_type != "TIMESTAMP WITH TIME ZONE":
        return f'"{column}"'
    return f"strftime(\"{column}\" AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S.%gZ') AS \"{column}\""


def rows(table: str) -> list:
    selected = ", ".join(value(column, data_type) for column, data_type in types[table].items())
    result = copy.execute(f'SELECT {selected} FROM "{schema}"."{table}"').fetchall()
    return [dict(zip(types[table], row)) for row in result]


print(json.dumps({table: rows(table) for table in types}))
