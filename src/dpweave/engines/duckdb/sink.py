"""DuckDB files.

DuckDB checks a foreign key at each insert, has no deferred constraints and cannot add one later. So tables load targets
first, a table that points at itself loads generation by generation, and a key that closes a cycle cannot be declared:
it is kept as a comment on its table, which reflection reads back, and its values are checked here instead.
"""

# ruff: noqa: S608 - statements are built from constants and quoted names

from __future__ import annotations

import json
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dpweave.engines.ddl import create_table, literal, names, quoted, refuse_twins
from dpweave.engines.duckdb.catalogue import UNDECLARED_KEYS
from dpweave.engines.duckdb.types import duckdb_type
from dpweave.engines.staging import staged
from dpweave.errors import TargetError
from dpweave.schema.key_graph import KeyGraph

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dpweave.engines.stream import Stream
    from dpweave.schema.database import Database, ForeignKey, Table

_TRANSACTION = 8
"""Batches that are inserted at once."""
_GENERATION = '"dpweave generation"'
_DEEPEST = 1000
"""More generations than this and a self-reference is kept as a comment: each takes a statement of its own."""


def write_duckdb(database: Database, streams: Mapping[str, Stream], target: Path) -> None:
    """Write one DuckDB file."""
    import duckdb

    refuse_twins(database, engine="DuckDB")
    with staged(target) as draft:
        try:
            connection = duckdb.connect(str(draft))
            try:
                connection.execute("SET enable_progress_bar = false")  # progress is the caller's to show
                _fill(connection, database, streams)
            finally:
                connection.close()
        except duckdb.Error as error:
            for stream in streams.values():
                if stream.failure is not None:
                    raise stream.failure from None
            raise TargetError(f"{target} cannot be written: {_reason(error)}") from None


def _fill(connection: Any, database: Database, streams: Mapping[str, Stream]) -> None:
    for namespace in dict.fromkeys(t.namespace for t in database if t.namespace):
        connection.execute(f"CREATE SCHEMA {quoted(namespace)}")
    order = KeyGraph(database).order()
    for place, name in enumerate(order):
        table = database[name]
        possible = {n for n in order[: place + 1] if database[n].namespace == table.namespace}
        keys = [k for k in table.foreign_keys if k.target in possible]
        _load(connection, database, streams[name], keys)
    for table in database:
        _keep_undeclared(connection, database, table)


def _load(connection: Any, database: Database, stream: Stream, keys: list[ForeignKey]) -> None:
    table = stream.table
    own = [k for k in keys if k.target == table.name]
    _create(connection, database, table, keys)
    if not own:
        _insert(connection, table, stream, into=_place(table))
        return
    staging = quoted(f"{table.bare_name} before its keys")
    connection.execute(
        f"CREATE TEMPORARY TABLE {staging} AS SELECT *, NULL::INTEGER AS {_GENERATION} FROM {_place(table)}"
    )
    _insert(connection, table, stream, into=staging)
    generations = _number_generations(connection, own, staging)
    columns = names(c.name for c in table.columns)
    copy = f"INSERT INTO {_place(table)} ({columns}) SELECT {columns} FROM {staging}"
    if generations is None:
        connection.execute(f"DROP TABLE {_place(table)}")
        _create(connection, database, table, [k for k in keys if k not in own])
        connection.execute(copy)
    else:
        for generation in range(generations):
            connection.execute(f"{copy} WHERE {_GENERATION} = {generation}")
    connection.execute(f"DROP TABLE {staging}")


def _create(connection: Any, database: Database, table: Table, keys: list[ForeignKey]) -> None:
    connection.execute(
        create_table(
            database,
            table,
            name=_place(table),
            spell=duckdb_type,
            inline_keys=keys,
            references=lambda name: _place(database[name]),
        )
    )


