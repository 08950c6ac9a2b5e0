"""Folders of Parquet or CSV files, with a Frictionless data package that keeps types and keys."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa

from dpweave.engines.folder.data_package import PACKAGE_FILE, package_of
from dpweave.engines.staging import staged

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dpweave.engines.stream import Stream
    from dpweave.schema.database import Database


def write_folder(database: Database, streams: Mapping[str, Stream], target: Path, *, format: str) -> None:  # noqa: A002
    """Write one file per table; its name is the table's, with characters that file systems refuse percent-encoded."""
    write_file = _write_parquet if format == "parquet" else _write_csv
    with staged(target) as draft:
        draft.mkdir()
        files = {}
        for table in database:
            files[table.name] = f"{quote(table.name, safe=' ,;+()[]{}!@#$&=~^')}.{format}"
            write_file(streams[table.name], draft / files[table.name])
        package = json.dumps(package_of(database, files=files, format=format), indent=2, ensure_ascii=False)
        (draft / PACKAGE_FILE).write_text(f"{package}\n", encoding="utf-8")


def _write_parquet(stream: Stream, path: Path) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, stream.schema, compression="zstd") as writer:
        for batch in stream:
            writer.write_batch(batch)


def _write_csv(stream: Stream, path: Path) -> None:
    """Write RFC 4180 with a header; null is an empty field, empty text is ``""``, bytes are base64."""
    import pyarrow.csv

    written = pa.schema(
        [pa.field(f.name, pa.string() if pa.types.is_binary(f.type) else f.type) for f in stream.schema]
    )
    with pyarrow.csv.CSVWriter(path, written) as writer:
        for batch in stream:
            columns = [_text_of_bytes(a) if pa.types.is_binary(a.type) else a for a in batch.columns]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=written))


def _text_of_bytes(array: Any) -> Any:
    return pa.array([None if v is None else base64.b64encode(v).decode() for v in array.to_pylist()], pa.string())
