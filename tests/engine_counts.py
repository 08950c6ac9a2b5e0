"""Worlds of the oracle laid into real engines, and real engines' answers back in the oracle's form."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dpweave.engines.opening import open_source
from dpweave.privacy.bounding import Bounding
from dpweave.privacy.counts import Counts
from dpweave.schema.codec import Codec
from dpweave.schema.database import Column, Type
from dpweave.schema.domain import Bins, Categories, newcomer, parse_degree, presence, repetition
from tests.oracle import CAP, NOWHERE, Rows, World, keys_of

if TYPE_CHECKING:
    from pathlib import Path

    from dpweave.engines.source_base import Source
    from dpweave.privacy.promise import Promise
    from dpweave.schema.domain import View


def frames(rows: Rows, promise: Promise) -> dict[str, pa.Table]:
    """Arrow tables with a column ``id`` and one for every value and key."""
    made = {}
    for table in promise.database:
        found = [{"id": i} | r for i, r in rows[table.name].items()]
        columns = {c.name: pa.array([r[c.name] for r in found], pa.int64()) for c in table.columns}
        made[table.name] = pa.table(columns)
    return made


def open_frames(rows: Rows, promise: Promise) -> Source:
    """DuckDB over data frames, with the promise's keys."""
    source = open_source(frames(rows, promise))
    source.declare(promise.database)
    return source


def open_sqlite(rows: Rows, promise: Promise, path: Path) -> Source:
    """A SQLite file with declared primary keys."""
    connection = sqlite3.connect(path)
    for table in promise.database:
        names = [c.name for c in table.columns]
        typed = ", ".join(f'"{n}" INTEGER{" PRIMARY KEY" if n == "id" else ""}' for n in names)
        connection.execute(f'CREATE TABLE "{table.name}" ({typed})')
        marks = ", ".join("?" for _ in names)
        content = [tuple(({"id": i} | r)[n] for n in names) for i, r in rows[table.name].items()]
        connection.executemany(f'INSERT INTO "{table.name}" VALUES ({marks})', content)
    connection.commit()
    connection.close()
    source = open_source(path)
    source.declare(promise.database)
    return source


def codec_of(world: World, column: str) -> Codec:
    """Codes of a value column are its values; degrees are told apart up to ``CAP``."""
    if parse_degree(column):
        return Codec(Column(column, Type("integer"), nullable=False), Bins(tuple(range(CAP + 2))))
    return Codec(Column(column, Type("integer"), nullable=False), Categories(tuple(range(world.size))))


def engine_counts(source: Source, world: World, *, salt: str) -> tuple[Counts, Bounding]:
    """Counts over a source, with every value and degree column coded."""
    bounding = Bounding(source, world.promise, salt=salt)
    counts = Counts(bounding)
    for table in world.promise.database:
        for key in table.foreign_keys:
            for name in (presence(key.name), repetition(key.name)):
                codec = Codec(Column(name, Type("boolean"), nullable=False), Categories((False, True)))
                counts.set_codec(table.name, name, codec)
            if key.target in world.promise.public and (keys := counts.public_keys(key)):
                codec = Codec(Column(newcomer(key.name), Type("integer"), nullable=False), Categories(keys))
                counts.set_codec(table.name, newcomer(key.name), codec)
        for column in world.values[table.name]:
            counts.set_codec(table.name, column, codec_of(world, column))
        for child in world.promise.database:
            for key, target in keys_of(world.promise, child.name).items():
                if target == table.name:
                    name = f"#{child.name}.{key}"
                    counts.set_codec(table.name, name, codec_of(world, name))
    return counts, bounding


def engine_order(bounding: Bounding, rows: Rows) -> dict[tuple[str, int], float]:
    """The engine's own order of rows: by the hash of the key, then by the key."""
    order: dict[tuple[str, int], float] = {}
    for name in rows:
        table = bounding.promise.database[name]
        raw = bounding.raw(name)
        found = bounding.source.fetch(
            raw.select(place=bounding._place(table, raw), id=raw[bounding.column_name(name, "id")])
        )
        ranked = sorted(zip(found["place"].to_pylist(), found["id"].to_pylist(), strict=True))
        order.update({(name, ident): float(rank) for rank, (_, ident) in enumerate(ranked)})
    return order


def as_cells(array: np.ndarray[Any, Any]) -> Counter[tuple[int, ...]]:
    """Occupied cells of a count array."""
    return (
        Counter({tuple(int(i) for i in at): int(array[tuple(at)]) for at in np.argwhere(array)})
        if array.ndim
        else Counter({(): int(array)})
    )


def seen_cells(
    counts: Counts, view: View, columns: tuple[str, ...], array: np.ndarray[Any, Any]
) -> Counter[tuple[int, ...]]:
    """The same as the oracle says it: no column here is null but where a public row is not there."""
    codecs = [counts.codec(view, c) for c in columns]
    found: Counter[tuple[int, ...]] = Counter()
    for cell, n in as_cells(array).items():
        lacking = (codec.column.nullable and code == codec.null_code for code, codec in zip(cell, codecs, strict=True))
        found[tuple(NOWHERE if lacks else code for lacks, code in zip(lacking, cell, strict=True))] += n
    return found


def both_ways(
    counts: Counts, view: View, columns: tuple[str, ...]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The same marginal counted in memory and in the engine."""
    source = counts._bounding.source
    source.embedded = True
    (memory,) = counts.marginals(view, [columns])
    source.embedded = False
    (engine,) = counts.marginals(view, [columns])
    source.embedded = True
    return memory, engine
