"""DuckDB: a file, or the engine under data frames and folders."""

from __future__ import annotations

import atexit
from contextlib import ExitStack, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, final

from dpweave.engines.duckdb.catalogue import left_out_by_duckdb, reflect_duckdb
from dpweave.engines.source_base import AS_TEXT, BATCH_ROWS, ROW, Source, database_table, ibis_type, raw_schema
from dpweave.engines.staging import workplace
from dpweave.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import ibis
    import pyarrow as pa

    from dpweave.schema.database import Database, Table, Type

_LOOSE = frozenset({"decimal", "time", "timestamp"})
"""Kinds that are cast: ``HUGEINT`` holds more than a decimal, times with a zone or in
nanoseconds compare with no plain one.
"""
MEMORY = "512MB"
"""What DuckDB may hold. Beyond it temporary tables, sorts and joins go to disk, so that a fit needs no memory for each
row; with half of it, sorts of wide rows by many threads would fail.
"""
SPILLED = ".dpweave-rows-"
"""Begins the names of folders for what DuckDB does not hold."""
SPARE_NUMBERS = 1_000_000
"""Row numbers that may lead nowhere before a copy of the table is cheaper than arrays with gaps."""


@final
class DuckDBSource(Source):
    """Tables of a DuckDB connection, or views that stand for frames and files.

    For views, ``schema`` says what they are to the outside, ``stored`` in which types DuckDB sees
    them, and ``numbered`` which of them have a twin (:func:`twin`) with one more column, :data:`ROW`.
    """

    embedded = True
    can_materialise = True

    def __init__(
        self,
        connection: Any,
        *,
        name: str,
        schema: Database | None = None,
        stored: Database | None = None,
        numbered: frozenset[str] = frozenset(),
        declares_keys: bool = True,
        untyped: frozenset[str] = frozenset(),
        owned: bool = True,
    ) -> None:
        super().__init__(connection, name=name, owned=owned)
        self._schema = schema
        self._stored_schema = stored
        self._with_numbers = numbered
        self.declares_keys = declares_keys
        self.untyped = untyped
        if owned:
            _spill_to_disk(connection.con)

    def hash(self, expression: ibis.expr.types.StringValue) -> ibis.expr.types.IntegerValue:
        """DuckDB's ``hash``."""
        return expression.hash()

    def _disconnect(self) -> None:
        self.connection.con.close()

    def _drop_temporary(self, name: str) -> None:
        self.connection.con.execute(f'DROP TABLE "{name}"')

    def _reflect(self) -> Database:
        return self._schema or reflect_duckdb(self.connection.con)

    def _not_copied(self) -> tuple[str, ...]:
        return () if self._schema is not None else left_out_by_duckdb(self.connection.con)

    def _engine_table(self, name: str) -> Table:
        return (self._stored_schema or self.catalogue)[name]

    def _with_lookups(self, expression: ibis.Table) -> ibis.Table:
        return expression

    def _is_view(self, name: str) -> bool:
        query = (
            "SELECT count(*) FROM duckdb_views() "
            "WHERE NOT internal AND ? IN (view_name, schema_name || '.' || view_name)"
        )
        return bool(self.connection.con.cursor().execute(query, [name]).fetchone()[0])

    def _proves_primary_key(self, stored: Table) -> bool:  # noqa: ARG002
        """DuckDB checks each row of its own tables; views over frames and files have whatever these hold."""
        return self._schema is None

    def _require_readable(self, table: Table) -> None:
        pass

    def _require_whole(self, table: Table) -> None:
        from dpweave.engines.ddl import quoted

        if self._schema is not None:
            # Counts alone would come from the statistics of a Parquet file, without its values.
            query = f"SELECT bit_xor(hash(COLUMNS(*))) FROM {quoted(table.name)}"  # noqa: S608 - quoted
            rows = self.table(table.name)  # any 64 bits may be stored as a moment, and some are none
            moments = [c for c, kind in rows.schema().items() if kind.is_temporal()]
            with self.masked(f"the rows of {table.name!r} cannot be read to their end"):
                self.connection.con.execute(query).fetchall()
                if moments:
                    spelled = rows.aggregate([rows[c].cast("string").max() for c in moments])
                    self.connection.con.execute(self.compile(spelled)).fetchall()

    def _raw(self, stored: Table, declared: Table) -> ibis.Table:  # noqa: ARG002
        schema = raw_schema(stored, loose=_LOOSE)
        return database_table(self.connection, stored.bare_name, schema, namespace=stored.namespace)

    def _raw_with_numbers(self, stored: Table) -> ibis.Table | None:
        """Rows of a view are numbered by whoever made it; those of a table by
        ``rowid``, unless deletions left many gaps.
        """
        import ibis

        raw = self._raw(stored, stored)
        if self._schema is not None:
            schema = ibis.schema({**raw.schema(), ROW: "int64"})
            is_there = stored.name in self._with_numbers
            return database_table(self.connection, twin(stored.name), schema) if is_there else None
        if "rowid" in {c.name.lower() for c in stored.columns}:
            return None
        numbered = raw.mutate(**{ROW: raw.rowid()})
        found = self.fetch(numbered.aggregate(last=numbered[ROW].max(), rows=numbered.count())).to_pylist()[0]
        return numbered if (found["last"] or 0) <= 2 * found["rows"] + SPARE_NUMBERS else None

    def _typed(self, column: Any, stored: Type, declared: Type, *, verbatim: bool) -> Any:  # noqa: ARG002
        if stored.kind in AS_TEXT:
            column = column.cast("string")
        if declared.kind == "bytes" and column.type().is_string():
            return _bytes_of_base64(column)
        wanted = ibis_type(declared)
        return column if column.type() == wanted else column.try_cast(wanted)

    def _can_cast(self, stored: Type, declared: Type) -> bool:  # noqa: ARG002
        return True

    def _run(self, query: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        return cast_batches(self.connection.con.sql(query).to_arrow_reader(BATCH_ROWS), schema)

    def _create_temporary(self, name: str, query: str) -> None:
        self.connection.con.execute(f'CREATE TEMPORARY TABLE "{name}" AS {query}')

    def _reason(self, error: Exception) -> str | None:
        return reason(error)


def _bytes_of_base64(column: Any) -> Any:
    """Read bytes out of a CSV file; what is not base64 is null."""
    import ibis.expr.datatypes as dt
    from ibis import udf

    def decoded(text: str): ...  # type: ignore[no-untyped-def]
    def attempted(data: bytes): ...  # type: ignore[no-untyped-def]

    for body in (decoded, attempted):
        body.__annotations__["return"] = dt.binary
    return udf.scalar.builtin(attempted, name="try")(udf.scalar.builtin(decoded, name="from_base64")(column))


def cast_batches(batches: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Give each batch the types that were asked for."""
    import pyarrow as pa

    from dpweave.engines.source_base import total_cast

    for batch in batches:
        yield pa.RecordBatch.from_arrays(
            [total_cast(a, f.type) for a, f in zip(batch.columns, schema, strict=True)], schema=schema
        )


def twin(name: str) -> str:
    """Name of the view with the rows of a view, numbered."""
    return f"{ROW}_{name}"


def open_duckdb(path: Path) -> DuckDBSource:
    """Open a DuckDB file read-only."""
    import duckdb
    import ibis

    try:
        connection = duckdb.connect(str(path), read_only=True)
    except duckdb.Error as error:
        raise SourceError(
            f"{path} cannot be opened: {reason(error) or 'it is damaged, or of another version of DuckDB'}"
        ) from None
    return DuckDBSource(ibis.duckdb.from_connection(connection), name=path.name)


def wrap_duckdb(connection: Any) -> DuckDBSource:
    """Use a live Ibis connection to DuckDB."""
    return DuckDBSource(connection, name="duckdb", owned=False)


def _spill_to_disk(connection: Any) -> None:
    """Let DuckDB hold :data:`MEMORY` at most, and the rest on disk, where there is a folder for it."""
    import duckdb

    from dpweave.engines.ddl import literal

    place = _spilled_rows()
    if place is not None:
        # A file that this process has open already has its folder, and cannot change it any more.
        with suppress(duckdb.Error):
            connection.execute(f"SET temp_directory = {literal(str(place))}")
        connection.execute(f"SET memory_limit = '{MEMORY}'")


@cache
def _spilled_rows() -> Path | None:
    """Make a folder that nobody else may look into. It is gone when this process ends; what a killed one leaves is
    removed by the next.
    """
    places = ExitStack()
    atexit.register(places.close)
    try:
        return places.enter_context(workplace(None, prefix=SPILLED))
    except OSError:  # where nothing can be written, memory is all there is
        return None


def memory() -> Any:
    """Return an Ibis connection to an empty DuckDB in memory."""
    import duckdb
    import ibis

    return ibis.duckdb.from_connection(duckdb.connect())


def reason(error: Exception) -> str | None:
    """Name the kinds of DuckDB errors that a user can do something about."""
    import duckdb

    if isinstance(error, duckdb.IOException) and "no space left" in str(error).lower():
        return "the folder for temporary files (TMPDIR) is full"
    if isinstance(error, duckdb.IOException):
        return "another program has it open for writing" if "lock" in str(error).lower() else "the file cannot be read"
    if isinstance(error, duckdb.OutOfMemoryException):
        return "the query ran out of memory, or of room in the folder for temporary files (TMPDIR)"
    if isinstance(error, duckdb.CatalogException):
        return "a table or column is no longer there"
    if isinstance(error, duckdb.InvalidInputException) and str(error).startswith("Invalid Input Error: CSV Error"):
        return (
            "a CSV file has a line that does not fit its header: too many or too few fields, a quote that is never"
            " closed, or bytes that are not UTF-8; mend the file"
        )
    return None
