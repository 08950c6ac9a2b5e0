"""Random slicing: re-learn a small block of the bi-adjacency matrix at a time (paper, `apx::scalability`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpweave.errors import UsageError
from dpweave.links.link_method import without_self_pairs

if TYPE_CHECKING:
    import numpy.typing as npt

    from dpweave.arrays import IntArray
    from dpweave.links.link_method import LinkProblem


@dataclass(frozen=True)
class Slice:
    """Rows of both sides (`defn::slice`) that may be rewired, and which of the current links run between them."""

    left: IntArray
    right: IntArray
    inside: npt.NDArray[np.bool_]

    @property
    def links(self) -> int:
        r""":math:`m_{\\text{slice}}`, which re-learning the slice does not change."""
        return int(np.count_nonzero(self.inside))


def draw_rows(count: int, *, size: int, sure: IntArray, rng: np.random.Generator) -> IntArray:
    """``size`` of ``count`` rows in ascending order: all of ``sure`` and others at random.

    >>> draw_rows(5, size=3, sure=np.array([4, 4]), rng=np.random.default_rng(0)).tolist()
    [2, 3, 4]
    """
    if size >= count:
        return np.arange(count)
    chosen = np.zeros(count, dtype=bool)
    chosen[sure] = True
    others = np.flatnonzero(~chosen)
    chosen[rng.choice(others, size=max(size - (count - len(others)), 0), replace=False)] = True
    return np.flatnonzero(chosen)


def draw_slice(
    problem: LinkProblem,
    links: IntArray,
    *,
    left_rows: int,
    right_rows: int,
    guaranteed: float,
    rng: np.random.Generator,
) -> Slice:
    r"""Choose the rows of one slice, :math:`\mathbf v_1` and :math:`\mathbf v_2` of `alg::alg_sparse_large`.

    Of the ``left_rows`` and ``right_rows`` a share ``guaranteed`` are ends of links that run inside the slice, as in
    the paper's experiments; a slice drawn blindly from a sparse matrix would hold hardly any link. In a one-to-many
    relation a slice is some children and **all** parents: row types keep it small. Rows with a link that leaves the
    slice keep it, so where a row may have only one they are left out.
    """
    if not 0.0 <= guaranteed <= 1.0:
        raise UsageError(f"guaranteed = {guaranteed}: a share lies in 0 … 1")
    if problem.kind == "one-to-many":
        left = draw_rows(problem.left_rows, size=left_rows, sure=np.zeros(0, dtype=np.int64), rng=rng)
        return Slice(left, np.arange(problem.right_rows), np.isin(links[:, 0], left))
    order = rng.permutation(len(links))
    sure_left = _first_distinct(links[order, 0], int(guaranteed * left_rows))
    sure_right = _first_distinct(links[order, 1], int(guaranteed * right_rows))
    left = draw_rows(problem.left_rows, size=left_rows, sure=sure_left, rng=rng)
    right = draw_rows(problem.right_rows, size=right_rows, sure=sure_right, rng=rng)
    in_left, in_right = np.zeros(problem.left_rows, dtype=bool), np.zeros(problem.right_rows, dtype=bool)
    in_left[left], in_right[right] = True, True
    inside = in_left[links[:, 0]] & in_right[links[:, 1]]
    if problem.kind == "one-to-one":
        in_left[links[~inside, 0]] = False
        in_right[links[~inside, 1]] = False
        left, right = np.flatnonzero(in_left), np.flatnonzero(in_right)
    return Slice(left, right, inside)


def draw_links(problem: LinkProblem, part: Slice, rng: np.random.Generator) -> IntArray:
    """As many links inside a slice as it has, at random and of the relation's kind: positions among its rows.

    Where a row must not be linked to itself, it is not.
    """
    n1, n2 = len(part.left), len(part.right)
    twin = np.full(n1, -1, dtype=np.int64)
    if problem.bars_self:
        _, own, other = np.intersect1d(part.left, part.right, assume_unique=True, return_indices=True)
        twin[own] = other
    if problem.kind == "one-to-many":
        left = np.arange(n1)
        right = rng.integers(0, np.where(twin >= 0, n2 - 1, n2))
        right += (twin >= 0) & (right >= twin)
    elif problem.kind == "one-to-one":
        left = rng.permutation(n1)[: part.links]
        right = without_self_pairs(left, rng.permutation(n2)[: part.links], n2, rng, twin=twin)
    else:
        spare = int(np.count_nonzero(twin >= 0))
        left, right = np.divmod(rng.choice(n1 * n2, size=part.links + spare, replace=False), n2)
        fine = np.flatnonzero(twin[left] != right)[: part.links]
        left, right = left[fine], right[fine]
    return np.stack([left, right], axis=1)


def _first_distinct(rows: IntArray, count: int) -> IntArray:
    """The first ``count`` distinct entries, or all there are."""
    _, first = np.unique(rows, return_index=True)
    return rows[np.sort(first)[:count]]
