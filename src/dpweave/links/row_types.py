r"""Row types and the query operators, without ever writing down :math:`\hat{\mathbf{Q}}`.

Rows with the same values in all columns that occur in the workloads are interchangeable: the objective of
`eq::relaxed_opt` and its constraints do not change when two such rows are swapped, gradients agree on them, and so do
projections. Starting from a point that agrees on them, every iterate does. So the problem **collapses exactly** onto
pairs of row types, each standing for ``multiplicity`` pairs of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpweave.errors import UsageError, nearest
from dpweave.measure.cross_workloads import Workload, cells

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.privacy.window import Columns

_DENSE_WIDTH = 24
"""A one-hot matrix with fewer cells per column set than this is faster through BLAS than as a sparse matrix."""

_MOST_NUMBERS = 1 << 62
"""Combinations of codes that fit a number."""

_SPARE_NUMBERS = 4
"""Numbers per row up to which a table of all of them is faster than sorting."""


@dataclass(frozen=True)
class RowTypes:
    """The rows of one side, with equal rows put together.

    ``codes`` holds one row per type and one column per entry of ``columns``; ``of_row`` says which type a row has;
    ``multiplicity`` how many rows a type has. Types come in the lexical order of their codes.
    """

    columns: Columns
    shape: tuple[int, ...]
    codes: IntArray
    of_row: IntArray
    multiplicity: IntArray

    def __post_init__(self) -> None:
        if self.codes.shape != (len(self.multiplicity), len(self.columns)) or len(self.shape) != len(self.columns):
            raise UsageError(f"codes {self.codes.shape} do not fit {len(self.columns)} columns")

    @classmethod
    def of(
        cls, codes: Mapping[str, IntArray], columns: Sequence[str], *, shape: Mapping[str, int], rows: int | None = None
    ) -> RowTypes:
        """Collapse rows that agree in ``columns``. ``rows`` is needed only where there are no columns at all.

        >>> types = RowTypes.of({"a": np.array([1, 0, 1])}, ["a"], shape={"a": 2})
        >>> types.codes.ravel(), types.of_row, types.multiplicity
        (array([0, 1]), array([1, 0, 1]), array([1, 2]))
        """
        values, sizes, rows = _checked(codes, columns, shape, rows)
        number, span = np.zeros(rows, dtype=np.int64), 1
        for column, size in zip(values, sizes, strict=True):
            if span * size > _MOST_NUMBERS:
                present, number = np.unique(number, return_inverse=True)
                span = len(present)
            number = number * size + column
            span *= size
        of_row, multiplicity = _compressed(number, span)
        some = np.empty(len(multiplicity), dtype=np.int64)
        some[of_row] = np.arange(rows)
        found = [column[some] for column in values]
        stacked = np.stack(found, axis=1) if found else np.zeros((len(multiplicity), 0), dtype=np.int64)
        return cls(tuple(columns), sizes, stacked.astype(np.int64), of_row, multiplicity)

    @classmethod
    def each_row(
        cls, codes: Mapping[str, IntArray], columns: Sequence[str], *, shape: Mapping[str, int], rows: int | None = None
    ) -> RowTypes:
        """Let every row be its own type: the uncollapsed problem, kept as an oracle."""
        values, sizes, rows = _checked(codes, columns, shape, rows)
        table = np.empty((rows, len(columns)), dtype=np.int64)
        for i, column in enumerate(values):
            table[:, i] = column
        return cls(tuple(columns), sizes, table, np.arange(rows), np.ones(rows, dtype=np.int64))

    @property
    def count(self) -> int:
        """Number of types."""
        return len(self.multiplicity)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.of_row)

    @cached_property
    def members(self) -> tuple[IntArray, IntArray]:
        """Rows grouped by type, and where each type's group starts (one entry more than there are types)."""
        starts = np.zeros(self.count + 1, dtype=np.int64)
        np.cumsum(self.multiplicity, out=starts[1:])
        return np.argsort(self.of_row, kind="stable"), starts

    def cells(self, columns: Columns) -> tuple[IntArray, int]:
        """Position of each type among all combinations of values of ``columns``, and how many those are."""
        at = {c: self.codes[:, i] for i, c in enumerate(self.columns)}
        sizes = dict(zip(self.columns, self.shape, strict=True))
        width = int(np.prod([sizes[c] for c in columns], dtype=np.int64))
        return cells(at, columns, sizes, rows=self.count), width


def _checked(
    codes: Mapping[str, IntArray], columns: Sequence[str], shape: Mapping[str, int], rows: int | None
) -> tuple[list[IntArray], tuple[int, ...], int]:
    """The columns asked for, their sizes, and the number of rows."""
    for name in columns:
        if name not in codes:
            raise UsageError(f"no column {name!r}; {nearest(name, codes)}")
    if rows is None:
        rows = len(next(iter(codes.values()))) if codes else 0
    sizes = tuple(int(shape[c]) for c in columns)
    values = [np.asarray(codes[c]) for c in columns]
    for column, size in zip(values, sizes, strict=True):
        if len(column) != rows:
            raise UsageError(f"a column has {len(column)} codes for {rows} rows")
        if rows and (column.min() < 0 or column.max() >= size):
            raise UsageError("a code lies outside its column's domain")
    return values, sizes, rows


