"""Codes of public or synthetic Arrow tables, exactly as :meth:`Codec.encode` codes private rows in their engine.

A test holds the two together. Nothing here needs an engine, whose start would outweigh the work on small tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.errors import UsageError
from dpweave.schema.arrow_types import arrow_type
from dpweave.schema.domain import Bins, Categories, Opaque

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.schema.codec import Codec
    from dpweave.schema.domain import Scalar


def encode_table(table: pa.Table, codecs: Mapping[str, Codec]) -> dict[str, IntArray]:
    """Return the codes of some columns of an Arrow table, row by row."""
    return {name: encode_column(codec, whole_array(table[name], codec)) for name, codec in codecs.items()}


def whole_array(values: pa.ChunkedArray, codec: Codec) -> pa.Array:
    """Return one column as a single array of the type that its codec is for."""
    import pyarrow as pa

    array = values.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # an empty table has no chunk to combine
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    kind = arrow_type(codec.column.type)
    if array.type == kind:
        return array
    try:
        return array.cast(kind, safe=False)
    except (pa.ArrowException, NotImplementedError):
        raise UsageError(
            f"column {codec.column.name!r} is of type {array.type} here and cannot be read as {codec.column.type}"
        ) from None


def encode_column(codec: Codec, values: pa.Array) -> IntArray:
    """Code of every value; total, as the codec's."""
    missing = is_missing(codec, values)
    match codec.domain:
        case Opaque():
            inner = np.zeros(len(values), dtype=np.int64)
        case Categories(values=listed):
            inner = _positions(values, listed, unknown=codec.unknown_code)
        case Bins(edges=edges):
            inner = _bins_of(values, edges[1:-1])
    return np.where(missing, codec.null_code, inner).astype(np.int64)


def points(values: pa.Array) -> FloatArray:
    """Whole numbers, dates and timestamps on the number line, in steps, days and seconds; not a number where null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    missing = np.asarray(values.is_null().to_numpy(zero_copy_only=False), dtype=bool)
    steps = values.cast(pa.int32()) if pa.types.is_date32(values.type) else values
    found = np.asarray(pc.fill_null(steps.cast(pa.int64()), 0).to_numpy(zero_copy_only=False))
    found = found // 1_000_000 if pa.types.is_timestamp(values.type) else found
    return np.where(missing, np.nan, found.astype(np.float64))


def is_missing(codec: Codec, values: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which values count as null; NaN does."""
    import pyarrow.compute as pc

    missing = values.is_null()
    if codec.column.type.kind == "float":
        missing = pc.or_(missing, pc.is_nan(values).fill_null(True))
    return np.asarray(missing.to_numpy(zero_copy_only=False), dtype=np.bool_)


def is_outside(codec: Codec, values: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which values a domain does not hold: unlisted categories, numbers beyond the bins, null where there is none."""
    missing = is_missing(codec, values)
    there = ~missing
    match codec.domain:
        case Opaque():
            outside = np.zeros(len(values), dtype=np.bool_)
        case Categories(values=listed, other=other):
            outside = there & (not other) & (_positions(values, listed, unknown=-1) < 0)
        case Bins(edges=edges):
            outside = there & (_bins_of(values, (edges[0], edges[-1])) != 1)
            if codec.column.type.kind == "float":  # where the last edge is a value like any other
                outside &= ~_equal(values, edges[-1])
    return outside | (missing & (not codec.column.nullable))


def _positions(values: pa.Array, listed: tuple[Scalar, ...], *, unknown: int) -> IntArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.index_in(values, value_set=pa.array(list(listed), values.type))
    return np.asarray(found.fill_null(unknown).to_numpy(zero_copy_only=False), dtype=np.int64)


def _bins_of(values: pa.Array, edges: tuple[Scalar, ...]) -> IntArray:
    """How many of the rising ``edges`` each value has reached; 0 for null."""
    import pyarrow as pa

    if pa.types.is_decimal(values.type):
        found = np.zeros(len(values), dtype=np.int64)
        for edge in edges:
            found += _reached(values, edge)
        return found
    points, marks = _on_a_line(values, edges)
    if np.issubdtype(points.dtype, np.integer):
        limits = np.iinfo(points.dtype)
        below = sum(mark < limits.min for mark in marks)
        inside = np.array([mark for mark in marks if limits.min <= mark <= limits.max], dtype=points.dtype)
        return np.asarray(below + np.searchsorted(inside, points, side="right"), dtype=np.int64)
    inside = np.array(marks, dtype=np.float64)
    return np.asarray(np.searchsorted(inside, points.astype(np.float64), side="right"), dtype=np.int64)


def _on_a_line(values: pa.Array, edges: tuple[Scalar, ...]) -> tuple[np.ndarray[Any, Any], list[Any]]:
    """Numbers for values and edges, whole ones but for floats; null becomes 0."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return values.fill_null(0).to_numpy(zero_copy_only=False), list(edges)
    width = pa.int32() if kind.bit_width == 32 else pa.int64()
    points = values.cast(width).fill_null(0).to_numpy(zero_copy_only=False)
    return points, pa.array(list(edges), kind).cast(width).to_pylist()


def _reached(values: pa.Array, edge: Any) -> np.ndarray[Any, Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    above = pc.greater_equal(values, pa.scalar(edge, values.type)).fill_null(False)
    return np.asarray(above.to_numpy(zero_copy_only=False))


def _equal(values: pa.Array, edge: Any) -> np.ndarray[Any, Any]:
    return np.asarray(values.fill_null(0.0).to_numpy(zero_copy_only=False) == edge)
