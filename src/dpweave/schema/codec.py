"""Value ⇄ code, total on every input.

Encoding is an Ibis expression, so it runs where the rows live; decoding makes fresh values from codes and a seed.
Null, unknown categories, infinities, numbers out of range and (where an engine stores them) values of another type all
have a defined code, so that nothing that happens after rows were read depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.schema.arrow_types import arrow_type
from dpweave.schema.domain import Bins, Categories, Domain, Opaque, Scalar, size, to_axis

if TYPE_CHECKING:
    import pyarrow as pa

    from dpweave.arrays import IntArray
    from dpweave.schema.database import Column

CASE_LIMIT = 64
"""Categories up to which a CASE expression is used; longer lists are looked up by a join."""


@dataclass(frozen=True)
class Codec:
    """One column with its domain."""

    column: Column
    domain: Domain

    @property
    def size(self) -> int:
        """Number of codes."""
        return size(self.domain, nullable=self.column.nullable)

    @property
    def optional(self) -> Codec:
        """The same where rows may lead nowhere, which counts as null."""
        return self if self.column.nullable else replace(self, column=replace(self.column, nullable=True))

    @property
    def ordered(self) -> int:
        """How many codes, from the first on, are in the order of their values: none for names."""
        match self.domain:
            case Bins(edges=edges):
                return len(edges) - 1
            case Categories(values=values) if not any(isinstance(v, str | bool) for v in values):
                return len(values) if all(a < b for a, b in pairwise(values)) else 0  # type: ignore[operator]
        return 0

    @property
    def listed(self) -> int:
        """Number of codes, from the first on, that stand for values the domain lists."""
        return len(self.domain.values) if isinstance(self.domain, Categories) else self.domain.cells

    @property
    def null_code(self) -> int:
        """Code of null: the last one, or the first of a column that has none."""
        return self.domain.cells if self.column.nullable else 0

    @property
    def unknown_code(self) -> int:
        """Code of a value that the domain does not list."""
        if isinstance(self.domain, Categories) and self.domain.other:
            return len(self.domain.values)
        return self.null_code

    # -- value → code ----------------------------------------------------------------------------------------------

    def encode(self, value: Any, *, has_nan: bool) -> Any:
        """Return an Ibis expression for the code of an Ibis column; see :meth:`coded` for long lists of categories.

        Bins are a balanced tree of comparisons, so that a row costs log2(bins) of them. ``has_nan`` says whether the
        engine knows NaN; it counts as null.
        """
        import ibis

        missing = value.isnull()
        if has_nan and self.column.type.kind == "float":
            missing = missing | value.isnan()
        match self.domain:
            case Opaque():
                inner = ibis.literal(0, "int32")
            case Categories(values=values):
                cases = [
                    (value == ibis.literal(v, value.type()), ibis.literal(i, "int32")) for i, v in enumerate(values)
                ]
                inner = (
                    ibis.cases(*cases, else_=ibis.literal(self.unknown_code, "int32"))
                    if cases
                    else _int(self.unknown_code)
                )
            case Bins(edges=edges):
                inner = self._tree(value, edges, 0, len(edges) - 2)
        return ibis.ifelse(missing, _int(self.null_code), inner)

    def _tree(self, value: Any, edges: tuple[Scalar, ...], first: int, last: int) -> Any:
        import ibis

        if first == last:
            return _int(first)
        middle = (first + last) // 2 + 1
        below = _below(value, edges[middle])
        if isinstance(below, bool):
            return self._tree(value, edges, *((first, middle - 1) if below else (middle, last)))
        return ibis.ifelse(below, self._tree(value, edges, first, middle - 1), self._tree(value, edges, middle, last))

    def coded(self, rows: Any, value: Any, *, has_nan: bool) -> tuple[Any, Any]:
        """Return rows, with their ``rid``, and the expression over them of the code of ``value``, one of their columns.

        A long list of categories is looked up by a join, which costs the same however long it is.
        """
        import ibis

        if not isinstance(self.domain, Categories) or len(self.domain.values) <= CASE_LIMIT:
            return rows, self.encode(value, has_nan=has_nan)
        words = ibis.memtable(self._lookup())
        missing = value.isnull() | value.isnan() if has_nan and self.column.type.kind == "float" else value.isnull()
        joined = rows.left_join(words, value == words.word).select(rows.rid, missing=missing, code=words.code)
        # One row for each row, even where an engine takes two words for equal (collations, narrow floats).
        joined = joined.group_by("rid").agg(missing=joined.missing.any(), code=joined.code.min())
        unknown = ibis.ifelse(joined.missing, _int(self.null_code), _int(self.unknown_code))
        return joined, ibis.coalesce(joined.code, unknown)

    def _lookup(self) -> pa.Table:
        import pyarrow as pa

        assert isinstance(self.domain, Categories)
        words = pa.array(list(self.domain.values), arrow_type(self.column.type))
        return pa.table({"word": words, "code": pa.array(range(len(words)), pa.int32())})

    # -- code → value ----------------------------------------------------------------------------------------------

    def decode(self, codes: IntArray, rng: np.random.Generator) -> pa.Array:
        """Draw a value for each code: the category itself, or a point inside the bin."""
        import pyarrow as pa

        null = codes == self.domain.cells if self.column.nullable else np.zeros(len(codes), dtype=bool)
        match self.domain:
            case Categories():
                return self._decode_categories(codes, null, rng)
            case Bins():
                return self._decode_bins(codes, null, rng)
            case Opaque():
                raise TypeError(f"column {self.column.name!r} is opaque and has no values to draw")
        return pa.nulls(len(codes))

    def _decode_categories(self, codes: IntArray, null: np.ndarray[Any, Any], rng: np.random.Generator) -> pa.Array:
        import pyarrow as pa

        assert isinstance(self.domain, Categories)
        kind = self.column.type
        values = list(self.domain.values)
        codes = np.where(null, 0, codes)
        if self.domain.other:
            if kind.kind == "text" and (kind.length is None or kind.length >= len(OTHER)) and OTHER not in values:
                values.append(OTHER)
            elif values:  # no room for a placeholder: spread over the listed values
                unknown = codes == len(values)
                codes = np.where(unknown, rng.integers(0, len(values), len(codes)), codes)
            else:
                return pa.array([None] * len(codes), arrow_type(kind))
        dictionary = pa.array(values, arrow_type(kind))
        return dictionary.take(pa.array(codes, pa.int64(), mask=null))

    def _decode_bins(self, codes: IntArray, null: np.ndarray[Any, Any], rng: np.random.Generator) -> pa.Array:
        import pyarrow as pa

        assert isinstance(self.domain, Bins)
        kind = self.column.type
        codes = np.where(null, 0, codes)
        low, high = self.intervals(codes, rng)
        if kind.kind == "float":
            points = low + rng.random(len(codes)) * (high - low)
            if self.domain.step is not None:
                points = np.round(np.round(points / self.domain.step) * self.domain.step, 12)
            first, last = (to_axis(kind, e) for e in (self.domain.edges[0], self.domain.edges[-1]))
            return pa.array(np.clip(points, first, last), pa.float64(), mask=null).cast(arrow_type(kind))
        return _from_axis(kind, rng.integers(low, high), null)

    def at(self, points: IntArray, codes: IntArray) -> pa.Array:
        """Values at some points of the number line, of a column of whole steps; null where the code says so."""
        null = codes == self.domain.cells if self.column.nullable else np.zeros(len(codes), dtype=bool)
        return _from_axis(self.column.type, points, null)

    def intervals(self, codes: IntArray, rng: np.random.Generator) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Where on the number line to draw from, for codes of bins: in a bin, or a spot by its weight."""
        assert isinstance(self.domain, Bins)
        kind = self.column.type
        number = np.float64 if kind.kind == "float" else np.int64
        edges = np.array([to_axis(kind, e) for e in self.domain.edges], dtype=number)
        if not self.domain.spots:
            return edges[codes], edges[codes + 1]
        start, end = (np.array([to_axis(kind, s[i]) for s in self.domain.spots], dtype=number) for i in (0, 1))
        cell = np.searchsorted(edges, start, side="right") - 1
        bare = np.setdiff1d(np.arange(self.domain.cells), cell)
        start, end = np.append(start, edges[bare]), np.append(end, edges[bare + 1])
        weight = np.append([s[2] for s in self.domain.spots], np.ones(len(bare)))
        order = np.argsort(start)
        cell = np.append(cell, bare)[order]
        # Every bin is a stretch of length 1, shared by its spots.
        part = weight[order] / np.bincount(cell, weights=weight[order])[cell]
        first = np.searchsorted(cell, np.arange(self.domain.cells))
        within = np.cumsum(part) - part
        ends = cell + np.minimum(within - within[first][cell] + part, 1.0)
        chosen = np.minimum(np.searchsorted(ends, codes + rng.random(len(codes)), side="right"), len(order) - 1)
        chosen = order[np.clip(chosen, first[codes], np.append(first[1:], len(order))[codes] - 1)]
        return start[chosen], end[chosen]


