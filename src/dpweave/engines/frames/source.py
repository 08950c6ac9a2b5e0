"""Data frames as a source: pandas, polars, pyarrow, or anything else that exports Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpweave.engines.duckdb.source import DuckDBSource, memory, twin
from dpweave.engines.source_base import ROW
from dpweave.errors import SourceError
from dpweave.schema.arrow_types import type_of_arrow
from dpweave.schema.database import Column, Database, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


def open_frames(frames: Mapping[Any, Any]) -> DuckDBSource:
    """Lay an in-memory DuckDB over the frames, without copying them. Keys come from the plan."""
    import duckdb
    import numpy as np
    import pyarrow as pa

    connection = memory()
    tables: list[Table] = []
    numbered: set[str] = set()
    for name, frame in frames.items():
        if not isinstance(name, str) or not name:
            raise SourceError("every data frame needs a table name that is a non-empty text")
        table = as_arrow(frame, name=name)
        refuse_twins(table.column_names, of=f"columns of {name!r}")
        tables.append(Table(name, tuple(Column(f.name, type_of_arrow(f.type)) for f in table.schema)))
        readable = _readable(table)
        try:
            connection.con.register(name, readable)
        except (duckdb.Error, pa.ArrowException):
            kinds = ", ".join(sorted({str(f.type) for f in table.schema}))
            raise SourceError(
                f"table {name!r} cannot be read: DuckDB does not take a type, or the name, of one of its columns"
                f" ({kinds}); give it common types"
            ) from None
        if ROW not in (c.lower() for c in table.column_names):
            connection.con.register(twin(name), readable.append_column(ROW, [np.arange(table.num_rows)]))
            numbered.add(name)
    refuse_twins([t.name for t in tables], of="tables")
    database = Database(tuple(tables))
    return DuckDBSource(
        connection, name="data frames", schema=database, numbered=frozenset(numbered), declares_keys=False
    )


def as_arrow(frame: Any, *, name: str) -> pa.Table:
    """Return the frame as an Arrow table; what Arrow says of a column it cannot take quotes values and stays here."""
    import pyarrow as pa

    is_pandas = type(frame).__module__.split(".")[0] == "pandas"
    if not (is_pandas or hasattr(frame, "__arrow_c_stream__")):
        raise SourceError(
            f"table {name!r} is a {type(frame).__name__}, which Arrow cannot read; give pandas, polars or pyarrow"
        )
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False) if is_pandas else pa.table(frame)
        table.validate(full=True)  # a text that is not UTF-8 would stop a query
    except Exception:  # noqa: BLE001 - from whichever library made the frame
        column = _culprit(frame) if is_pandas else None
        what = f"column {column!r} of {name!r}" if column is not None else f"table {name!r}"
        raise SourceError(
            f"{what} holds values of several types, of one that Arrow cannot take, or texts that are not UTF-8; "
            "give it a single type"
        ) from None
    return table


def refuse_twins(names: list[str], *, of: str) -> None:
    """Refuse names that come twice, or differ in case only: the engine underneath takes them for one."""
    seen: dict[str, str] = {}
    for name in names:
        twin = seen.get(name.lower())
        if twin is not None:
            raise SourceError(f"two {of} are named {twin!r} and {name!r}, which SQL takes for one; rename one of them")
        seen[name.lower()] = name


def _readable(table: pa.Table) -> pa.Table:
    """Replace column types that DuckDB does not scan by the nearest that it does."""
    import pyarrow as pa

    def plain(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_null(kind):
            return pa.string()
        if pa.types.is_float16(kind):
            return pa.float32()
        return kind

    wanted = pa.schema([pa.field(f.name, plain(f.type)) for f in table.schema])
    return table if wanted.types == table.schema.types else table.cast(wanted)


def _culprit(frame: Any) -> str | None:
    import pyarrow as pa

    for name in frame.columns:
        try:
            pa.Array.from_pandas(frame[name])
        except Exception:  # noqa: BLE001 - the search for the column that fails
            return str(name)
    return None
