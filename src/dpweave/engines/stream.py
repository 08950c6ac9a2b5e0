"""A table on its way into a target: record batches in the types of the model, each seen once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import pyarrow as pa

from dpweave.errors import TargetError
from dpweave.schema.arrow_types import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from dpweave.schema.database import Table

BATCH_ROWS = 65_536


@runtime_checkable
class Batched(Protocol):
    """Tables that can be read in batches."""

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """Return all rows of a table in batches."""
        ...


def batches_of(tables: Mapping[str, pa.Table], name: str) -> Iterator[pa.RecordBatch]:
    """Return the rows of a table in batches, whether or not the tables are in memory."""
    if isinstance(tables, Batched):
        return tables.batches(name)
    return iter(tables[name].to_batches(max_chunksize=BATCH_ROWS))


class Stream:
    """The rows of one table. Iterating yields batches; an error in whoever makes them is kept in ``failure``."""

    def __init__(
        self, table: Table, rows: pa.Table | Iterable[pa.RecordBatch], progress: Callable[[str, float], None] | None
    ) -> None:
        self.table = table
        self.schema = arrow_schema(table)
        self.failure: BaseException | None = None
        self._total: int | None = getattr(rows, "num_rows", None)
        self._batches = rows.to_batches(max_chunksize=BATCH_ROWS) if isinstance(rows, pa.Table) else rows
        self._progress = progress or (lambda _name, _share: None)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        done = 0
        self._progress(self.table.name, 0.0)
        try:
            for batch in self._batches:
                done += batch.num_rows
                if batch.num_rows:
                    yield self._conformed(batch)
                if self._total:
                    self._progress(self.table.name, min(done / self._total, 1.0))
        except GeneratorExit:
            raise
        except BaseException as error:
            self.failure = error
            raise
        self._progress(self.table.name, 1.0)

    def _conformed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if set(batch.schema.names) != set(self.schema.names):
            raise TargetError(
                f"rows of {self.table.name!r} have the columns {', '.join(batch.schema.names)} "
                f"where the schema has {', '.join(self.schema.names)}"
            )
        arrays = []
        for field in self.schema:
            array = batch.column(field.name)
            try:
                arrays.append(_plain(array).cast(field.type))
            except (pa.ArrowException, NotImplementedError):
                raise TargetError(
                    f"column {field.name!r} of {self.table.name!r} is {array.type} and does not fit {field.type}"
                ) from None
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _plain(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode()
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        import json

        return pa.array([None if v is None else json.dumps(v, default=str) for v in array.to_pylist()], pa.string())
    return array
