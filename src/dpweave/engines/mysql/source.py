"""MySQL and MariaDB: counts run on the server, in a session that cannot write."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

from dpweave.engines.mysql.catalogue import Catalogue, reflect_mysql
from dpweave.engines.mysql.connection import connect, label, one, reason, run
from dpweave.engines.mysql.reading import TEXTS, backquoted, can_read, read_as
from dpweave.engines.source_base import BATCH_ROWS, Source, ibis_type
from dpweave.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import ibis
    import pyarrow as pa

    from dpweave.schema.database import Database, Table, Type

# ruff: noqa: S608 - statements are built from constants and quoted names

INDEXED = ("rid", "blank", "owner")
"""Columns of what we store for a session that other rows lead to or are looked up by."""
_KEEPING = frozenset({"InnoDB", "MyISAM", "Aria"})
"""Storage engines whose primary keys hold for all rows that a query gives; those of others may join several tables."""


@final
class MySQLSource(Source):
    """Tables of a MySQL or MariaDB connection. Every statement sees one instant and may not write.

    The session is not strict: a strict one stops where a value cannot be converted while a temporary table is made,
    and so would say something about a row. What cannot be read is null instead.
    """

    embedded = False
    sums_units = False  # with 100,000 rows and 18 codes a server ran out of memory
    declares_keys = True

    def __init__(self, connection: Any, *, name: str, views: Collection[str] = ()) -> None:
        from dpweave.engines.mysql.compiler import Server

        super().__init__(Server(connection), name=name, owned=True)
        self.views = frozenset(views)
        self._streaming: _Rows | None = None
        with self.masked("the session cannot be set up"):
            self._is_mariadb = "mariadb" in (one(connection, "SELECT VERSION()") or "").lower()
            if self._is_mariadb:
                run(connection, "SET SESSION join_cache_level = 4")  # joins by hashes, as MySQL has them by itself
                run(connection, "SET SESSION optimizer_switch = 'split_materialized=off'")  # it scans a table per group
            # One instant per statement, and no lock on the rows that a temporary table is made from.
            run(connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            run(connection, "SET SESSION TRANSACTION READ ONLY")
        self.can_materialise = self._has_temporary()

    def hash(self, expression: ibis.expr.types.StringValue) -> ibis.expr.types.IntegerValue:
        """60 bits of SHA-256."""
        return expression.hash()

    def _has_temporary(self) -> bool:
        """Whether temporary tables may be made and a query may name one twice, which MySQL's may not."""
        import pymysql

        name = f"{self._prefix}probe"
        try:
            self._create_temporary(name, "SELECT 1 AS `a`")
            try:
                self._ask(f"SELECT 1 FROM {backquoted(name)} AS `a` JOIN {backquoted(name)} AS `b`")
            finally:
                self._drop_temporary(name)
        except pymysql.MySQLError:
            return False
        return True

    def _ask(self, statement: str, *arguments: str) -> list[tuple[str | None, ...]]:
        self._end_stream()
        return run(self.connection.con, statement, arguments)

    def _end_stream(self) -> None:
        """Fetch what is left of a result that is being read: a connection carries one at a time."""
        if self._streaming is not None:
            self._streaming.keep()
            self._streaming = None

    def _disconnect(self) -> None:
        self.connection.con.close()

    def _drop_temporary(self, name: str) -> None:
        self._make(f"DROP TEMPORARY TABLE {backquoted(name)}")

    @cached_property
    def _found(self) -> Catalogue:
        self._end_stream()
        return reflect_mysql(self.connection.con, mariadb=self._is_mariadb, views=self.views)

    def _reflect(self) -> Database:
        return self._found.database

    def _not_copied(self) -> tuple[str, ...]:
        return self._found.left_out

    def _engine_table(self, name: str) -> Table:
        return self.catalogue[name]

    def _with_lookups(self, expression: ibis.Table) -> ibis.Table:
        """Write small in-memory tables into the query: for tables of their own a reader has no right."""
        import ibis.expr.operations as ops

        spelled = {
            node: ops.SQLQueryResult(_values(node.data.to_pyarrow(node.schema)), node.schema, self.connection)
            for node in expression.op().find(ops.InMemoryTable)
        }
        return expression.op().replace(spelled).to_expr() if spelled else expression

    def _is_view(self, name: str) -> bool:
        return name in self._found.views

    def _proves_primary_key(self, stored: Table) -> bool:
        return self._found.engines.get(stored.name) in _KEEPING

    def _require_readable(self, table: Table) -> None:
        import pymysql

        try:
            self._ask(f"{self._selected(table, table)} LIMIT 0")
        except pymysql.MySQLError as error:
            if error.args[0] in (1142, 1143):
                raise SourceError(
                    f"permission to read table {table.name!r} of {self.name} is denied; grant SELECT on it"
                ) from None
            with self.masked(f"table {table.name!r} cannot be read"):
                raise

    def _raw(self, stored: Table, declared: Table) -> ibis.Table:
        import ibis.expr.operations as ops
        import ibis.expr.schema as sch

        schema = sch.Schema({c.name: ibis_type(c.type) for c in declared.columns})
        return ops.SQLQueryResult(self._selected(stored, declared), schema, self.connection).to_expr()

    def _selected(self, stored: Table, declared: Table) -> str:
        columns = ", ".join(f"{self._read(stored, c.name, c.type)} AS {backquoted(c.name)}" for c in declared.columns)
        return f"SELECT {columns} FROM {backquoted(stored.name)}"

    def _read(self, stored: Table, column: str, declared: Type) -> str:
        spelled = self._found.spelled[stored.name, column]
        return read_as(backquoted(column), spelled, stored.column[column].type, declared)

    def _typed(self, column: Any, stored: Type, declared: Type, *, verbatim: bool) -> Any:  # noqa: ARG002
        return column

    def _can_cast(self, stored: Type, declared: Type) -> bool:
        return can_read(stored, declared)

    def _run(self, query: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        self._end_stream()
        rows = _Rows(self.connection.con, query)
        self._streaming = rows
        try:
            yield from (_batch(chunk, schema) for chunk in rows)
        finally:
            rows.close()
            if self._streaming is rows:
                self._streaming = None

    def _create_temporary(self, name: str, query: str) -> None:
        """Store the rows of a query, with an index on each whole number that joins go by.

        The table is one of Aria: in those of InnoDB a row has less room than a row of a query may need, and whether it
        has enough depends on the row.
        """
        self._end_stream()
        with self.connection.con.cursor() as cursor:
            cursor.execute(f"SELECT * FROM ({query}) AS `q` LIMIT 0")
            held = {column[0] for column in cursor.description}
        keys = ", ".join(f"INDEX ({column})" for column in INDEXED if column in held)
        self._make(f"CREATE TEMPORARY TABLE {backquoted(name)} {f'({keys})' if keys else ''} ENGINE=Aria AS {query}")

    def _make(self, statement: str) -> None:
        """Run one statement in a session that may write, which is what making a temporary table takes."""
        self._ask("SET SESSION TRANSACTION READ WRITE")
        try:
            self._ask(statement)
        finally:
            self._ask("SET SESSION TRANSACTION READ ONLY")

    def _reason(self, error: Exception) -> str | None:
        return reason(error)


class _Rows:
    """The rows of a query in chunks, as they come from the server, until somebody wants the connection."""

    def __init__(self, connection: Any, query: str) -> None:
        from pymysql.cursors import SSCursor

        self._cursor = connection.cursor(SSCursor)
        self._kept: list[Sequence[tuple[Any, ...]]] = []
        self._done = False
        self._cursor.execute(query)

    def __iter__(self) -> Iterator[Sequence[tuple[Any, ...]]]:
        while chunk := self._next():
            yield chunk

    def _next(self) -> Sequence[tuple[Any, ...]]:
        if self._kept:
            return self._kept.pop(0)
        return () if self._done else self._fetched()

    def _fetched(self) -> Sequence[tuple[Any, ...]]:
        chunk: Sequence[tuple[Any, ...]] = self._cursor.fetchmany(BATCH_ROWS)
        if not chunk:
            self.close()
        return chunk

    def keep(self) -> None:
        """Fetch all that is left, and let go of the connection."""
        while not self._done:
            if chunk := self._fetched():
                self._kept.append(chunk)

    def close(self) -> None:
        """Let go of the connection."""
        if not self._done:
            self._done = True
            self._cursor.close()


def _batch(rows: Sequence[tuple[bytes | None, ...]], schema: pa.Schema) -> pa.RecordBatch:
    """Read what the server spells, with null for what does not fit its column."""
    import pyarrow as pa

    columns = zip(*rows, strict=True)
    arrays = [_array(pa.array(values, pa.binary()), f.type) for values, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(spelled: pa.Array, kind: pa.DataType) -> pa.Array:
    """Read all values at once, or one by one where one of them does not fit."""
    import pyarrow as pa

    try:
        return _read(spelled, kind)
    except pa.ArrowException:
        return pa.concat_arrays([_alone(spelled[i : i + 1], kind) for i in range(len(spelled))])


def _read(spelled: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_binary(kind):
        return spelled
    text = spelled.cast(pa.string())
    if pa.types.is_time(kind):
        return pc.binary_join_element_wise("1970-01-01", text, " ").cast(pa.timestamp(kind.unit)).cast(kind)
    if pa.types.is_timestamp(kind) and kind.tz:
        return text.cast(pa.timestamp(kind.unit)).cast(kind)
    return text.cast(kind)


def _alone(spelled: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_string(kind):
        return pa.array([v.decode("utf-8", "replace") for v in spelled.to_pylist()], kind)
    try:
        return _read(spelled, kind)
    except pa.ArrowException:
        return pa.nulls(1, kind)


def _values(table: pa.Table) -> str:
    """Return a query that yields the rows of a small table; texts travel as hexadecimal digits, numbers as text."""
    from dpweave.schema.arrow_types import type_of_arrow

    kinds = [type_of_arrow(f.type) for f in table.schema]
    texts = [
        [None if v is None else v.encode().hex() if kind.kind in TEXTS else str(v) for v in column.to_pylist()]
        for column, kind in zip(table.columns, kinds, strict=True)
    ]
    places = range(len(kinds))
    listed = ", ".join(
        f"{_cast(f'`v{i}`', kind)} AS {backquoted(f.name)}"
        for i, kind, f in zip(places, kinds, table.schema, strict=True)
    )
    longest = [max((len(v) for v in column if v), default=1) for column in texts]
    held = ", ".join(f"`v{i}` {_room(n)} PATH '$[{i}]'" for i, n in enumerate(longest))
    rows = json.dumps(list(zip(*texts, strict=True)))
    # DISTINCT keeps the server from reading the list anew for each row that it is joined to; the rows differ.
    return f"SELECT DISTINCT {listed} FROM JSON_TABLE('{rows}', '$[*]' COLUMNS ({held})) AS `j`"


def _room(characters: int) -> str:
    return f"VARCHAR({characters})" if characters <= 8_000 else "LONGTEXT"


def _cast(value: str, kind: Type) -> str:
    match kind.kind:
        case "integer":
            return f"CAST({value} AS {'SIGNED' if kind.signed else 'UNSIGNED'})"
        case "float":
            return f"({value} + 0E0)"
        case "decimal":
            return f"CAST({value} AS DECIMAL({min(kind.precision or 65, 65)}, {min(kind.scale or 0, 30)}))"
        case "date" | "time" as name:
            return f"CAST({value} AS {name.upper()}{'(6)' * (name == 'time')})"
        case "timestamp":
            return f"CAST(LEFT({value}, 26) AS DATETIME(6))"
        case "boolean":
            return f"({value} = 'True')"
        case _:
            return f"UNHEX({value})"


def open_mysql(url: str, *, schema: str | None = None, views: Collection[str] = ()) -> MySQLSource:
    """Connect to a ``mysql://`` or ``mariadb://`` URL; ``schema`` stands for the database that it names."""
    connection = connect(url, modes="", database=schema, error=SourceError)
    try:
        return MySQLSource(connection, name=label(url, schema), views=views)
    except SourceError:
        connection.close()
        raise
