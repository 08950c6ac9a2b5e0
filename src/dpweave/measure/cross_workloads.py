"""Cross-table workloads and their answers (paper, `defn::k-way_marginal` and `lem::qv`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from dpweave.arrays import IntArray
from dpweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.privacy.window import Columns

Codes = dict[str, IntArray]
"""The rows of one side of a relation: for each column of the window, one code per row."""


@dataclass(frozen=True, order=True)
class Workload:
    r"""A set of left and of right columns, :math:`(\mathcal{S}_1, \mathcal{S}_2)`.

    It stands for all queries that fix one value per column. Either side may be empty: ``Workload(("age",), ())`` counts
    links by the age of their left row.

    >>> Workload(("age",), ("genre", "year")).columns
    ('age', 'genre', 'year')
    """

    left: Columns
    right: Columns

    def __post_init__(self) -> None:
        if len(set(self.columns)) != len(self.columns):
            raise UsageError(f"workload {self.left} × {self.right} names a column twice")

    @cached_property
    def columns(self) -> Columns:
        """The clique of the window that this workload is."""
        return self.left + self.right

    @property
    def k(self) -> int:
        """Number of columns."""
        return len(self.left) + len(self.right)


def cross_workloads(left_columns: Sequence[str], right_columns: Sequence[str], *, k: int) -> tuple[Workload, ...]:
    r"""All :math:`\mathcal{W}_{\text{cross},k}`: k columns in all, at least one from each side.

    >>> len(cross_workloads(["gender", "age", "occupation"], [f"genre_{i}" for i in range(18)], k=3))
    513
    """
    if k < 2:
        raise UsageError(f"k = {k}: a cross-table workload needs at least one column of each side, so k >= 2")
    if not left_columns or not right_columns:
        raise UsageError("a cross-table workload needs columns on both sides; there are none on one of them")
    if k > len(left_columns) + len(right_columns):
        raise UsageError(
            f"k = {k} is larger than the number of columns, {len(left_columns)} left and {len(right_columns)} right"
        )
    return tuple(
        Workload(left, right)
        for taken in range(1, k)
        for left in combinations(left_columns, taken)
        for right in combinations(right_columns, k - taken)
    )


def cells(codes: Mapping[str, IntArray], columns: Columns, shape: Mapping[str, int], *, rows: int) -> IntArray:
    """Position of each row in the flattened table of counts over ``columns``, last column fastest."""
    flat = np.zeros(rows, dtype=np.int64)
    for column in columns:
        flat *= shape[column]
        flat += codes[column]
    return flat


def answers_from_links(
    workload: Workload,
    left: Mapping[str, IntArray],
    right: Mapping[str, IntArray],
    links: IntArray,
    *,
    shape: Mapping[str, int],
) -> IntArray:
    r"""Counts of ``links`` (one row per link: left position, right position) over the workload's columns.

    This is :math:`\mathbf{q}^T \operatorname{vec}(\mathbf{B})` for all queries of the workload at once (`lem::qv`);
    divided by the number of links it is the marginal distribution :math:`P_w`.
    """
    at_left = cells({c: left[c][links[:, 0]] for c in workload.left}, workload.left, shape, rows=len(links))
    at_right = cells({c: right[c][links[:, 1]] for c in workload.right}, workload.right, shape, rows=len(links))
    sizes = tuple(shape[c] for c in workload.columns)
    width = int(np.prod([shape[c] for c in workload.right], dtype=np.int64))
    counts = np.bincount(at_left * width + at_right, minlength=int(np.prod(sizes, dtype=np.int64)))
    return counts.astype(np.int64).reshape(sizes)