def points(value: Any) -> Any:
    """Ibis expression for places of whole numbers, days or moments on the number line of
    :func:`dpweave.schema.domain.to_axis`. Values lie at its ends which floats do not tell apart, or which some engine
    does not know in some time zone.
    """
    import ibis

    kind = value.type()
    if kind.is_integer():
        return value.cast("float64").clip(-(2**53), 2**53).cast("int64")
    first, last = (ibis.literal(day, "date").cast(kind) for day in (date(1000, 1, 1), date(9999, 12, 30)))
    inside = ibis.cases((value < first, first), (value > last, last), else_=value)
    seconds = inside.cast("timestamp").epoch_seconds().cast("int64")
    return (seconds / 86_400).floor().cast("int64") if kind.is_date() else seconds


OTHER = "(other)"
"""Text written for the categories that were too rare to be named."""


def _int(code: int) -> Any:
    import ibis

    return ibis.literal(code, "int32")


def _below(value: Any, edge: Any) -> Any:
    """Whether a value lies below an edge: an expression, or a plain answer where the column's type leaves no doubt."""
    import ibis

    kind = value.type()
    if kind.is_floating():
        return value < ibis.literal(edge, "float64")
    if kind.is_integer():
        if not kind.bounds.lower < edge <= kind.bounds.upper:
            return edge > kind.bounds.upper
    elif kind.is_decimal() and kind.precision is not None:
        largest = Decimal(10**kind.precision - 1).scaleb(-(kind.scale or 0))
        if abs(edge) > largest:
            return bool(edge > 0)
    return value < ibis.literal(edge, kind)


