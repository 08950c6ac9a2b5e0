"""Tables that stay where they are: whoever reads one gets it in batches, and nothing is held in between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from dpweave.engines.spill import Spool
from dpweave.engines.staging import workplace
from dpweave.errors import TargetError
from dpweave.schema.arrow_types import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from dpweave.engines.source_base import Source
    from dpweave.schema.database import Database


class StoredTables(Mapping[str, Any]):
    """The tables of an open source. Each look-up reads, so rows need not come in the same order twice."""

    def __init__(self, source: Source, database: Database) -> None:
        self._source, self._database = source, database

    def __getitem__(self, name: str) -> pa.Table:
        return self._source.whole(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._database.names)

    def __len__(self) -> int:
        return len(self._database.names)

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """Return all rows of a table in batches."""
        return self._source.read(name)

    def some_columns(self, name: str, columns: Sequence[str]) -> pa.Table:
        """Return some columns of a table, whole."""
        import pyarrow as pa

        schema = arrow_schema(self._database[name])
        return pa.Table.from_batches(
            self._source.read(name, columns), schema=pa.schema([schema.field(c) for c in columns])
        )


class SpooledTables(Mapping[str, Any]):
    """Tables in temporary files, read once from a source. A look-up maps the file: what is not looked at takes no
    memory, and rows come in the same order each time.
    """

    def __init__(self, spools: Mapping[str, Spool]) -> None:
        self._spools = spools

    def __getitem__(self, name: str) -> pa.Table:
        return self._spools[name].mapped()

    def __iter__(self) -> Iterator[str]:
        return iter(self._spools)

    def __len__(self) -> int:
        return len(self._spools)

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """Return all rows of a table in batches."""
        return iter(self._spools[name])


@contextmanager
def spooled(source: Source, database: Database) -> Iterator[SpooledTables]:
    """Copy tables that anybody may see, such as those of a synthetic database, into temporary files for a while."""
    import pyarrow as pa

    with ExitStack() as stack:
        spools = {}
        try:
            folder = stack.enter_context(workplace(None, prefix=".dpweave-read-"))
            for place, table in enumerate(database):
                path, rows = folder / f"{place}.arrow", 0
                with pa.ipc.new_stream(str(path), arrow_schema(table)) as writer:
                    for batch in source.read(table.name):
                        writer.write_batch(batch)
                        rows += batch.num_rows
                spools[table.name] = Spool((path,), rows)
        except OSError as error:
            raise TargetError(f"there is no room for temporary files: {error.strerror or 'disk full'}") from None
        yield SpooledTables(spools)
