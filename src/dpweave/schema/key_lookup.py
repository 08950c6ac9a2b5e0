"""Where the foreign keys of Arrow tables lead: positions of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpweave.errors import UsageError
from dpweave.schema.arrow_codes import whole_array
from dpweave.schema.codec import Codec
from dpweave.schema.domain import Opaque

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dpweave.arrays import IntArray
    from dpweave.schema.database import Column, Database, ForeignKey


def column_of(tables: Mapping[str, pa.Table], table: str, column: Column) -> pa.Array:
    """Return one column as a single array of the model's Arrow type."""
    if column.name not in tables[table].column_names:
        raise UsageError(f"table {table!r} of the database has no column {column.name!r}; give one made from this plan")
    return whole_array(tables[table][column.name], Codec(column, Opaque()))


def follow(tables: Mapping[str, pa.Table], schema: Database, table: str, key: ForeignKey) -> IntArray:
    """Position of the row that each row's foreign key leads to; -1 where it is null or leads nowhere.

    Where several rows share the key that is led to, the first one counts.
    """
    children, parents = tables[table].num_rows, tables[key.target].num_rows
    mine, theirs = np.zeros(children, dtype=np.int64), np.zeros(parents, dtype=np.int64)
    lost, unnamed = np.zeros(children, dtype=bool), np.zeros(parents, dtype=bool)
    for column, target in zip(key.columns, key.target_columns, strict=True):
        here = column_of(tables, table, schema[table].column[column])
        there = column_of(tables, key.target, schema[key.target].column[target])
        if here.type != there.type:
            here = here.cast(there.type, safe=False)
        number, their_number = _numbers(here, there)
        lost |= number < 0
        unnamed |= their_number < 0
        is_first = column == key.columns[0]
        mine, theirs = (number, their_number) if is_first else _pack(mine, number, theirs, their_number)
    named = np.flatnonzero(~unnamed)
    values, first = np.unique(theirs[named], return_index=True)
    if not len(values):
        return np.full(children, -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(values, mine), len(values) - 1)
    hit = (values[at] == mine) & ~lost
    return np.where(hit, named[first[at]], -1).astype(np.int64)


def _numbers(here: pa.Array, there: pa.Array) -> tuple[IntArray, IntArray]:
    """Number the distinct values of ``there``, and find those of ``here`` among them; null and unknown are -1."""
    import pyarrow.compute as pc

    distinct = there.drop_null().unique()

    def number(array: pa.Array) -> IntArray:
        found = pc.index_in(array, value_set=distinct, skip_nulls=True).fill_null(-1)
        return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int64)

    return number(here), number(there)


def _pack(mine: IntArray, number: IntArray, theirs: IntArray, their_number: IntArray) -> tuple[IntArray, IntArray]:
    """Combine the numbers of a composite key into one, small again after every column."""
    width = int(max(number.max(initial=0), their_number.max(initial=0))) + 2
    both = np.concatenate([mine, theirs]) * width + np.concatenate([number, their_number]) + 1
    _, dense = np.unique(both, return_inverse=True)
    dense = dense.reshape(-1).astype(np.int64)
    return dense[: len(mine)], dense[len(mine) :]
