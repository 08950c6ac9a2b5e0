"""SQLite files: foreign keys are declared up front, off during the load, and checked at the end."""

# ruff: noqa: S608 - statements are built from constants and quoted names

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from dpweave.engines.ddl import create_table, names, quoted, refuse_twins
from dpweave.engines.sqlite.types import sqlite_type
from dpweave.engines.staging import staged
from dpweave.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from dpweave.engines.stream import Stream
    from dpweave.schema.database import Column, Database, Table, Type


def write_sqlite(database: Database, streams: Mapping[str, Stream], target: Path) -> None:
    """Write one SQLite file."""
    refuse_twins(database, engine="SQLite")
    with staged(target) as draft:
        try:
            connection = sqlite3.connect(draft, isolation_level=None)
            try:
                _fill(connection, database, streams)
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise TargetError(f"{target} cannot be written: {_reason(error)}") from None


def _fill(connection: sqlite3.Connection, database: Database, streams: Mapping[str, Stream]) -> None:
    # The draft is thrown away if anything fails, so a journal would protect nothing.
    for pragma in ("foreign_keys = OFF", "journal_mode = OFF", "synchronous = OFF"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("BEGIN")
    for table in database:
        connection.execute(
            create_table(
                database,
                table,
                name=quoted(table.name),
                spell=lambda column, type, table=table: _spell(table, column, type),  # type: ignore[misc]  # noqa: A006
                inline_keys=table.foreign_keys,
                deferred=" DEFERRABLE INITIALLY DEFERRED",
            )
        )
    for table in database:
        slots = ", ".join("?" * len(table.columns))
        insert = f"INSERT INTO {quoted(table.name)} ({names(c.name for c in table.columns)}) VALUES ({slots})"
        for batch in streams[table.name]:
            columns = [_values(batch.column(c.name), table, c) for c in table.columns]
            connection.executemany(insert, zip(*columns, strict=True))
    connection.execute("COMMIT")
    broken = connection.execute("PRAGMA foreign_key_check").fetchone()
    if broken is not None:
        raise TargetError(f"a foreign key of {broken[0]!r} leads to rows of {broken[2]!r} that are not there")
    connection.execute("PRAGMA synchronous = FULL")


def _spell(table: Table, column: Column, type: Type) -> str:  # noqa: A002
    if table.primary_key == (column.name,) and type.kind == "integer":
        return "INTEGER"  # the row's own number: needs no index beside it
    return sqlite_type(column, type)


def _values(array: pa.Array, table: Table, column: Column) -> Any:
    """Return values as SQLite stores them: numbers, text and bytes; dates and times are ISO 8601 text."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        text = pc.cast(array.cast(pa.timestamp("us")), pa.string())
        text = pc.replace_substring_regex(text, r"\.000000$", "")
        return (pc.binary_join_element_wise(text, "+00:00", "") if kind.tz else text).to_pylist()
    if pa.types.is_time(kind):
        return pc.replace_substring_regex(array.cast(pa.string()), r"\.000000$", "").to_pylist()
    if pa.types.is_date(kind) or pa.types.is_decimal(kind):
        return array.cast(pa.string()).to_pylist()
    if kind == pa.uint64() and (pc.max(array).as_py() or 0) >= 2**63:
        raise TargetError(
            f"column {column.name!r} of {table.name!r} holds integers past 2^63 - 1, which SQLite cannot store"
        )
    return array.to_pylist()


def _reason(error: sqlite3.Error) -> str:
    if isinstance(error, sqlite3.IntegrityError):
        return "its rows break a key, a unique constraint, an enum or a NOT NULL of the schema"
    code = getattr(error, "sqlite_errorname", "") or ""
    if code.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return "the disk is full or refuses to be written"
    return (
        "the file cannot be created"
        if code.startswith("SQLITE_CANTOPEN")
        else f"SQLite refused ({code or type(error).__name__})"
    )
