"""How far two databases are apart, as numbers: each a few lines with an obvious oracle in the tests."""

from __future__ import annotations

from itertools import combinations
from math import comb, prod
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dpweave.arrays import FloatArray, IntArray

T = TypeVar("T")
DENSE_CELLS = 1 << 21
"""Cells up to which counts are held as a whole array; beyond, occupied cells alone."""


def cell_numbers(columns: Sequence[Sequence[IntArray]], sizes: Sequence[int]) -> tuple[list[IntArray], int]:
    """Number the cells that the rows of several databases fall into, alike for all of them.

    ``columns[d][j]`` holds codes of column j in database d. Returns one array of cell numbers per database, and how
    many numbers there are.
    """
    lengths = [len(database[0]) for database in columns]
    ends = np.cumsum(lengths)[:-1]
    flat = np.zeros(sum(lengths), dtype=np.int64)
    width = 1
    for j, size in enumerate(sizes):
        stacked = np.concatenate([database[j] for database in columns])
        flat = flat * size + stacked
        width *= size
        if width > DENSE_CELLS:
            occupied, flat = np.unique(flat, return_inverse=True)
            flat, width = flat.reshape(-1).astype(np.int64), max(len(occupied), 1)
    return np.split(flat, ends), width


def shares(columns: Sequence[Sequence[IntArray]], sizes: Sequence[int]) -> Iterator[FloatArray]:
    """Share of rows in each cell, one database after the other, by the same cells for all of them."""
    if prod(sizes) <= DENSE_CELLS:
        yield from (frequencies(_numbered(database, sizes), prod(sizes)) for database in columns)
        return
    cells, width = cell_numbers(columns, sizes)
    yield from (frequencies(c, width) for c in cells)


def _numbered(columns: Sequence[IntArray], sizes: Sequence[int]) -> IntArray:
    flat = np.zeros(len(columns[0]), dtype=np.int64)
    for codes, size in zip(columns, sizes, strict=True):
        flat *= size
        flat += codes
    return flat


def frequencies(cells: IntArray, width: int) -> FloatArray:
    """Share of rows in each cell; all zero where there are no rows."""
    counts = np.bincount(cells, minlength=width).astype(np.float64)
    return counts / max(len(cells), 1)


def l1_distance(p: FloatArray, q: FloatArray) -> float:
    r"""Return :math:`\sum_i |p_i - q_i|`, between 0 and 2. A database without rows is as far as can be: 2."""
    if not p.any() or not q.any():
        return 0.0 if p.any() == q.any() else 2.0
    return float(np.abs(p - q).sum())


def ks_distance(a: IntArray, b: IntArray) -> float:
    r"""Return the Kolmogorov-Smirnov distance :math:`\sup_x |F_a(x) - F_b(x)|` of two samples of whole numbers.

    >>> ks_distance(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]))
    0.25
    """
    if not len(a) or not len(b):
        return 0.0 if len(a) == len(b) else 1.0
    counted = [np.unique(x, return_counts=True) for x in (a, b)]
    points = np.union1d(counted[0][0], counted[1][0])
    rises = np.zeros((2, len(points)))
    for i, (values, counts) in enumerate(counted):
        rises[i, np.searchsorted(points, values)] = counts / counts.sum()
    return float(np.abs(np.cumsum(rises[0] - rises[1])).max())


def standardised_residuals(joint: FloatArray) -> FloatArray:
    r"""Return :math:`(P_{ij} - p_i q_j) / \sqrt{p_i q_j}`, zero where a margin is.

    Its squared norm is Pearson's :math:`\varphi^2 = \chi^2 / n`, zero exactly under independence.
    """
    total = joint.sum()
    if total <= 0:
        return np.zeros_like(joint, dtype=np.float64)
    shares = joint / total
    expected = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    scale = np.sqrt(np.where(expected > 0, expected, 1.0))
    return np.where(expected > 0, (shares - expected) / scale, 0.0)


def cramers_v(joint: FloatArray, *, like: FloatArray | None = None) -> float:
    r"""Cramér's :math:`V = \sqrt{\varphi^2 / (\min(r, c) - 1)}` over occupied rows and columns, from 0 to 1.

    To be compared with the V of another table, r and c are counted in that one, ``like``: a copy that lacks a rare
    value would otherwise seem to be up to :math:`\sqrt 2` times as strong, and one with a value too many weaker.
    """
    occupied, other = _occupied(joint), _occupied(joint if like is None else like)
    least = min(other.shape) - 1
    if least < 1 or not occupied.size:
        return 0.0
    return float(np.sqrt((standardised_residuals(occupied) ** 2).sum() / least))


def _occupied(joint: FloatArray) -> FloatArray:
    return np.asarray(joint[joint.sum(axis=1) > 0][:, joint.sum(axis=0) > 0])


def is_associated(counts: FloatArray) -> bool:
    r"""Whether :math:`\chi^2` lies clearly (three standard deviations) above what independence gives: df ± √(2 df)."""
    occupied = _occupied(counts)
    if not occupied.size:
        return False
    freedom = (occupied.shape[0] - 1) * (occupied.shape[1] - 1)
    chi2 = counts.sum() * (standardised_residuals(occupied) ** 2).sum()
    return bool(freedom > 0 and chi2 > freedom + 3 * np.sqrt(2 * freedom))


def retention(real: Iterable[FloatArray], synthetic: Iterable[FloatArray]) -> float:
    r"""How much of the real association survives: :math:`\sum \langle R, S \rangle / \sum \langle R, R \rangle`.

    R and S are standardised residuals of the real and the synthetic joint distribution. 1 says that the association is
    all there, 0 is what random wiring gives in the mean, and a negative number that it was turned around. Unlike a
    comparison of strengths, association of another kind does not count.
    """
    pairs = [(standardised_residuals(r), standardised_residuals(s)) for r, s in zip(real, synthetic, strict=True)]
    whole = sum(float((r * r).sum()) for r, _ in pairs)
    return sum(float((r * s).sum()) for r, s in pairs) / whole if whole else float("nan")


def sampled_combinations(items: Sequence[T], k: int, *, most: int, rng: np.random.Generator) -> list[tuple[T, ...]]:
    """All sets of ``k`` items, or ``most`` of them drawn without replacement where there are more."""
    total = comb(len(items), k)
    if total <= most:
        return list(combinations(items, k))
    chosen: set[tuple[int, ...]] = set()
    while len(chosen) < most:
        chosen.add(tuple(sorted(rng.choice(len(items), size=k, replace=False).tolist())))
    return [tuple(items[i] for i in c) for c in sorted(chosen)]
