"""The synthetic database: a mapping from table names to Arrow tables, and ways to write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

    from dpweave.schema.model import Database


@dataclass(frozen=True)
class SyntheticDatabase(Mapping[str, Any]):
    """Tables by name, with the schema of the original."""

    schema: Database
    tables: Mapping[str, pa.Table]
    repairs: Mapping[str, int] = field(default_factory=dict)
    """How many rows had to change so that each declared rule holds."""

    def __getitem__(self, name: str) -> pa.Table:
        return self.tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def to_pandas(self) -> dict[str, Any]:
        """Return the tables as pandas data frames."""
        return {name: table.to_pandas() for name, table in self.tables.items()}

    def write(
        self, target: str | Path, *, overwrite: bool = False, progress: Callable[[str, float], None] | None = None
    ) -> None:
        """Write a whole database, or nothing: ``.duckdb``, ``.sqlite``, ``postgresql://…``, or a folder."""
        from dpweave.sinks import write

        write(self.schema, self.tables, target, overwrite=overwrite, progress=progress)
