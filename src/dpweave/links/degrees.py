r"""How many links each row has: buckets to whole degrees, both sides to one sum, and what a bounded view sees of them.

A row's degree is a bucketed column of the row (ALGORITHMS B2): measured with its table, synthesised with it, and a
column like any other for the link learner. Links are learned on a bounded view, in which a row of degree D shows
min(D, d) links, and wired to full degrees. What is learned is how the other side depends on a row's values and degree;
how many links such rows have comes from the degrees. So the bound costs accuracy and brings no bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen
from dpweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpweave.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class Degrees:
    """What is known of the degrees in a relation; every part may be missing.

    ``left`` and ``right`` are the degrees that synthetic rows shall have. Where they are not known, ``left_bound`` and
    ``right_bound`` cap them, the latter for all rows or row by row. ``left_seen`` and ``right_seen`` are the shares of
    a row's links that survive bounding: 1 if missing, and :func:`seen` of the degree otherwise. ``right_weights`` say
    how much likelier than others a right row is linked to, where its degree is not known: what counts tell of its
    columns comes on top.
    """

    left: IntArray | None = None
    right: IntArray | None = None
    left_bound: int | None = None
    right_bound: int | IntArray | None = None
    left_seen: FloatArray | None = None
    right_seen: FloatArray | None = None
    right_weights: FloatArray | None = None

    def __post_init__(self) -> None:
        for name in ("left", "right", "left_seen", "right_seen", "right_weights"):
            values = getattr(self, name)
            if values is not None and (values.ndim != 1 or (len(values) and values.min() < 0)):
                raise UsageError(f"{name}: one number of at least 0 per row is needed")
        for name in ("left_bound", "right_bound"):
            bound = getattr(self, name)
            if isinstance(bound, int) and bound < 1:
                raise UsageError(f"{name} = {bound}: a bound on degrees is at least 1")


_STEEPEST, _HALVINGS = 60.0, 50
"""Powers that are tried: at these all rows have the least degree, or the largest. Halved so often they are exact."""

UNKNOWN = Degrees()
"""Nothing is known of any degree."""


def seen(degrees: IntArray, bound: int) -> FloatArray:
    """Share of a row's links that are left when at most ``bound`` of them are kept.

    >>> seen(np.array([0, 5, 40]), 10)
    array([1.  , 1.  , 0.25])
    """
    return np.asarray(np.minimum(1.0, bound / np.maximum(degrees, 1)), dtype=np.float64)


def bucketed(degrees: IntArray, edges: Sequence[int]) -> IntArray:
    """Bucket of each degree; what lies above the last edge counts with the last bucket.

    >>> from dpweave.schema.degree_buckets import buckets
    >>> bucketed(np.array([0, 4, 6, 99]), buckets(10))
    array([0, 4, 5, 7])
    """
    at = np.searchsorted(np.asarray(edges), degrees, side="right") - 1
    return np.clip(at, 0, len(edges) - 2)


def decode(codes: IntArray, edges: Sequence[int], rng: np.random.Generator) -> IntArray:
    r"""Draw a degree for each bucket, with a slope within the bucket that its neighbours suggest.

    The density of a bucket is its share of the rows over its width. Within it the density of a degree x is taken to be
    exponential, :math:`e^{s (x - c)}`, with the slope s of the line between the neighbours' log densities over their
    midpoints: falling tails fall inside their buckets too, so that the mean is right without being measured.
    Draws are stratified: the rows of a bucket get evenly spread quantiles in random order.
    """
    limits = np.asarray(edges, dtype=np.int64)
    widths = np.diff(limits)
    share = np.bincount(codes, minlength=len(widths)).astype(np.float64)
    middle = limits[:-1] + (widths - 1) / 2
    density = np.log(np.maximum(share, 0.5) / widths)
    out = np.empty(len(codes), dtype=np.int64)
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(widths)))
    for b in np.flatnonzero(share):
        rows = order[ends[b] - int(share[b]) : ends[b]]
        # A neighbour that is empty, or below and nearly so (noise), is the end of the distribution: no slope to it.
        low = b - 1 if b and share[b - 1] and density[b - 1] > density[b] - float(np.log(chosen.CLIFF)) else b
        high = b + 1 if b + 1 < len(widths) and share[b + 1] else b
        slope = (density[high] - density[low]) / (middle[high] - middle[low]) if high > low else 0.0
        values = np.arange(limits[b], limits[b + 1])
        mass = np.exp(slope * (values - (values[-1] if slope > 0 else values[0])))
        edge = np.cumsum(mass / mass.sum())
        at = np.searchsorted(edge, (np.arange(len(rows)) + rng.random()) / len(rows), side="right")
        out[rng.permutation(rows)] = values[np.minimum(at, len(values) - 1)]
    return out


def telling_cuts(edges: Sequence[int], shares: FloatArray, *, rows: float, noise: float, most: int) -> tuple[int, ...]:
    r"""Where to cut degrees so that noisy numbers of rows per group tell most about a
    sum of degrees; at most ``most`` cuts.

    Take n ``rows`` of one value, with degrees in the buckets by ``shares``. The numbers of them in groups with shares
    :math:`p_g` and mean degrees :math:`m_g` have covariance :math:`S = n(\mathrm{diag}(p) - p p^T) + \sigma^2 I` with
    ``noise`` σ, and covariance :math:`c_g = n p_g (m_g - m)` with the sum of degrees, so the best linear prediction of
    the sum explains :math:`c^T S^{-1} c` of its variance. More groups leave less unexplained and have more noise. A cut
    more must explain a twentieth more, since it costs cells wherever the column goes. Each is put where it explains
    most, and then all are moved in turn.

    >>> edges = (0, 10, 20, 40, 80, 160, 320)
    >>> shares = np.array([0.2, 0.3, 0.2, 0.15, 0.1, 0.05])
    >>> [len(telling_cuts(edges, shares, rows=300.0, noise=s, most=4)) for s in (30.0, 3.0)]
    [1, 3]
    """
    middle = (np.array(edges[:-1]) + np.array(edges[1:]) - 1) / 2
    away = middle - shares @ middle

    def explained(cuts: Sequence[int]) -> float:
        starts = np.array([0, *sorted(cuts)])
        p = np.add.reduceat(shares, starts)
        c = rows * np.add.reduceat(shares * away, starts)
        return float(c @ np.linalg.solve(rows * (np.diag(p) - np.outer(p, p)) + noise**2 * np.eye(len(p)), c))

    def best(others: Sequence[int]) -> list[int]:
        free = [i for i in range(1, len(shares)) if i not in others]
        return [*others, max(free, key=lambda i: explained([*others, i]))]

    found = best([])
    while len(found) < min(most, len(shares) - 1):
        more = best(found)
        for _ in range(2 * len(more)):
            more = best(more[1:])
        if explained(more) < (1 + chosen.WORTHWHILE) * explained(found):
            break
        found = more
    return tuple(edges[i] for i in sorted(found))


def match_total(degrees: IntArray, total: int, *, cap: int, rng: np.random.Generator) -> IntArray:
    """Change degrees as evenly as possible so that they add up to ``total``, none above ``cap``.

    Every degree is scaled by the same factor and rounded at random around it, so their distribution keeps its shape.

    >>> match_total(np.array([1, 2, 3]), 12, cap=9, rng=np.random.default_rng(0))
    array([2, 4, 6])
    """
    if total > cap * len(degrees) or total < 0:
        raise UsageError(f"{len(degrees)} rows with at most {cap} links each cannot have {total}")
    wanted = degrees.astype(np.float64) if degrees.any() else np.ones(len(degrees))
    return whole(fill(wanted, np.full(len(degrees), float(cap)), float(total)), total, rng, shuffle=True)


def reweighed(degrees: IntArray, total: int, rng: np.random.Generator) -> IntArray:
    r"""Let degrees come more or less often, so that they add up to about ``total``; none comes that did not.

    A degree D comes :math:`(1 + D)^t` times as often. Scaling all of them (:func:`match_total`) makes degrees that
    nobody has: of owners with five or seven, some would have six. Rows keep their order by degree. Where degrees are
    all alike, or the sum is out of their reach, they stay as they are.

    >>> sorted(reweighed(np.array([1, 1, 1, 7, 7]), 23, np.random.default_rng(0)).tolist())
    [1, 1, 7, 7, 7]
    """
    values, counts = np.unique(degrees, return_counts=True)
    rows = len(degrees)
    if len(values) < 2 or not values[0] * rows < total < values[-1] * rows:
        return degrees
    size = np.log1p(values) - np.log1p(values[-1])

    def shares(t: float) -> FloatArray:
        logs = np.log(counts) + t * size
        mass = np.exp(logs - logs.max())
        return np.asarray(mass / mass.sum())

    low, high = -_STEEPEST, _STEEPEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if shares(middle) @ values * rows < total else (low, middle)
    out = np.empty_like(degrees)
    order = np.lexsort((rng.random(rows), degrees))
    out[order] = np.repeat(values, whole(shares((low + high) / 2) * rows, rows, rng))
    return out


def at_least(degrees: IntArray, least: int, *, rng: np.random.Generator) -> IntArray:
    """Raise degrees to ``least``, and lower larger ones so that their sum stays, as far as it can.

    >>> at_least(np.array([0, 1, 5]), 1, rng=np.random.default_rng(0))
    array([1, 1, 4])
    """
    if not least or not len(degrees):
        return degrees
    over = np.maximum(degrees - least, 0)
    total = max(int(degrees.sum()) - least * len(degrees), 0)
    return least + match_total(over, total, cap=max(int(over.max()), -(-total // len(degrees))), rng=rng)


def fill(wanted: FloatArray, capacity: FloatArray, total: float) -> FloatArray:
    """Scale ``wanted`` to ``total`` where ``capacity`` allows; what does not fit goes to the others in proportion.

    >>> fill(np.array([1.0, 1.0, 2.0]), np.array([9.0, 9.0, 3.0]), 9.0)
    array([3., 3., 3.])
    """
    out = np.zeros(len(wanted))
    open_ = np.ones(len(wanted), dtype=bool)
    for _ in range(len(wanted) + 1):
        rest = total - out[~open_].sum()
        base = wanted[open_].sum()
        # Where nothing is wanted but something is left, room is shared evenly.
        share = wanted[open_] * (rest / base) if base > 0 else np.full(int(open_.sum()), rest / max(open_.sum(), 1))
        out[open_] = share
        over = open_ & (out > capacity)
        if not over.any():
            break
        out[over] = capacity[over]
        open_ &= ~over
        if not open_.any():
            break
    return out


def whole(expected: FloatArray, total: int, rng: np.random.Generator, *, shuffle: bool = False) -> IntArray:
    """Round to whole numbers that add up to ``total``, each to a neighbour of its expectation, without bias.

    Systematic in the given order, which keeps sums of neighbours right too, or in random order.

    >>> whole(np.array([0.5, 0.5, 1.0]), 2, np.random.default_rng(0)).sum()
    np.int64(2)
    """
    order = rng.permutation(len(expected)) if shuffle else np.arange(len(expected))
    edges = np.cumsum(expected[order])
    edges = np.floor(edges + rng.random() + 1e-9)
    if len(edges):
        edges[-1] = total
    out = np.empty(len(expected), dtype=np.int64)
    out[order] = np.diff(np.minimum(edges, total), prepend=0).astype(np.int64)
    return out


def degrees_of(
    codes: IntArray, groups: IntArray, fine: IntArray, counts: IntArray, rng: np.random.Generator
) -> IntArray:
    """Draw a degree for each row from the fine buckets of its group, in proportion to their noisy counts."""
    bucket = np.zeros(len(codes), dtype=np.int64)
    for group, (low, high) in enumerate(pairwise(groups)):
        rows = np.flatnonzero(codes == group)
        inside = np.flatnonzero((fine[:-1] >= low) & (fine[:-1] < high))
        if not len(rows) or not len(inside):
            continue
        weight = np.maximum(counts[inside], 0).astype(np.float64)
        weight = weight if weight.sum() > 0 else 1 / (1.0 + fine[inside])
        exact = whole(weight / weight.sum() * len(rows), len(rows), rng)
        bucket[rng.permutation(rows)] = np.repeat(inside, exact)
    return decode(bucket, fine.tolist(), rng)