def _from_axis(kind: Any, points: IntArray, null: np.ndarray[Any, Any]) -> pa.Array:
    import pyarrow as pa

    target = arrow_type(kind)
    match kind.kind:
        case "integer":
            return pa.array(points, pa.int64(), mask=null).cast(target, safe=False)
        case "date":
            return pa.array(points.astype(np.int32), pa.int32(), mask=null).cast(pa.date32())
        case "timestamp":
            seconds = pa.array(points, pa.int64(), mask=null).cast(pa.timestamp("s", tz="UTC" if kind.zone else None))
            return seconds.cast(target)
        case "time":
            return pa.array(points * 1_000_000, pa.int64(), mask=null).cast(pa.time64("us")).cast(target)
        case _:
            return _decimals(points, null, scale=kind.scale or 0).cast(target)


def _decimals(points: IntArray, null: np.ndarray[Any, Any], *, scale: int) -> pa.Array:
    """Whole numbers as multiples of ``10**-scale``: each is laid out as Arrow does it, in two words of 64 bits."""
    import pyarrow as pa
    import pyarrow.compute as pc

    words = np.stack([points, points >> 63], axis=1)
    whole = pa.Array.from_buffers(pa.decimal128(38, scale), len(points), [None, pa.py_buffer(words)])
    return pc.if_else(pa.array(null), pa.scalar(None, whole.type), whole)
