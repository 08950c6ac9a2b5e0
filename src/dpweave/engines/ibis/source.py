"""Any other engine that Ibis speaks: Spark, BigQuery, Snowflake, Trino and more, through a live connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from dpweave.engines.duckdb.source import cast_batches
from dpweave.engines.ibis.catalogue import reflect_columns
from dpweave.engines.source_base import Source, ibis_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    import ibis
    import pyarrow as pa

    from dpweave.schema.database import Database, Table, Type

_TEXT_LIKE = ("uuid", "json", "array", "map", "struct", "interval", "unknown")


@final
class IbisSource(Source):
    """Tables behind an Ibis connection. Its catalogue has no keys to speak of, so they come from the plan."""

    embedded = False
    sums_units = False  # Spark did not end within minutes on a made-up shop
    declares_keys = False

    def __init__(self, connection: Any, *, name: str) -> None:
        super().__init__(connection, name=name, owned=False)
        self.can_materialise = connection.name == "pyspark"

    def hash(self, expression: ibis.expr.types.StringValue) -> ibis.expr.types.IntegerValue:
        """See :func:`hashed`."""
        return hashed(expression, self.connection.name)

    def _disconnect(self) -> None:
        self.connection.disconnect()

    def _drop_temporary(self, name: str) -> None:
        session = self.connection._session
        session.table(name).unpersist()
        session.catalog.dropTempView(name)

    def _reflect(self) -> Database:
        return reflect_columns(self.connection)

    def _engine_table(self, name: str) -> Table:
        return self.catalogue[name]

    def _with_lookups(self, expression: ibis.Table) -> ibis.Table:
        return expression

    def _is_view(self, name: str) -> bool:
        return name in self.connection.list_tables()

    def _proves_primary_key(self, stored: Table) -> bool:  # noqa: ARG002
        return False

    def _require_readable(self, table: Table) -> None:
        pass

    def _raw(self, stored: Table, declared: Table) -> ibis.Table:  # noqa: ARG002
        return self.connection.table(stored.name)

    def _typed(self, column: Any, stored: Type, declared: Type, *, verbatim: bool) -> Any:  # noqa: ARG002
        if any(getattr(column.type(), f"is_{kind}")() for kind in _TEXT_LIKE):
            column = column.cast("string")
        wanted = ibis_type(declared)
        return column if column.type().copy(nullable=True) == wanted else column.try_cast(wanted)

    def _can_cast(self, stored: Type, declared: Type) -> bool:  # noqa: ARG002
        return True

    def _run(self, query: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        session = getattr(self.connection, "_session", None)
        if session is not None:
            return cast_batches(session.sql(query).toArrow().to_batches(), schema)
        return cast_batches(self.connection.sql(query).to_pyarrow_batches(), schema)

    def _create_temporary(self, name: str, query: str) -> None:
        """Cache in the cluster's memory and disk, under a temporary view; the driver holds nothing."""
        frame = self.connection._session.sql(query)
        frame.persist()
        frame.createOrReplaceTempView(name)

    def _reason(self, error: Exception) -> str | None:
        if self.connection.name != "pyspark":
            return None
        kind = type(error).__name__  # its text may quote values
        return f"a job of Spark failed, as where executors are lost or memory or disks are full; see its log ({kind})"


def wrap_connection(connection: Any) -> IbisSource:
    """Use a live Ibis connection."""
    return IbisSource(connection, name=connection.name)


def hashed(text: Any, engine: str) -> Any:
    """64 bits of a text: on Spark, whose own ``hash`` has 32, and on Trino, for which Ibis has none, by functions that
    these engines have; elsewhere what Ibis offers.
    """
    if engine not in ("pyspark", "databricks", "trino"):
        return text.hash()
    import ibis.expr.datatypes as dt
    from ibis import udf

    def xxhash64(_: Any) -> Any: ...
    def to_utf8(_: str) -> Any: ...
    def from_big_endian_64(_: Any) -> int: ...  # type: ignore[empty-body]

    if engine != "trino":
        xxhash64.__annotations__.update({"_": dt.string, "return": dt.int64})
        return udf.scalar.builtin(xxhash64)(text)
    xxhash64.__annotations__.update({"_": dt.binary, "return": dt.binary})
    to_utf8.__annotations__.update({"_": dt.string, "return": dt.binary})
    from_big_endian_64.__annotations__.update({"_": dt.binary, "return": dt.int64})
    bits = udf.scalar.builtin(xxhash64)(udf.scalar.builtin(to_utf8)(text))
    return udf.scalar.builtin(from_big_endian_64)(bits)
