"""Codes of public or synthetic tables, by the very expressions that code private rows in their engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dpweave.privacy.window import IntArray
    from dpweave.schema.codec import Codec


def encode_table(table: pa.Table, codecs: Mapping[str, Codec]) -> dict[str, IntArray]:
    """Return the codes of some columns of an Arrow table, row by row, through an in-memory DuckDB."""
    import ibis
    import pyarrow as pa

    if not codecs or not table.num_rows:
        return {name: np.zeros(0, dtype=np.int64) for name in codecs}
    names = {name: f"c{i}" for i, name in enumerate(codecs)}
    plain = pa.table({"rid": np.arange(table.num_rows), **{c: table[name] for name, c in names.items()}})
    connection = ibis.duckdb.connect()
    try:
        rows = ibis.memtable(plain)
        out = {}
        for name, codec in codecs.items():
            here, code = codec.coded(rows, rows[names[name]], has_nan=True)
            ordered = here.select(here.rid, code=code).order_by("rid")
            out[name] = connection.to_pyarrow(ordered)["code"].to_numpy().astype(np.int64)
        return out
    finally:
        connection.disconnect()
