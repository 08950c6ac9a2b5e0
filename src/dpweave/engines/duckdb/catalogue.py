"""What DuckDB says about tables, columns and keys. No row is read."""

from __future__ import annotations

import json
from typing import Any

from dpweave.engines.catalogue_rows import DeclaredKeys, catalogue_rows
from dpweave.engines.duckdb.types import type_of_duckdb
from dpweave.schema.database import Column, Database

# ruff: noqa: S608 - statements are built from constants and quoted names


UNDECLARED_KEYS = "dpweave foreign keys:"
"""Begins the comment on a DuckDB table that lists, as JSON, keys which DuckDB cannot hold: those that close a cycle."""


def reflect_duckdb(connection: Any) -> Database:
    """Read DuckDB's catalogue functions."""
    mine = "database_name = current_database()"
    default = catalogue_rows(connection, "SELECT current_schema()")[0][0]
    tables = catalogue_rows(
        connection,
        f"SELECT schema_name, table_name, comment FROM duckdb_tables() WHERE NOT internal AND NOT temporary AND {mine} "
        "ORDER BY table_oid",
    )
    columns: dict[tuple[str, str], list[Column]] = {}
    for schema, table, name, text, nullable in catalogue_rows(
        connection,
        f"SELECT schema_name, table_name, column_name, data_type, is_nullable FROM duckdb_columns() WHERE {mine} "
        "ORDER BY table_oid, column_index",
    ):
        columns.setdefault((schema, table), []).append(Column(name, type_of_duckdb(text), nullable=nullable))
    keys = DeclaredKeys()
    for schema, table, kind, names, target, target_names in catalogue_rows(
        connection,
        "SELECT schema_name, table_name, constraint_type, constraint_column_names, referenced_table, "
        f"referenced_column_names FROM duckdb_constraints() WHERE {mine} ORDER BY constraint_index",
    ):
        match kind:
            case "PRIMARY KEY":
                keys.primary[schema, table] = tuple(names)
            case "UNIQUE":
                keys.add_unique((schema, table), tuple(names))
            case "FOREIGN KEY":  # DuckDB keeps a foreign key inside one schema
                keys.add_foreign((schema, table), tuple(names), (schema, target), tuple(target_names))
            case _:
                pass
    for schema, table, expressions in catalogue_rows(
        connection,
        "SELECT schema_name, table_name, expressions FROM duckdb_indexes() "
        f"WHERE is_unique AND NOT is_primary AND {mine}",
    ):
        names = tuple(
            e.strip().strip("'").removeprefix('"').removesuffix('"') for e in expressions.strip("[]").split(", ")
        )
        if set(names) <= {c.name for c in columns.get((schema, table), ())}:
            keys.add_unique((schema, table), names)
    for schema, table, comment in tables:
        for key in _undeclared(comment):
            target = key["target"].removeprefix(f"{schema}.") if schema != default else key["target"]
            keys.add_foreign((schema, table), tuple(key["columns"]), (schema, target), tuple(key["target_columns"]))
    return keys.database({(s, t): columns[s, t] for s, t, _ in tables}, default=default)


def left_out_by_duckdb(connection: Any) -> tuple[str, ...]:
    """Return CHECK constraints and views, in words."""
    mine = "database_name = current_database()"
    checks = catalogue_rows(
        connection,
        f"SELECT table_name, constraint_text FROM duckdb_constraints() WHERE constraint_type = 'CHECK' AND {mine} "
        "ORDER BY table_oid, constraint_index",
    )
    views = catalogue_rows(
        connection,
        f"SELECT view_name FROM duckdb_views() WHERE NOT internal AND NOT temporary AND {mine} ORDER BY view_oid",
    )
    return (*(f"{table}: {text}" for table, text in checks), *(f"view {name}" for (name,) in views))


def _undeclared(comment: str | None) -> list[dict[str, Any]]:
    if not comment or not comment.startswith(UNDECLARED_KEYS):
        return []
    try:
        return list(json.loads(comment.removeprefix(UNDECLARED_KEYS)))
    except json.JSONDecodeError:
        return []
