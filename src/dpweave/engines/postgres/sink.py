"""PostgreSQL: schema and rows in one transaction, constraints after the load."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from dpweave.engines.ddl import create_table, foreign_key, literal, names, quoted, unique_sets
from dpweave.engines.postgres.connection import connect, label, reason
from dpweave.engines.postgres.types import postgres_type
from dpweave.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.engines.stream import Stream
    from dpweave.schema.database import Column, Database, Table, Type


def write_postgres(database: Database, streams: Mapping[str, Stream], url: str, *, overwrite: bool) -> None:
    """Create the tables in the database that ``url`` names and fill them with ``COPY``."""
    import psycopg

    connection = connect(url, error=TargetError)
    try:
        with connection.transaction():
            _make_tables(connection, database, overwrite=overwrite, where=label(url))
            for table in database:
                _copy(connection, streams[table.name])
            for table in database:
                _constrain(connection, database, table)
            for table in database:
                for key in table.foreign_keys:
                    clause = foreign_key(key, lambda name: _place(database[name]))
                    connection.execute(f"ALTER TABLE {_place(table)} ADD {clause}")
    except psycopg.Error as error:
        raise TargetError(f"{label(url)}: {reason(error) or 'the server refused a statement'}") from None
    finally:
        connection.close()


def require_room(database: Database, url: str, *, overwrite: bool) -> None:
    """Refuse a database that cannot be reached or has one of the tables already, or
    where they cannot be made: they are, and unmade.
    """
    import psycopg

    connection = connect(url, error=TargetError)
    try:
        with connection.transaction(force_rollback=True):
            _make_tables(connection, database, overwrite=overwrite, where=label(url))
    except psycopg.Error as error:
        raise TargetError(f"{label(url)}: {reason(error) or 'the server refused a statement'}") from None
    finally:
        connection.close()


def _make_tables(connection: Any, database: Database, *, overwrite: bool, where: str) -> None:
    _make_room(connection, database, overwrite=overwrite, where=where)
    for table in database:
        _create(connection, database, table)


def _make_room(connection: Any, database: Database, *, overwrite: bool, where: str) -> None:
    taken = _taken(connection, database)
    if not overwrite:
        _refuse(taken, where=where)
    if taken:
        connection.execute(f"DROP TABLE {', '.join(_place(t) for t in taken)}")
    for namespace in dict.fromkeys(t.namespace for t in database if t.namespace):
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(namespace)}")
    for table in database if overwrite else ():
        for column in table.columns:
            if column.type.kind == "enum":
                connection.execute(f"DROP TYPE IF EXISTS {_enum(table, column)}")


def _taken(connection: Any, database: Database) -> list[Table]:
    """Tables of ``database`` that are there already."""
    found = "SELECT to_regclass(%s) IS NOT NULL"
    return [t for t in database if connection.execute(found, (_place(t),)).fetchone()[0]]


def _refuse(taken: list[Table], *, where: str) -> None:
    if taken:
        raise TargetError(
            f"{where} has a table {taken[0].name!r} already; choose another database, or overwrite it with --force"
            " (overwrite=True in Python)"
        )


def _create(connection: Any, database: Database, table: Table) -> None:
    for column in table.columns:
        if column.type.kind == "enum":
            labels = ", ".join(literal(v) for v in column.type.values)
            connection.execute(f"CREATE TYPE {_enum(table, column)} AS ENUM ({labels})")

    def spell(column: Column, type: Type) -> str:  # noqa: A002
        if type.kind != "enum":
            return postgres_type(column, type)
        return _enum(table, column) if column.type.kind == "enum" else "text"

    connection.execute(create_table(database, table, name=_place(table), spell=spell, constrained=False))


def _copy(connection: Any, stream: Stream) -> None:
    columns = names(c.name for c in stream.table.columns)
    arrays = frozenset(c.name for c in stream.table.columns if c.type.kind == "array")
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY {_place(stream.table)} ({columns}) FROM STDIN (FORMAT csv, NULL '')") as copy,
    ):
        for batch in stream:
            copy.write(_csv(batch, arrays))


def _csv(batch: pa.RecordBatch, arrays: frozenset[str]) -> bytes:
    """Return a batch as CSV in which null is an empty field and empty text is quoted; bytes are hexadecimal."""
    import pyarrow.csv

    def readable(name: str, array: pa.Array) -> pa.Array:
        if pa.types.is_binary(array.type):
            return pa.array([None if v is None else f"\\x{v.hex()}" for v in array.to_pylist()], pa.string())
        if name in arrays:
            return pc.if_else(pc.is_valid(array), "{}", pa.scalar(None, pa.string()))
        return array

    columns = [readable(f.name, a) for f, a in zip(batch.schema, batch.columns, strict=True)]
    buffer = io.BytesIO()
    rows = pa.RecordBatch.from_arrays(columns, names=[str(i) for i in range(len(columns))])
    pyarrow.csv.write_csv(rows, buffer, pyarrow.csv.WriteOptions(include_header=False))
    return buffer.getvalue()


def _constrain(connection: Any, database: Database, table: Table) -> None:
    if table.primary_key:
        connection.execute(f"ALTER TABLE {_place(table)} ADD PRIMARY KEY ({names(table.primary_key)})")
    for columns in unique_sets(database, table):
        connection.execute(f"ALTER TABLE {_place(table)} ADD UNIQUE ({names(columns)})")


def _place(table: Table) -> str:
    return f"{quoted(table.namespace)}.{quoted(table.bare_name)}" if table.namespace else quoted(table.bare_name)


def _enum(table: Table, column: Column) -> str:
    name = quoted(f"{table.bare_name}_{column.name}")
    return f"{quoted(table.namespace)}.{name}" if table.namespace else name
