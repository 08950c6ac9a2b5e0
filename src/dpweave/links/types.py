r"""Row types and the query operators, without ever writing down :math:`\hat{\mathbf{Q}}`.

Rows with the same values in all columns that occur in the workloads are interchangeable: the objective of
`eq::relaxed_opt` and its constraints do not change when two such rows are swapped, gradients agree on them, and so do
projections. Starting from a point that agrees on them, every iterate does. So the problem **collapses exactly** onto
pairs of row types, each standing for ``multiplicity`` pairs of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.errors import UsageError, nearest
from dpweave.links.workload import Workload, cells

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.window import Columns, FloatArray, IntArray

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


class LinkOperator:
    r"""The queries of ``workloads`` as linear maps between pairs of row types and answers.

    For workload w with cells :math:`u_i` of left types and :math:`v_j` of right types, :math:`(\hat{\mathbf Q} b)_w` is
    the histogram of b over :math:`(u_i, v_j)` and :math:`(\hat{\mathbf Q}^T r)_{ij} = \sum_w r_w[u_i, v_j]`.

    All answers live in **one** matrix with a block row per distinct left column set and a block column per distinct
    right one, so that :math:`\hat{\mathbf Q} b` is two matrix products :math:`U^T M V` with one-hot U and V; blocks
    that belong to no workload are zero. ``blocks[w]`` cuts the answers of w out of it.

    ``multiplicity`` is the number of pairs of rows that a pair of types stands for. It is the product of the two
    multiplicities, less the pairs that may not be linked (a row with itself). With one more axis in front it splits
    the pairs of two types into layers, such as those linked now and the others; then ``b`` has that axis too.
    """

    def __init__(
        self, left: RowTypes, right: RowTypes, workloads: Sequence[Workload], *, multiplicity: FloatArray | None = None
    ) -> None:
        self.left = left
        self.right = right
        self.workloads = tuple(workloads)
        if multiplicity is None:
            multiplicity = np.multiply.outer(left.multiplicity, right.multiplicity).astype(np.float64)
        if multiplicity.shape[-2:] != (left.count, right.count):
            raise UsageError(f"multiplicity {multiplicity.shape} for {left.count} × {right.count} types")
        self.multiplicity = multiplicity
        self._u, rows = _one_hot(left, dict.fromkeys(w.left for w in self.workloads))
        self._v, others = _one_hot(right, dict.fromkeys(w.right for w in self.workloads))
        self._u_transposed, self._v_transposed = _transposed(self._u), _transposed(self._v)
        self.blocks: dict[Workload, tuple[slice, slice]] = {w: (rows[w.left], others[w.right]) for w in self.workloads}
        # The product that contracts the larger type axis with the narrower one-hot matrix first does less work.
        narrow_right = left.count * self._v.shape[1] <= right.count * self._u.shape[1]
        self._right_first = narrow_right

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of ``b``: left and right number of types, behind the layers where there are any."""
        return self.multiplicity.shape

    @cached_property
    def mask(self) -> FloatArray:
        """1 in the blocks of workloads, 0 elsewhere."""
        mask = np.zeros((self._u.shape[1], self._v.shape[1]))
        for block in self.blocks.values():
            mask[block] = 1.0
        return mask

    def histogram(self, mass: FloatArray) -> FloatArray:
        """Answers of a total ``mass`` per pair of types."""
        ut, vt = self._u_transposed, self._v_transposed
        full = ut @ (vt @ mass.T).T if self._right_first else (vt @ (ut @ mass).T).T
        return np.asarray(full) * self.mask

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
            return np.asarray((self._v @ (self._u @ r).T).T)
        return np.asarray(self._u @ (self._v @ r.T).T)

    def stack(self, answers: Mapping[Workload, Any]) -> FloatArray:
        """Put one array per workload, of any shape with the right number of cells, into the matrix of answers."""
        stacked = np.zeros_like(self.mask)
        for workload, values in answers.items():
            block = self.blocks[workload]
            stacked[block] = np.asarray(values, dtype=np.float64).reshape(stacked[block].shape)
        return stacked

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


def _one_hot(types: RowTypes, sets: Mapping[Columns, None]) -> tuple[Any, dict[Columns, slice]]:
    """One block of columns per column set, with a 1 where a type has that combination of values."""
    where: dict[Columns, slice] = {}
    hot, width = [], 0
    for columns in sets:
        at, size = types.cells(columns)
        where[columns] = slice(width, width + size)
        hot.append(at + width)
        width += size
    rows = np.tile(np.arange(types.count), len(hot))
    at = np.concatenate(hot) if hot else np.zeros(0, dtype=np.int64)
    if width <= _DENSE_WIDTH * max(len(hot), 1):
        dense = np.zeros((types.count, width))
        dense[rows, at] = 1.0
        return dense, where
    from scipy import sparse

    return sparse.csr_array((np.ones(len(at)), (rows, at)), shape=(types.count, width)), where
