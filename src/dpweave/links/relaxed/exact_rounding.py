r"""Rounding with an exact total: from a weighted to an unweighted bi-adjacency matrix (paper, `sec::ubs`).

Given inclusion probabilities b with :math:`\sum_i b_i = m`, choose exactly m distinct positions, position i with
probability :math:`b_i`, such that the indicators are **negatively associated**; then Hoeffding's bound holds for every
linear query (`thm::concentration`). Drawing with rejection is biased, drawing independently misses the total.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpweave.errors import UsageError

if TYPE_CHECKING:
    from dpweave.arrays import FloatArray, IntArray

_SUM_TOLERANCE = 1e-6
"""How far, relative to the total, the probabilities may be from adding up to a whole number."""


def unbiased_sample(b: FloatArray, rng: np.random.Generator) -> IntArray:
    r"""Exactly m distinct positions of the flattened ``b``, position i with probability :math:`b_i`, in O(N).

    This is the guarantee of `thm::ubs` and `thm::concentration` by **ordered pivotal sampling**. In the order of
    positions a survivor meets the next entry, and they fight as in the merging step of `alg::rec_ubs`: as long as their
    probabilities p + q stay below 1, one of them inherits the sum, with chances p : q, and the other is out (this is
    drawing one index from a group). When p + q >= 1, one of them is chosen for good, with chances 1 − q : 1 − p, and
    the other goes on with p + q − 1. The latter is UBS on the complements (1 − p, 1 − q), of which at most one is
    excluded. So both methods fight the same fights, in another tournament. Each fight keeps the expectation of every
    indicator, which gives :math:`P(i) = b_i`; for every fixed tournament the indicators are negatively associated
    (Dubhashi, Jonasson, Ranjan 2007, theorem 5.1; strongly Rayleigh by Brändén, Jonasson 2012).

    What the fixed order buys is that no loop remains. Cut the cumulative sum at the integers. In stratum (j − 1, j]
    let :math:`k_j` be the entry that reaches over j, by :math:`r_j`, and :math:`a_j = b_{k_j} - r_j` its part inside.
    Before it comes into play the stratum holds the loser of the previous border, with mass :math:`r_{j-1}`, and the
    inner entries; the survivor is one of them, drawn by mass. Then the survivor, with :math:`1 - a_j`, meets
    :math:`k_j`, with :math:`a_j + r_j`: :math:`k_j` is chosen with probability :math:`a_j / (1 - r_j)`, else the
    survivor, and the loser goes on with :math:`r_j`. All coins are independent of each other, and "who is the loser of
    border j" is either named by the coins of stratum j or handed on from j − 1: a forward fill.

    Neighbouring positions repel each other most, so an order that puts like next to like acts as stratification.
    The result is in the order of strata, not sorted.

    >>> unbiased_sample(np.array([0.0, 1.0, 0.0, 1.0]), np.random.default_rng(0))
    array([1, 3])
    """
    flat = np.ravel(b).astype(np.float64, copy=False)
    m = _whole_total(flat)
    # With entries within rounding error of 1 taken first, none can reach over two borders.
    certain = flat >= 1.0 - max(1e-9, 16.0 * np.spacing(float(m)))
    if not certain.any():
        return _pivotal(flat, m, rng)
    sure = np.flatnonzero(certain)
    rest = np.flatnonzero(~certain)
    if len(sure) >= m:
        return sure[:m]
    return np.concatenate([sure, rest[_pivotal(flat[rest], m - len(sure), rng)]])


def _whole_total(flat: FloatArray) -> int:
    if len(flat) == 0:
        return 0
    low, high, total = float(flat.min()), float(flat.max()), float(flat.sum())
    if not (low >= -1e-9 and high <= 1.0 + 1e-9):
        raise UsageError(f"probabilities lie in {low:g} … {high:g}; they must lie in 0 … 1")
    m = round(total)
    if abs(total - m) > _SUM_TOLERANCE * max(1.0, m):
        raise UsageError(f"probabilities add up to {total:.9g}; they must add up to a whole number")
    return m


def _pivotal(flat: FloatArray, m: int, rng: np.random.Generator) -> IntArray:
    """Ordered pivotal sampling of ``m`` positions where no probability is within rounding error of 1."""
    if m == 0:
        return np.zeros(0, dtype=np.int64)
    summed = np.cumsum(np.maximum(flat, 0.0) if flat.min() < 0.0 else flat)
    end = float(summed[-1])
    width = end / m  # 1 up to rounding: borders follow the sum as it came out, so that the last entry ends at the last
    borders = np.arange(1, m + 1) * width
    borders[-1] = end
    border = np.searchsorted(summed, borders, side="left")
    inner_end = np.where(border > 0, summed[border - 1], 0.0)  # where the inner entries of a stratum end ...
    inner_start = np.concatenate([[0.0], summed[border[:-1]]])  # ... and start
    spill = np.maximum(summed[border] - borders, 0.0) / width
    carried = np.concatenate([[0.0], spill[:-1]])
    inner = np.where(border > np.concatenate([[-1], border[:-1]]) + 1, np.maximum(inner_end - inner_start, 0.0), 0.0)
    inner /= width
    border_part = np.clip((borders - inner_end) / width, 0.0, 1.0)
    coins = rng.random((3, m))
    # The survivor of a stratum: an inner entry, or whoever lost at the border before.
    from_inner = coins[0] * (carried + inner) < inner
    point = np.minimum(inner_start + coins[1] * (inner * width), np.nextafter(inner_end, 0.0))
    at = np.searchsorted(summed, np.where(from_inner, point, inner_start), side="right")
    border_wins = coins[2] * (1.0 - spill) < border_part
    # Loser of border j: the border entry itself, or the stratum's survivor; -1 hands on the loser before.
    loser = np.where(border_wins, np.where(from_inner, at, -1), border)
    named = np.maximum.accumulate(np.where(loser >= 0, np.arange(m), -1))
    previous = np.concatenate([[-1], named[:-1]])
    survivor = np.where(from_inner, at, loser[previous])
    # Without mass before it, the first border entry has nobody to fight.
    return np.where(border_wins | ((previous < 0) & ~from_inner), border, survivor)


def recursive_sample(b: FloatArray, rng: np.random.Generator) -> IntArray:
    r"""The paper's own scheme, `alg::rec_ubs`: the same guarantee as :func:`unbiased_sample` by merge and complement.

    Merge positions greedily into groups whose sums do not pass 1, choose which groups to leave out by the same scheme
    on the complements, then draw one position from each group that stays. One correction to the pseudo-code: an entry
    that would overflow a group *starts* the next one; as printed it is dropped, and never chosen.

    Group borders are found one after the other, so this takes O(N) vectorised and O(m) interpreted steps.
    """
    flat = np.maximum(np.ravel(b).astype(np.float64, copy=False), 0.0)
    return np.sort(_ubs(flat, _whole_total(flat), rng))


def _ubs(x: FloatArray, m: int, rng: np.random.Generator) -> IntArray:
    if m == 0:
        return np.zeros(0, dtype=np.int64)
    if m == 1:
        return _draw(np.cumsum(x), np.array([0]), np.array([len(x)]), rng)
    if m == len(x):
        return np.arange(m)
    summed = np.cumsum(x)
    starts = _greedy_groups(summed)
    ends = np.append(starts[1:], len(x))
    sums = summed[ends - 1] - np.where(starts > 0, summed[starts - 1], 0.0)
    if len(starts) < m:
        raise UsageError(f"probabilities fill {len(starts)} groups; {m} are needed")
    stays = np.ones(len(starts), dtype=bool)
    stays[_ubs(np.clip(1.0 - sums, 0.0, 1.0), len(starts) - m, rng)] = False
    return _draw(summed, starts[stays], ends[stays], rng)


def _greedy_groups(summed: FloatArray) -> IntArray:
    """Where groups start, each as long as its sum does not pass 1 (up to rounding, so that sums of 1 stay together)."""
    slack = 1.0 + 4.0 * np.spacing(summed[-1])
    starts, filled = [0], 0.0
    while True:
        start = int(np.searchsorted(summed, filled + slack, side="right"))
        if start >= len(summed):
            return np.array(starts)
        start = max(start, starts[-1] + 1)
        starts.append(start)
        filled = float(summed[start - 1])


def _draw(summed: FloatArray, starts: IntArray, ends: IntArray, rng: np.random.Generator) -> IntArray:
    """One position from each group, by mass."""
    low = np.where(starts > 0, summed[starts - 1], 0.0)
    high = summed[ends - 1]
    point = np.minimum(low + rng.random(len(starts)) * (high - low), np.nextafter(high, low))
    return np.clip(np.searchsorted(summed, point, side="right"), starts, ends - 1)


def cell_counts(b: FloatArray, multiplicity: FloatArray, rng: np.random.Generator) -> IntArray:
    r"""How many links each pair of types gets: the weighted form of :func:`unbiased_sample`, flattened.

    A cell that stands for c pairs with probability b each has mass c·b. It gets the whole part for certain, and one
    more by unbiased sampling over the fractional parts; placing them on pairs of the cell by drawing without
    replacement gives every pair its probability b and the total exactly. The pairs are negatively associated: shuffle
    each cell, call the first pairs certain, the next one a candidate and the others out. Given the shuffles, only
    candidates vary, one per cell, and they are negatively associated; the shuffled labels are a permutation
    distribution in each cell and independent between cells, hence negatively associated too, and conditional means are
    monotone in the labels. The law of total covariance adds two terms that are not positive.
    """
    mass = np.ravel(b) * np.ravel(multiplicity)
    total = float(mass.sum())
    m = round(total)
    if abs(total - m) > _SUM_TOLERANCE * max(1.0, m):
        raise UsageError(f"masses add up to {total:.9g}; they must add up to a whole number")
    whole = np.floor(mass + 1e-9)
    fraction = np.clip(mass - whole, 0.0, 1.0)
    missing = m - int(whole.sum())
    counts = whole.astype(np.int64)
    if missing > 0:
        spread = float(fraction.sum())
        counts[unbiased_sample(np.minimum(fraction * (missing / spread), 1.0), rng)] += 1
    return counts.reshape(np.shape(b))


def categorical_round(b: FloatArray, rng: np.random.Generator) -> IntArray:
    r"""For each row one column, column j with probability :math:`b_{ij}` (paper, `alg::categoricalround`).

    >>> categorical_round(np.array([[0.0, 1.0], [1.0, 0.0]]), np.random.default_rng(0))
    array([1, 0])
    """
    sums = b.sum(axis=1)
    if (b < -1e-9).any() or (np.abs(sums - 1.0) > _SUM_TOLERANCE).any():
        raise UsageError("a row is not a distribution: entries must be non-negative and add up to 1")
    summed = np.cumsum(np.maximum(b, 0.0), axis=1)
    point = rng.random(len(b)) * summed[:, -1]
    return np.asarray(
        (summed <= np.minimum(point, np.nextafter(summed[:, -1], 0.0))[:, None]).sum(axis=1), dtype=np.int64
    )
