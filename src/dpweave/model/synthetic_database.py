"""The synthetic database: a mapping from table names to Arrow tables, and ways to write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dpweave.engines.stream import batches_of
from dpweave.weaving.parts import Parts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

    from dpweave.schema.database import Database


@dataclass(frozen=True)
class SyntheticDatabase(Mapping[str, Any]):
    """Tables by name, with the schema of the original.

    A large one consists of parts that are woven when they are needed: :meth:`write` never holds more than one of them,
    while asking for a table puts all tables into memory.
    """

    schema: Database
    tables: Mapping[str, pa.Table]
    repairs: Mapping[str, int] = field(default_factory=dict)
    """How many rows had to change so that each declared rule holds; empty until all parts are woven."""

    def __getitem__(self, name: str) -> pa.Table:
        return self.tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """Return the rows of a table in batches."""
        return batches_of(self.tables, name)

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows of each table."""
        if isinstance(self.tables, Parts) and self.tables.rows:
            return dict(self.tables.rows)
        return {name: table.num_rows for name, table in self.tables.items()}

    def to_pandas(self) -> dict[str, Any]:
        """Return the tables as pandas data frames."""
        return {name: table.to_pandas() for name, table in self.tables.items()}

    def write(
        self, target: str | Path, *, overwrite: bool = False, progress: Callable[[str, float], None] | None = None
    ) -> None:
        """Write all or nothing: ``.duckdb``, ``.sqlite``, ``postgresql://…``, ``mysql://…``, or a folder."""
        from dpweave.engines.writing import require_free, write

        if not isinstance(self.tables, Parts):
            write(self.schema, self.tables, target, overwrite=overwrite, progress=progress)
            return
        from dpweave.engines.spill import spilled

        require_free(target, overwrite=overwrite)
        parts, count = self.tables.stream, self.tables.count
        with spilled(self.schema, parts, beside=target, count=count, progress=progress) as streams:
            write(self.schema, streams, target, overwrite=overwrite, progress=progress)