def _insert(connection: Any, table: Table, stream: Stream, *, into: str) -> None:
    """Insert a stream, some batches to a transaction: DuckDB holds all of one in
    memory. (A draft that fails is deleted.)
    """
    columns = names(c.name for c in table.columns)
    batches = iter(stream)
    for first in batches:
        some = chain([first], islice(batches, _TRANSACTION - 1))
        connection.register("dpweave incoming", pa.RecordBatchReader.from_batches(stream.schema, some))
        try:
            connection.execute(f'INSERT INTO {into} ({columns}) SELECT {columns} FROM "dpweave incoming"')
        finally:
            connection.unregister("dpweave incoming")


def _number_generations(connection: Any, own: list[ForeignKey], staging: str) -> int | None:
    """Number rows so that parents come before children; return how many numbers, or None where rows form a cycle."""

    def in_order(key: ForeignKey) -> str:
        nothing = " OR ".join(f"s.{quoted(c)} IS NULL" for c in key.columns)
        same = " AND ".join(
            f"p.{quoted(t)} = s.{quoted(c)}" for c, t in zip(key.columns, key.target_columns, strict=True)
        )
        return f"({nothing} OR EXISTS (SELECT 1 FROM {staging} AS p WHERE p.{_GENERATION} IS NOT NULL AND {same}))"

    ready = " AND ".join(in_order(k) for k in own)
    for generation in range(_DEEPEST):
        if not _one(connection, f"SELECT count(*) FROM {staging} WHERE {_GENERATION} IS NULL"):
            return generation
        numbered = _one(
            connection,
            f"UPDATE {staging} AS s SET {_GENERATION} = {generation} WHERE s.{_GENERATION} IS NULL AND {ready}",
        )
        if not numbered:
            return None
    return None


def _keep_undeclared(connection: Any, database: Database, table: Table) -> None:
    """Check the keys that DuckDB does not hold itself, and write them into the table's comment."""
    declared = connection.execute(
        "SELECT constraint_column_names, referenced_table FROM duckdb_constraints() "
        "WHERE constraint_type = 'FOREIGN KEY' AND table_name = ? AND schema_name = ?",
        [table.bare_name, table.namespace or "main"],
    ).fetchall()
    held = {(tuple(columns), target) for columns, target in declared}
    missing = [k for k in table.foreign_keys if (k.columns, database[k.target].bare_name) not in held]
    for key in missing:
        there = " AND ".join(
            f"p.{quoted(t)} = s.{quoted(c)}" for c, t in zip(key.columns, key.target_columns, strict=True)
        )
        present = " AND ".join(f"s.{quoted(c)} IS NOT NULL" for c in key.columns)
        dangling = (
            f"SELECT count(*) FROM {_place(table)} AS s WHERE {present} "
            f"AND NOT EXISTS (SELECT 1 FROM {_place(database[key.target])} AS p WHERE {there})"
        )
        if _one(connection, dangling):
            raise TargetError(
                f"the foreign key {key.name!r} of {table.name!r} leads to rows of {key.target!r} that are not there"
            )
    if missing:
        kept = [{"columns": k.columns, "target": k.target, "target_columns": k.target_columns} for k in missing]
        comment = f"{UNDECLARED_KEYS} {json.dumps(kept, ensure_ascii=False)}"
        connection.execute(f"COMMENT ON TABLE {_place(table)} IS {literal(comment)}")


def _place(table: Table) -> str:
    return f"{quoted(table.namespace or 'main')}.{quoted(table.bare_name)}"


def _one(connection: Any, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])


def _reason(error: Exception) -> str:
    import duckdb

    if isinstance(error, duckdb.ConstraintException):
        return "its rows break a key, a unique constraint or a NOT NULL of the schema"
    if isinstance(error, duckdb.IOException):
        return "the disk is full or refuses to be written"
    if isinstance(error, duckdb.ConversionException):
        return "a value does not fit the type of its column"
    if isinstance(error, duckdb.OutOfMemoryException):
        return "memory ran out"
    return f"DuckDB refused ({type(error).__name__})"