def _compressed(number: IntArray, span: int) -> tuple[IntArray, IntArray]:
    """Place of each number among those that occur, in order, and how often each of these does."""
    if span > max(_SPARE_NUMBERS * len(number), 1 << 16):
        _, place, times = np.unique(number, return_inverse=True, return_counts=True)
        return place, times
    times = np.bincount(number, minlength=span)
    return (np.cumsum(times > 0) - 1)[number], times[times > 0]


class Group(NamedTuple):
    """Left column sets that stand next to each other in the matrix of answers: its
    ``rows``, and the first ``end`` of its columns.
    """

    sets: tuple[Columns, ...]
    rows: slice
    end: int


@dataclass(frozen=True)
class Layout:
    """Where the answers of workloads lie in one matrix, with a block row per distinct
    left column set and a block column per right one.

    Pairs of columns of one side go with single ones of the other, so that most blocks
    belong to no workload. Right sets with most partners come first, and left sets that
    need about as many of them are put together: what lies beyond is never computed.
    """

    workloads: tuple[Workload, ...]
    shape: tuple[int, int]
    blocks: Mapping[Workload, tuple[slice, slice]]
    groups: tuple[Group, ...]
    right_sets: tuple[Columns, ...]

    @classmethod
    def of(cls, workloads: Sequence[Workload], left: Mapping[str, int], right: Mapping[str, int]) -> Layout:
        """Lay out the answers of ``workloads`` over columns of these sizes."""
        partners: dict[Columns, int] = {}
        for w in workloads:
            partners[w.right] = partners.get(w.right, 0) + 1
        columns, end = {}, 0
        for others in sorted(partners, key=lambda others: -partners[others]):
            columns[others] = slice(end, end + math.prod(right[c] for c in others))
            end = columns[others].stop
        need: dict[Columns, int] = {}
        for w in workloads:
            need[w.left] = max(need.get(w.left, 0), columns[w.right].stop)
        levels: dict[int, list[Columns]] = {}
        for own, most in need.items():
            levels.setdefault(int(math.log2(max(end, 1) / max(most, 1))), []).append(own)
        rows, groups, top = {}, [], 0
        for sets in levels.values():
            start = top
            for own in sets:
                rows[own] = slice(top, top + math.prod(left[c] for c in own))
                top = rows[own].stop
            groups.append(Group(tuple(sets), slice(start, top), max(need[own] for own in sets)))
        blocks = {w: (rows[w.left], columns[w.right]) for w in workloads}
        return cls(tuple(workloads), (top, end), blocks, tuple(groups), tuple(columns))

    @cached_property
    def mask(self) -> FloatArray:
        """1 in the blocks of workloads, 0 elsewhere."""
        mask = np.zeros(self.shape)
        for block in self.blocks.values():
            mask[block] = 1.0
        return mask

    def stack(self, answers: Mapping[Workload, Any]) -> FloatArray:
        """Put one array per workload, of any shape with the right number of cells, into the matrix of answers."""
        stacked = np.zeros(self.shape)
        for workload, values in answers.items():
            block = self.blocks[workload]
            stacked[block] = np.asarray(values, dtype=np.float64).reshape(stacked[block].shape)
        return stacked


