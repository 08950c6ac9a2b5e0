r"""Degrees that depend on a row's values within a group of degrees too, and whose sums are right.

A table model tells in which group a row's degree lies, and the noisy distribution of degrees tells the rest. Drawing a
degree within its group blindly would lose half of how degrees depend on other columns, and the sum of a few hundred
heavy-tailed draws is off by several percent. So the degrees of a group are *dealt out*:

**Tilt.** With :math:`w` the standardised logarithm of a degree, let rows with values x have degrees of density
:math:`q(D) \exp(t(x)\, w(D))` up to a factor, :math:`t(x) = \sum_c \theta_c[x_c]`. To first order in t the mean
:math:`\bar w_g` of a row's group has expectation :math:`V t(x)` and variance :math:`V = \sum_g p_g \bar w_g^2`. So θ is
a ridge regression on the groups alone, with a prior variance per column by expectation maximisation: what a column does
not show in the groups it does not get within them.

**Dealing.** In a group with variance :math:`v_g` of w, rows are ranked by a quantile of the group's degrees plus
:math:`v_g t(x)`, and the sorted degrees follow that ranking, so the distribution of degrees is kept exactly. The
quantiles are the golden ratio's multiples modulo one in the sorted order of the rows' values: any run of equal values
gets evenly spread ones.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.arrays import FloatArray, IntArray

COEFFICIENTS = 1000
"""The columns with the fewest values are regressed on, up to this many values in all."""
_GOLDEN = (5**0.5 - 1) / 2
_ROUNDS = 12
_LEAST_VARIANCE = 1e-6


def deal(degrees: IntArray, groups: IntArray, rows: Mapping[str, IntArray], rng: np.random.Generator) -> IntArray:
    """Exchange degrees among rows of the same group, so that sums per value are right.

    Within a group they depend on columns as the groups do.
    ``degrees`` are any draws within the ``groups``; ``rows`` holds the codes of the other columns.

    >>> sorted(deal(np.array([1, 9, 2]), np.array([0, 1, 0]), {"a": np.array([0, 0, 1])}, np.random.default_rng(0)))
    [np.int64(1), np.int64(2), np.int64(9)]
    """
    if len(degrees) < 2:
        return degrees
    shape = {c: int(codes.max()) + 1 for c, codes in rows.items()}
    columns = sorted((c for c in rows if shape[c] > 1), key=lambda c: shape[c])
    if not columns:
        return degrees
    size = np.log1p(degrees)
    size = (size - size.mean()) / max(float(size.std()), 1e-12)
    means = np.bincount(groups, weights=size) / np.maximum(np.bincount(groups), 1)
    effect = tilts(means[groups], {c: rows[c] for c in columns}, shape)
    # The column with most values sorts first: its runs are short, and in one piece.
    order = np.lexsort([rows[c] for c in columns])
    out = np.empty_like(degrees)
    for group in np.unique(groups):
        at = order[groups[order] == group]
        pool = np.sort(degrees[at])
        ranked = np.sort(size[at])
        quantile = (np.arange(len(at)) * _GOLDEN + rng.random()) % 1.0
        place = ranked[(quantile * len(at)).astype(np.int64)] + ranked.var() * effect[at]
        out[at[np.argsort(place, kind="stable")]] = pool
    return out


def tilts(score: FloatArray, rows: Mapping[str, IntArray], shape: Mapping[str, int]) -> FloatArray:
    """Return t(x) of every row from the mean log degree of its group, by ridge
    regression with a variance per column.
    """
    signal = float((score**2).mean())
    columns: list[str] = []
    for c in sorted(rows, key=lambda c: shape[c]):
        if sum(shape[d] for d in columns) + shape[c] <= COEFFICIENTS:
            columns.append(c)
    if signal < 1e-9 or not columns:
        return np.zeros(len(score))
    starts = np.cumsum([0] + [shape[c] for c in columns])
    cells = [rows[c] + start for c, start in zip(columns, starts, strict=False)]
    size = int(starts[-1])
    gram = np.zeros((size, size))
    for one in cells:
        for two in cells:
            gram += np.bincount(one * size + two, minlength=size * size).reshape(size, size)
    sums = sum(np.bincount(one, weights=score, minlength=size) for one in cells)
    variance = np.full(size, 0.1**2)
    for _ in range(_ROUNDS):
        spread = np.linalg.inv(signal * gram + np.diag(1 / variance))
        theta = spread @ sums
        second = theta**2 + np.diag(spread)
        for low, high in pairwise(starts):
            variance[low:high] = max(float(second[low:high].mean()), _LEAST_VARIANCE)
    return np.asarray(sum(theta[one] for one in cells))
