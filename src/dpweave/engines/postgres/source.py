"""PostgreSQL: counts run on the server, in a session that cannot write."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import TYPE_CHECKING, Any, final

from dpweave.engines.postgres.catalogue import left_out_by_postgres, reflect_postgres
from dpweave.engines.postgres.connection import connect, label, reason
from dpweave.engines.source_base import (
    AS_TEXT,
    BATCH_ROWS,
    Source,
    batches_of_rows,
    database_table,
    ibis_type,
    raw_schema,
)
from dpweave.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import ibis
    import pyarrow as pa

    from dpweave.schema.database import Database, Table, Type

_NUMBERS = {"integer", "float", "decimal"}
_PROOF = """
SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_index x ON x.indrelid = c.oid
WHERE n.nspname = %s AND c.relname = %s AND c.relkind = 'r' AND NOT c.relhassubclass
  AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid)
  AND x.indisprimary AND x.indisunique AND x.indimmediate AND x.indisvalid AND x.indisready AND x.indislive
  AND NOT x.indisexclusion AND x.indpred IS NULL AND x.indexprs IS NULL
"""
"""Counts the primary keys that are proven for a table. One that may be deferred is not: a session sees its own rows."""


_BYTEWISE = '::text COLLATE "C"'
"""Texts as they are compared. Trailing blanks mean nothing in bpchar, and its values that are equal may differ in them:
as text all of them are without.
"""
_COLLATED = """
SELECT a.attname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped
  AND (a.attcollation NOT IN (0, '"default"'::regcollation) OR (a.atttypid = 'bpchar'::regtype AND a.atttypmod < 0)
    OR EXISTS (SELECT FROM pg_type t WHERE t.oid = a.atttypid AND t.typtype = 'd' AND t.typcategory = 'S'))