class LinkOperator:
    r"""The queries of ``workloads`` as linear maps between pairs of row types and answers.

    For workload w with cells :math:`u_i` of left types and :math:`v_j` of right types, :math:`(\hat{\mathbf Q} b)_w` is
    the histogram of b over :math:`(u_i, v_j)` and :math:`(\hat{\mathbf Q}^T r)_{ij} = \sum_w r_w[u_i, v_j]`.

    All answers live in **one** matrix (:class:`Layout`), so that :math:`\hat{\mathbf Q}
    b` is two matrix products :math:`U^T M V` with one-hot U and V; blocks that belong
    to no workload are zero. ``blocks[w]`` cuts the answers of w out of it.

    ``multiplicity`` is the number of pairs of rows that a pair of types stands for. It is the product of the two
    multiplicities, less the pairs that may not be linked (a row with itself). With one more axis in front it splits
    the pairs of two types into layers, such as those linked now and the others; then ``b`` has that axis too.
    """

    def __init__(
        self,
        left: RowTypes,
        right: RowTypes,
        workloads: Sequence[Workload] | Layout,
        *,
        multiplicity: FloatArray | None = None,
    ) -> None:
        self.left = left
        self.right = right
        if not isinstance(workloads, Layout):
            workloads = Layout.of(workloads, *(dict(zip(t.columns, t.shape, strict=True)) for t in (left, right)))
        self.layout = workloads
        self.workloads, self.blocks = workloads.workloads, workloads.blocks
        if multiplicity is not None and multiplicity.shape[-2:] != (left.count, right.count):
            raise UsageError(f"multiplicity {multiplicity.shape} for {left.count} × {right.count} types")
        self._multiplicity = multiplicity
        self._v = _one_hot(right, self.layout.right_sets)
        self._u = [_one_hot(left, group.sets) for group in self.layout.groups]
        # Either side's types may be summed up first; that which leaves less to do for the other one is.
        groups, others = self.layout.groups, len(self.layout.right_sets)
        right_first = left.count * (right.count * others + sum(len(g.sets) * g.end for g in groups))
        left_first = right.count * (left.count * sum(len(g.sets) for g in groups) + self.layout.shape[0] * others)
        self._right_first = right_first <= left_first

    @cached_property
    def multiplicity(self) -> FloatArray:
        """Pairs of rows that each pair of types stands for."""
        if self._multiplicity is not None:
            return self._multiplicity
        return np.multiply.outer(self.left.multiplicity, self.right.multiplicity).astype(np.float64)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of ``b``: left and right number of types, behind the layers where there are any."""
        return self.multiplicity.shape

    @property
    def mask(self) -> FloatArray:
        """1 in the blocks of workloads, 0 elsewhere."""
        return self.layout.mask

    @cached_property
    def _transposed(self) -> tuple[Any, list[Any]]:
        return _transposed(self._v), [_transposed(u) for u in self._u]

    @cached_property
    def _needed(self) -> list[Any]:
        """Of the right one-hot matrix, the columns that each group needs."""
        return [self._v[:, : g.end] for g in self.layout.groups]

    def histogram(self, mass: FloatArray) -> FloatArray:
        """Answers of a total ``mass`` per pair of types."""
        out, (vt, uts) = np.zeros(self.layout.shape), self._transposed
        between = (vt @ mass.T).T if self._right_first else None
        for (_, rows, end), ut in zip(self.layout.groups, uts, strict=True):
            found = (vt[:end] @ (ut @ mass).T).T if between is None else ut @ between[:, :end]
            np.multiply(found, self.mask[rows, :end], out=out[rows, :end])
        return out

    def apply(self, b: FloatArray) -> FloatArray:
        r""":math:`\hat{\mathbf Q} b` where each pair of rows of a pair of types has the value ``b``."""
        mass = b * self.multiplicity
        return self.histogram(mass if mass.ndim == 2 else mass.sum(axis=0))

    def adjoint(self, r: FloatArray) -> FloatArray:
        r""":math:`\hat{\mathbf Q}^T r`, one value per pair of types, shared by all its pairs of rows.

        It is the adjoint of :meth:`apply` for the inner product that weighs pairs of types by ``multiplicity``.
        """
        return self.laid_out(r * self.mask)

    def laid_out(self, r: FloatArray) -> FloatArray:
        """The same of answers that are nothing outside the blocks of workloads, as those of :meth:`stack` are."""
        if self._right_first:
            between = np.zeros((self.left.count, self.layout.shape[1]))
            for (_, rows, end), u in zip(self.layout.groups, self._u, strict=True):
                between[:, :end] += u @ r[rows, :end]
            return np.asarray((self._v @ between.T).T)
        out = np.zeros((self.left.count, self.right.count))
        for (_, rows, end), u, v in zip(self.layout.groups, self._u, self._needed, strict=True):
            out += u @ (v @ r[rows, :end].T).T
        return out

    def stack(self, answers: Mapping[Workload, Any]) -> FloatArray:
        """Put one array per workload into the matrix of answers; see :meth:`Layout.stack`."""
        return self.layout.stack(answers)

    def unstack(self, stacked: FloatArray) -> dict[Workload, FloatArray]:
        """Take the matrix of answers apart: one two-dimensional array (left cells × right cells) per workload."""
        return {w: stacked[block] for w, block in self.blocks.items()}

    def explicit(self) -> Any:
        r""":math:`\hat{\mathbf Q}` as a sparse matrix over pairs of types: an oracle for tests and benchmarks."""
        from scipy import sparse

        parts = []
        for workload in self.workloads:
            u, height = self.left.cells(workload.left)
            v, width = self.right.cells(workload.right)
            cell = (u[:, None] * width + v[None, :]).ravel()
            data = self.multiplicity.ravel()
            parts.append(sparse.csr_array((data, (cell, np.arange(len(cell)))), shape=(height * width, len(cell))))
        return sparse.vstack(parts, format="csr")


def _transposed(matrix: Any) -> Any:
    """The transpose, stored by rows like the matrix itself."""
    return np.ascontiguousarray(matrix.T) if isinstance(matrix, np.ndarray) else matrix.T.tocsr()


def _one_hot(types: RowTypes, sets: Sequence[Columns]) -> Any:
    """One block of columns per column set, with a 1 where a type has that combination of values."""
    hot, width = [], 0
    for columns in sets:
        at, size = types.cells(columns)
        hot.append(at + width)
        width += size
    rows = np.tile(np.arange(types.count), len(hot))
    at = np.concatenate(hot) if hot else np.zeros(0, dtype=np.int64)
    if width <= _DENSE_WIDTH * max(len(hot), 1):
        dense = np.zeros((types.count, width))
        dense[rows, at] = 1.0
        return dense
    from scipy import sparse

    return sparse.csr_array((np.ones(len(at)), (rows, at)), shape=(types.count, width))
