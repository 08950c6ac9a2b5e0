"""Parts of a database on their way to a writer that takes one table after the other: kept on disk, never in memory."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from dpweave.engines.staging import workplace
from dpweave.engines.stream import BATCH_ROWS
from dpweave.errors import TargetError
from dpweave.schema.arrow_types import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from dpweave.schema.database import Database


@dataclass(frozen=True)
class Spool:
    """The rows of one table in files, one after the other. Iterating reads batches, one at a time and as often as
    asked.
    """

    paths: tuple[Path, ...]
    num_rows: int

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for path in self.paths:
            with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
                yield from reader

    def mapped(self) -> pa.Table:
        """The rows as a table over the mapped files, which stay mapped as long as the table is held."""
        tables = []
        for path in self.paths:
            with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as reader:
                tables.append(reader.read_all())
        return pa.concat_tables(tables)


def keep_part(tables: Mapping[str, pa.Table | Spool], database: Database, folder: Path, index: int) -> dict[str, Spool]:
    """Write the rows of one part into files of a folder; what is in files already stays there."""
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    kept = {}
    try:
        for place, table in enumerate(database):
            rows = tables.get(table.name)
            if isinstance(rows, Spool):
                kept[table.name] = rows
            elif rows is not None:
                path, schema = folder / f"{place}-{index}.arrow", arrow_schema(table)
                with pa.ipc.new_stream(str(path), schema, options=options) as writer:
                    writer.write_table(rows.cast(schema), max_chunksize=BATCH_ROWS)
                kept[table.name] = Spool((path,), rows.num_rows)
    except OSError as error:
        raise TargetError(f"what is woven cannot be kept beside the target: {error.strerror or 'disk full'}") from None
    return kept


@contextmanager
def spilled(
    database: Database,
    parts: Callable[[Path], Iterable[Mapping[str, pa.Table | Spool]]],
    *,
    beside: str | Path | None,
    count: int,
    progress: Callable[[str, float], None] | None = None,
) -> Iterator[dict[str, Spool]]:
    """Write ``parts`` table by table into a folder beside a target, or in the temporary folder if that is no file.

    ``parts`` are told the folder, for files of their own. It is gone when the block ends, however it ends.
    """
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(workplace(_place(beside), prefix=".dpweave-"))
        except OSError as error:
            raise TargetError(f"there is no room beside the target for what is woven: {error.strerror}") from None
        yield _spill(database, parts(folder), folder, count, progress or (lambda _name, _share: None))


def _spill(
    database: Database,
    parts: Iterable[Mapping[str, pa.Table | Spool]],
    folder: Path,
    count: int,
    progress: Callable[[str, float], None],
) -> dict[str, Spool]:
    kept: dict[str, list[Spool]] = {name: [] for name in database.names}
    done = 0
    progress("weaving", 0.0)
    for part in parts:  # enumerate() would hold on to a part while the next one is made, and so would the name
        for name, rows in keep_part(part, database, folder, done).items():
            kept[name].append(rows)
        del part
        done += 1  # noqa: SIM113
        progress("weaving", done / count)
    return {
        name: Spool(tuple(path for rows in found for path in rows.paths), sum(rows.num_rows for rows in found))
        for name, found in kept.items()
    }


def _place(target: str | Path | None) -> Path | None:
    if target is None or (isinstance(target, str) and "://" in target):
        return None
    return Path(target).expanduser().absolute().parent