"""

_RELATED = """
WITH RECURSIVE up AS (
  SELECT inhrelid AS child, inhparent AS parent FROM pg_inherits
  UNION SELECT up.child, i.inhparent FROM up JOIN pg_inherits i ON i.inhrelid = up.parent
)
SELECT n.nspname, c.relname, m.nspname, p.relname FROM up
JOIN pg_class c ON c.oid = up.child JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class p ON p.oid = up.parent JOIN pg_namespace m ON m.oid = p.relnamespace WHERE c.relkind IN ('r', 'p', 'f')
"""
"""Tables with all that they inherit from."""


@final
class PostgresSource(Source):
    """Tables of a PostgreSQL connection. Every statement sees one instant (repeatable read) and may not write."""

    embedded = False
    declares_keys = True

    def __init__(
        self,
        connection: Any,
        *,
        name: str,
        owned: bool = True,
        schema: str | None = None,
        views: Collection[str] = (),
    ) -> None:
        super().__init__(connection, name=name, owned=owned)
        self._schema, self.views = schema, frozenset(views)
        with self.masked("the session cannot be set up"):
            if self._one("SHOW server_encoding") == "SQL_ASCII":
                raise SourceError(
                    f"{name}: the database is encoded as SQL_ASCII, so that a text may hold bytes of any encoding and"
                    " reading it could fail after the budget is spent; copy it into a database encoded as UTF8"
                )
            self.can_materialise = owned and self._one("SELECT has_database_privilege(current_database(), 'TEMP')")

    def hash(self, expression: ibis.expr.types.StringValue) -> ibis.expr.types.IntegerValue:
        """``hashtextextended``."""
        return expression.hash()

    def _disconnect(self) -> None:
        self.connection.con.close()

    def _drop_temporary(self, name: str) -> None:
        self.connection.con.execute(f'DROP TABLE "{name}"')

    def _one(self, query: str, *arguments: Any) -> Any:
        row = self.connection.con.execute(query, arguments or None).fetchone()
        return row[0] if row else None

    def _reflect(self) -> Database:
        return reflect_postgres(self.connection.con, schema=self._schema, views=self.views)

    def _not_copied(self) -> tuple[str, ...]:
        return left_out_by_postgres(self.connection.con, schema=self._schema, views=self.views)

    def _engine_table(self, name: str) -> Table:
        return self.catalogue[name]

    def _with_lookups(self, expression: ibis.Table) -> ibis.Table:
        """Write small in-memory tables as ``VALUES``: Ibis would create tables for them, which a reader may not."""
        import ibis.expr.operations as ops

        spelled = {
            node: ops.SQLQueryResult(_values(node.data.to_pyarrow(node.schema)), node.schema, self.connection)
            for node in expression.op().find(ops.InMemoryTable)
        }
        return expression.op().replace(spelled).to_expr() if spelled else expression

    def _is_view(self, name: str) -> bool:
        query = (
            "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relkind IN ('v', 'm') AND (c.relname = %s OR n.nspname || '.' || c.relname = %s)"
        )
        return bool(self._one(query, name, name))

    def _proves_primary_key(self, stored: Table) -> bool:
        """Whether the key's index is valid, is checked at once, and covers all rows that a query gives.

        It covers none of the rows of tables that inherit from this one, which a query
        gives as well. Keys of partitioned tables are checked by us too.
        """
        with self.masked("its catalogue cannot be read"):
            return bool(self._one(_PROOF, self._namespace(stored), stored.bare_name))

    def _namespace(self, table: Table) -> str:
        return table.namespace or str(self._one("SELECT current_schema()"))

    def _require_apart(self, tables: list[Table]) -> None:
        with self.masked("its catalogue cannot be read"):
            named = {(self._namespace(t), t.bare_name): t.name for t in tables}
            related = self.connection.con.execute(_RELATED).fetchall()
        for child, parent in ((named.get((a, b)), named.get((c, d))) for a, b, c, d in related):
            if child and parent:
                raise SourceError(
                    f"table {child!r} of {self.name} inherits from {parent!r}, so that its rows are rows of both; leave"
                    " one of the two out of the plan"
                )

    def _require_readable(self, table: Table) -> None:
        with self.masked("its privileges cannot be read"):
            readable = self._one(
                "SELECT has_table_privilege(format('%%I.%%I', %s::text, %s::text), 'SELECT')",
                self._namespace(table),
                table.bare_name,
            )
        if not readable:
            raise SourceError(f"permission to read table {table.name!r} of {self.name} is denied; grant SELECT on it")

    def _raw(self, stored: Table, declared: Table) -> ibis.Table:  # noqa: ARG002
        # A time with a zone compares with no plain one, and an oid with no number below 0.
        schema = raw_schema(stored, loose=frozenset({"time", "integer"}))
        collated = self._collated(stored)
        if not collated:
            return database_table(self.connection, stored.bare_name, schema, namespace=stored.namespace)
        return self._bytewise(stored, collated, schema)

    def _collated(self, stored: Table) -> set[str]:
        """Names of the columns whose texts may be equal and yet differ: by a collation of their own, or by blanks."""
        with self.masked("its catalogue cannot be read"):
            found = self.connection.con.execute(_COLLATED, (self._namespace(stored), stored.bare_name)).fetchall()
        return {name for (name,) in found}

    def _bytewise(self, stored: Table, collated: set[str], schema: Any) -> ibis.Table:
        """Return the table with these columns compared byte by byte.

        Two collations cannot be hashed together, and by some of them different texts are equal.
        """
        import ibis.expr.operations as ops

        from dpweave.engines.ddl import quoted

        columns = (f"{quoted(c.name)}{_BYTEWISE * (c.name in collated)}" for c in stored.columns)
        listed = ", ".join(f"{read} AS {quoted(c.name)}" for read, c in zip(columns, stored.columns, strict=True))
        query = f"SELECT {listed} FROM {quoted(self._namespace(stored))}.{quoted(stored.bare_name)}"  # noqa: S608 - quoted
        return ops.SQLQueryResult(query, schema, self.connection).to_expr()

    def _typed(self, column: Any, stored: Type, declared: Type, *, verbatim: bool) -> Any:  # noqa: ARG002
        if stored.kind in AS_TEXT:
            column = column.cast("string")
        wanted = ibis_type(declared)
        if column.type() == wanted:
            return column
        if stored.kind == "decimal" and declared.kind == "float":
            return _float(column)
        if {stored.kind, declared.kind} <= {"date", "timestamp"}:
            return _moment(column, wanted)
        return column.cast(wanted)

    def _can_cast(self, stored: Type, declared: Type) -> bool:
        """PostgreSQL stops at the first value that a cast refuses, so only casts that refuse none are allowed."""
        if ibis_type(stored) == ibis_type(declared) or declared.kind in {"text", *AS_TEXT}:
            return True
        return {stored.kind, declared.kind} <= {"date", "timestamp"} or (
            stored.kind in _NUMBERS and declared.kind == "float" and declared.bits == 64
        )

    def _run(self, query: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        connection = self.connection.con
        with (
            connection.transaction(),
            connection.cursor(name="dpweave") as cursor,
        ):  # on the server: memory stays bounded
            cursor.itersize = BATCH_ROWS
            cursor.execute(query)
            yield from batches_of_rows(cursor, schema)

    def _create_temporary(self, name: str, query: str) -> None:
        connection = self.connection.con
        with connection.transaction():
            connection.execute("SET TRANSACTION READ WRITE")
            connection.execute(f'CREATE TEMPORARY TABLE "{name}" AS {query}')
            connection.execute(f'ANALYZE "{name}"')

    def _reason(self, error: Exception) -> str | None:
        return reason(error)


def _float(column: Any) -> Any:
    """Cast a numeric, which may have more digits than any float: null beyond the largest (and for NaN), 0 next to 0."""
    import ibis

    column = column.cast("decimal")
    ends = (ibis.literal(decimal.Decimal(end), column.type()) for end in ("1e-300", "1e308"))
    tiny, huge = (column.abs() < end for end in ends)
    return ibis.cases((tiny, ibis.literal(0.0)), (huge, column.cast("float64")))


def _moment(column: Any, wanted: Any) -> Any:
    """Cast between dates and times within the years that both have; null elsewhere."""
    import ibis

    first, last = (ibis.literal(end, column.type()) for end in (dt.datetime.min, dt.datetime.max))
    return ibis.cases((column.between(first, last), column.cast(wanted)))


def _values(table: pa.Table) -> str:
    """Return a query that yields the rows of a small table, every value written as text and cast."""
    from dpweave.engines.ddl import literal, quoted
    from dpweave.engines.postgres.types import postgres_type
    from dpweave.schema.arrow_types import type_of_arrow
    from dpweave.schema.database import Column

    texts = [[None if v is None else str(v) for v in c.to_pylist()] for c in table.columns]
    rows = ", ".join(
        "(" + ", ".join("NULL" if v is None else literal(v) for v in row) + ")" for row in zip(*texts, strict=True)
    )
    kinds = [type_of_arrow(f.type) for f in table.schema]
    columns = ", ".join(
        f"CAST({quoted(f'v{i}')} AS {postgres_type(Column(f.name, t), t)}) AS {quoted(f.name)}"
        for i, (f, t) in enumerate(zip(table.schema, kinds, strict=True))
    )
    held = ", ".join(quoted(f"v{i}") for i in range(len(kinds)))
    return f"SELECT {columns} FROM (VALUES {rows}) AS v ({held})"  # noqa: S608 - quoted above


def open_postgres(url: str, *, schema: str | None = None, views: Collection[str] = ()) -> PostgresSource:
    """Connect to a ``postgresql://`` URL; ``schema`` is then the only one."""
    import ibis

    from dpweave.engines.ddl import quoted

    connection = connect(url, error=SourceError)
    shown = label(url)
    if schema is not None:
        shown = f"{shown}?schema={schema}"
        found = connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()
        if not found[0]:
            connection.close()
            raise SourceError(f"{label(url)} has no schema {schema!r}")
        connection.execute("SELECT set_config('search_path', %s, false)", (quoted(schema),))
    connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    for name, loader in _total_loaders().items():
        connection.adapters.register_loader(name, loader)
    try:
        return PostgresSource(ibis.postgres.from_connection(connection), name=shown, schema=schema, views=views)
    except SourceError:
        connection.close()
        raise


def wrap_postgres(connection: Any) -> PostgresSource:
    """Use a live Ibis connection to PostgreSQL."""
    return PostgresSource(connection, name="postgresql", owned=False)


def _total_loaders() -> dict[str, Any]:
    """Read dates that Python cannot hold (infinity, BC, past the year 9999, 24 o'clock)
    as null instead of failing on them.
    """
    from psycopg import DataError
    from psycopg.types import datetime as loaders

    def total(base: Any) -> Any:
        class Total(base):  # type: ignore[misc]
            def load(self, data: Any) -> Any:
                try:
                    return super().load(data)
                except DataError:
                    return None

        return Total

    return {
        "time": total(loaders.TimeLoader),
        "date": total(loaders.DateLoader),
        "timestamp": total(loaders.TimestampLoader),
        "timestamptz": total(loaders.TimestamptzLoader),
    }
