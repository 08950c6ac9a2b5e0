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
    """The rows of one table in a file. Iterating reads batches, one at a time and as often as asked."""

    path: Path
    num_rows: int

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(str(self.path)) as file, pa.ipc.open_stream(file) as reader:
            yield from reader

    def mapped(self) -> pa.Table:
        """The rows as a table over the mapped file, which stays mapped as long as the table is held."""
        with pa.memory_map(str(self.path)) as file, pa.ipc.open_stream(file) as reader:
            return reader.read_all()


@contextmanager
def spilled(
    database: Database,
    parts: Iterable[Mapping[str, pa.Table]],
    *,
    beside: str | Path,
    count: int,
    progress: Callable[[str, float], None] | None = None,
) -> Iterator[dict[str, Spool]]:
    """Write ``parts`` table by table into a folder beside a target, or in the temporary folder if that is no file.

    The folder is gone when the block ends, however it ends.
    """
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(workplace(_place(beside), prefix=".dpweave-"))
        except OSError as error:
            raise TargetError(f"there is no room beside the target for what is woven: {error.strerror}") from None
        yield _spill(database, parts, folder, count, progress or (lambda _name, _share: None))


def _spill(
    database: Database,
    parts: Iterable[Mapping[str, pa.Table]],
    folder: Path,
    count: int,
    progress: Callable[[str, float], None],
) -> dict[str, Spool]:
    paths = {name: folder / f"{place}.arrow" for place, name in enumerate(database.names)}
    schemas = {t.name: arrow_schema(t) for t in database}
    rows = dict.fromkeys(database.names, 0)
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    try:
        with ExitStack() as stack:
            writers = {
                name: stack.enter_context(pa.ipc.new_stream(str(path), schemas[name], options=options))
                for name, path in paths.items()
            }
            done = 0
            progress("weaving", 0.0)
            for part in parts:  # enumerate() would hold on to a part while the next one is made, and so would the name
                for name in part:
                    rows[name] += part[name].num_rows
                    writers[name].write_table(part[name].cast(schemas[name]), max_chunksize=BATCH_ROWS)
                del part
                done += 1  # noqa: SIM113
                progress("weaving", done / count)
    except OSError as error:
        raise TargetError(f"what is woven cannot be kept beside the target: {error.strerror or 'disk full'}") from None
    return {name: Spool(path, rows[name]) for name, path in paths.items()}


def _place(target: str | Path) -> Path | None:
    if isinstance(target, str) and "://" in target:
        return None
    return Path(target).expanduser().absolute().parent
