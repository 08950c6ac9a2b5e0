r"""How many rows owners have: noisy counts of their degrees and of the rows themselves, put together.

Clients of the wall. A table's rows are counted directly, with noise in proportion to the bound on what one unit owns,
and owners are counted by their degree. Both tell the number of rows within bounds.

Degrees are looked at twice. The first look counts owners in buckets that grow, up to a million, for a small part of the
budget. The second counts all of them again, and cuts each bucket into as many cells as its noisy count lets stand out
(:func:`finer`). Where owners are many, that is one cell per degree. Where they are few nothing is lost: a bucket that
stays whole was counted twice, with the noise of the whole budget (:func:`joined`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from scipy.special import erfcx

from dpweave import chosen
from dpweave.links.degrees import telling_cuts
from dpweave.measure.answers import averaged
from dpweave.privacy.window import NoisyMarginal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpweave.arrays import FloatArray, IntArray


DegreeCounts: TypeAlias = tuple[NoisyMarginal, tuple[int, ...]]
"""Noisy numbers of owners by degree, and the edges of the cells they were counted in."""


@dataclass(frozen=True)
class Rows:
    """A number of rows and its standard error. ``loose`` is how far degrees that are
    drawn may differ from it: where it is known by them, as far as they tell it.
    """

    rows: float
    sigma: float
    loose: float = 0.0

    @property
    def used(self) -> float:
        """The number to go by: noise may leave less than none."""
        return max(self.rows, 0.0)


def with_declared(counted: Rows, declared: float) -> Rows:
    r"""Weigh a noisy count against about how many rows the plan says there are, each by its error.

    A table of which somebody knows about how many rows it has is not without rows, whatever noise says: of what both
    leave possible, the part below none is left out. With z standard deviations above none and the inverse Mills ratio
    :math:`h = \varphi(z) / \Phi(z)` that makes :math:`\sigma h` rows more, and the variance is
    :math:`\sigma^2 (1 - h (h + z))`.

    >>> found = with_declared(Rows(-900.0, 1000.0), 800.0)
    >>> round(found.rows), round(found.sigma)
    (615, 328)
    >>> round(with_declared(Rows(100_000.0, 50.0), 20_000.0).rows)
    99998
    """
    about = chosen.DECLARED_DOUBT * declared
    if counted.sigma == 0 or about <= 0:
        return counted
    share = about**2 / (about**2 + counted.sigma**2)
    rows, sigma = share * counted.rows + (1 - share) * declared, counted.sigma * math.sqrt(share)
    above = rows / sigma
    mills = math.sqrt(2 / math.pi) / float(erfcx(-above / math.sqrt(2)))
    left = max(1 - mills * (mills + above), 0.0)  # rounding may leave less than none
    return replace(counted, rows=rows + sigma * mills, sigma=sigma * math.sqrt(left))


def combined(direct: Rows, owners: Rows, marginal: NoisyMarginal, edges: tuple[int, ...], *, bound: int) -> Rows:
    r"""How many rows a table has within bounds, by all counts of it: its own, and those of its ``owners`` by degree.

    Buckets up to those that stand out of noise give a number :math:`R` of rows with variance v. Those above may be
    empty, or hold T owners of t rows. T is what is left of all owners, :math:`\hat T \pm \sigma_T`; t is what is left
    of the ``direct`` count :math:`\hat N \pm s`, :math:`D = \hat N - R`, with variance :math:`s^2 + v`; and :math:`m T
    \le t \le b T` for a tail that begins at degree m and a bound b. An empty tail is weighed against one that lies
    anywhere in there, up to all n owners (a Bayes factor), with odds

    .. math:: \frac{n^2 (b - m) / 2}{2 \pi \sigma_T \sqrt{s^2 + v}} \exp\Bigl(-\frac{\chi^2_0 - \chi^2_1}{2}\Bigr)

    of the residuals of either, times :math:`e^{z^2/2}` for a z of ``chosen.SIGNIFICANT``: an empty tail is given up
    where counts contradict it as clearly as that. Taking unclear buckets for empty without that loses most of a table
    whose rows are in its tail. The mean of both stays within ``chosen.SIGNIFICANT`` standard deviations of the direct
    count.
    """
    end = _end(marginal)
    below = _below(marginal, edges, end=end, bound=bound)
    if below is None or not _tail(marginal):
        return direct
    left, spread = direct.rows - below.rows, math.hypot(direct.sigma, below.sigma)
    unseen = _unseen(owners, marginal, end)
    least = min(edges[min(end, len(edges) - 1)], bound)
    point = np.array([unseen.rows / unseen.sigma, left / spread])
    rays = [np.array([1 / unseen.sigma, each / spread]) for each in (least, bound)]
    nearest = _in_cone(point, *rays)
    most = max(owners.rows, 1.0)
    wide = most**2 * (bound - least) / (4 * math.pi * unseen.sigma * spread)
    narrow = most * float(np.linalg.norm(rays[1])) / math.sqrt(2 * math.pi)
    gain = float(point @ point - (point - nearest) @ (point - nearest)) / 2
    empty = 1 / (1 + math.exp(min(gain - chosen.SIGNIFICANT**2 / 2 - math.log(max(wide, narrow, 1.0)), 700.0)))
    share = direct.sigma**2 / spread**2
    without, within = (direct.rows - (left - t) * share for t in (0.0, float(nearest[1]) * spread))
    rows = empty * without + (1 - empty) * within
    # Nothing but the direct count tells how many rows a tail has; and one that is taken
    # for empty may hold what would fit best.
    known, room = direct.sigma * below.sigma / spread, chosen.SIGNIFICANT * direct.sigma
    error = math.hypot(math.sqrt(empty) * known, math.sqrt(1 - empty) * direct.sigma, within - without)
    rows = min(max(rows, direct.rows - room), direct.rows + room)
    loose = (
        empty * chosen.SIGNIFICANT * math.hypot(known, rows * owners.sigma / most)
    )  # rows of each owner, by both their numbers
    return Rows(rows, min(error, direct.sigma), loose)


def kept_share(marginal: NoisyMarginal, edges: tuple[int, ...], *, bound: int) -> float:
    """Share of all rows that a ``bound`` on what one owner has leaves to be counted; 1
    where no larger degree is beyond doubt.
    """
    last = _tail(marginal)
    kept, every = (_below(marginal, edges, end=last + 1, bound=b) for b in (bound, edges[-1]))
    if edges[last] <= bound or kept is None or every is None:
        return 1.0
    return min(kept.rows / every.rows, 1.0)


def within_owners(child: Rows, owners: Rows, *, bound: int) -> tuple[Rows, Rows]:
    """Nearest numbers of rows, by their errors, of which owners have at most ``bound`` each: noisy ones may say more.

    Rows that do not stand out of their noise tell nothing of their owners (:func:`modest`).

    >>> within_owners(Rows(50.0, 10.0), Rows(0.0, 5.0), bound=2)
    (Rows(rows=25.0, sigma=10.0, loose=0.0), Rows(rows=12.5, sigma=5.0, loose=0.0))
    >>> within_owners(Rows(50.0, 10.0), Rows(30.0, 5.0), bound=2)
    (Rows(rows=50.0, sigma=10.0, loose=0.0), Rows(rows=30.0, sigma=5.0, loose=0.0))
    """
    excess, variance = child.rows - bound * owners.rows, child.sigma**2 + (bound * owners.sigma) ** 2
    if excess <= 0 or child.rows <= chosen.SIGNIFICANT * child.sigma or variance == 0:
        return child, owners
    return (
        replace(child, rows=child.rows - excess * child.sigma**2 / variance),
        replace(owners, rows=owners.rows + excess * bound * owners.sigma**2 / variance),
    )


def modest(child: Rows, owners: Rows, *, bound: int) -> Rows:
    """A number of rows that may be mere noise, at most what is the middle between one
    and ``bound`` for each owner, on a scale of ratios.

    Noise is in proportion to the product of all bounds up to the unit: three of 200
    make a hundred million rows of twenty.

    >>> modest(Rows(132e6, 800e6), Rows(500.0, 300.0), bound=400).rows
    10000.0
    """
    most = owners.used * math.sqrt(bound)
    return replace(child, rows=most) if most < child.rows <= chosen.SIGNIFICANT * child.sigma else child


def finer(look: NoisyMarginal, edges: tuple[int, ...]) -> tuple[int, ...]:
    """Edges of the second look: each bucket of the first in as many cells as would be beyond doubt if it were even.

    >>> finer(NoisyMarginal(("n",), np.array([50, 900, 40]), 8.0), (4, 5, 10, 14))
    (4, 5, 6, 7, 8, 9, 10, 12, 14)
    """
    least = chosen.BEYOND_DOUBT * look.sigma * math.sqrt(chosen.FIRST_COUNT / (1 - chosen.FIRST_COUNT))
    out: list[int] = []
    for (low, high), count in zip(pairwise(edges), look.counts.tolist(), strict=True):
        cells = max(min(high - low, int(count / least)), 1)
        out += [low + (high - low) * i // cells for i in range(cells)]
    return (*out, edges[-1])


def joined(looks: Sequence[NoisyMarginal], edges: tuple[int, ...]) -> DegreeCounts:
    r"""Put both looks at degrees together: counts of the cells of the second, and their edges.

    The p cells of a bucket have counts y with noise :math:`\sigma_2`, and the first look has their sum x with noise
    :math:`\sigma_1`. By least squares each cell gets :math:`(x - \sum y) \sigma_2^2 / (\sigma_1^2 + p \sigma_2^2)`
    more. Its noise is at most that of the second look. Further looks at its cells are averaged with it.
    """
    if len(looks) == 1:  # models of earlier versions
        return looks[0], edges
    first, second = looks[0], averaged(looks[1:])
    fine = finer(first, edges)
    starts = np.searchsorted(fine[:-1], edges[:-1])
    cells = np.diff([*starts, len(fine) - 1])
    gain = second.sigma**2 / (first.sigma**2 + cells * second.sigma**2)
    counts = second.counts + np.repeat((first.counts - np.add.reduceat(second.counts, starts)) * gain, cells)
    sigma = second.sigma * math.sqrt(1 - float(gain.min()))
    return NoisyMarginal(second.columns, np.rint(counts).astype(np.int64), sigma), fine


def _below(marginal: NoisyMarginal, edges: tuple[int, ...], *, end: int, bound: int) -> Rows | None:
    """Rows of owners with degrees below bucket ``end``, ``bound`` at most of each; None where nothing is beyond doubt.

    Degrees of a bucket are taken to be spread evenly over their logarithms.
    """
    mean = [low if high - low < 2 else (high - low) / math.log(high / max(low, 1)) for low, high in pairwise(edges)]
    each = np.minimum(mean[:end], bound)
    rows, sigma = float(marginal.counts[:end] @ each), marginal.sigma * float(np.linalg.norm(each))
    wide = np.where(np.diff(edges[: end + 1]) > 1, np.maximum(marginal.counts[:end], 0), 0)
    return Rows(rows, math.hypot(sigma, chosen.DOUBT * float(wide @ each))) if rows > 0 and sigma > 0 else None


def _unseen(owners: Rows, marginal: NoisyMarginal, end: int) -> Rows:
    """Owners with degrees from bucket ``end`` on: by the counts there, and by what the others leave of all."""
    there = Rows(float(marginal.counts[end:].sum()), marginal.sigma * math.sqrt(max(len(marginal.counts) - end, 1)))
    rest = Rows(
        owners.rows - float(marginal.counts[:end].sum()), math.hypot(owners.sigma, marginal.sigma * math.sqrt(end))
    )
    share = rest.sigma**2 / (there.sigma**2 + rest.sigma**2)
    return Rows(
        share * there.rows + (1 - share) * rest.rows, there.sigma * rest.sigma / math.hypot(there.sigma, rest.sigma)
    )


def _in_cone(point: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Nearest point of the plane between two rays from the origin, the second at the larger angle."""

    def side(a: FloatArray, b: FloatArray) -> float:
        return float(a[0] * b[1] - a[1] * b[0])

    if side(low, point) >= 0 and side(point, high) >= 0 and float(point @ (low + high)) > 0:
        return point
    onto = [ray * max(float(point @ ray) / float(ray @ ray), 0.0) for ray in (low, high)]
    return min(onto, key=lambda p: float((point - p) @ (point - p)))


def degree_groups(
    marginal: NoisyMarginal, edges: tuple[int, ...], *, bound: int, noise: float, values: int, rows: float = 0.0
) -> tuple[int, ...]:
    """Join buckets of degrees into a few groups for a table model; the last one ends where the tail does.

    A few wide groups show how degrees depend on other columns far above the noise of many narrow ones; degrees within
    a group are drawn from the fine counts afterwards. They are cut so that counts of rows per group, with the
    ``noise`` that a table model will have in them, tell most about the links of a column with ``values`` values.

    They end where evidence does (:func:`_shown`), and at ``bound`` where owners are known to have more ``rows`` than
    that leaves room for. Where nothing is beyond doubt, degrees up to ``bound`` are one group.
    """
    if _tail(marginal) == 0:
        return 0, min(bound, edges[-1] - 1) + 1
    fine, counts = _shown(marginal, edges)
    below = _below(marginal, edges, end=bisect_left(edges, fine[-1]), bound=bound)
    if bound + 1 > fine[-1] and (below is None or rows > below.rows + chosen.SIGNIFICANT * below.sigma):
        fine, counts = _up_to(marginal, edges, min(bound + 1, edges[-1]))
    if len(counts) <= chosen.GROUPS + 2:
        return fine
    owners = max(float(counts.sum()), 1.0)
    cuts = telling_cuts(fine, counts / owners, rows=owners / max(values, 1), noise=noise, most=chosen.GROUPS - 1)
    return (0, *cuts, fine[-1])


def _tail(marginal: NoisyMarginal) -> int:
    """Last bucket of degrees such that the count of some run of buckets from it on is
    beyond doubt; the first where there is none.

    Runs of one bucket, two, four and so on: a few rows show in a short one that drown
    in the noise of all buckets up to a million.
    """
    running = np.concatenate([[0.0], np.cumsum(marginal.counts.astype(np.float64))])
    cells, last = len(running) - 1, 0
    for length in (1 << i for i in range(cells.bit_length() + 1)):
        ends = np.minimum(np.arange(cells) + length, cells)
        noise = marginal.sigma * np.sqrt(ends - np.arange(cells))
        clear = np.flatnonzero(running[ends] - running[:-1] > chosen.BEYOND_DOUBT * noise)
        last = max(last, int(clear[-1]) if len(clear) else 0)
    return last


def _end(marginal: NoisyMarginal, stop: int | None = None) -> int:
    """Where buckets that stand out of noise end: those beyond doubt, and others above them, up to ``stop``.

    The further a bucket is from those that do, the more it must stand out: there are as
    many more between in which noise may.
    """
    end = _tail(marginal) + 1
    while True:
        far = np.arange(1, len(marginal.counts[end:stop]) + 1)
        more = np.flatnonzero(marginal.counts[end:stop] > (1 + np.sqrt(2 * np.log(far + 1))) * marginal.sigma)
        if not len(more):
            return end
        end += int(more[-1]) + 1


def _shown(marginal: NoisyMarginal, edges: tuple[int, ...]) -> tuple[tuple[int, ...], IntArray]:
    """Cells of degrees and how many owners have them, up to where evidence ends.

    First come those up to the last that is beyond doubt: one of mere noise near a million would outweigh all rows there
    are. Then, up to ``chosen.TAIL`` times as far, those that stand out. Then the others up to there, as one cell, if
    their count is above its own error: a long tail may be there though none of its cells stands out.
    Above degrees of up to ``chosen.TAIL`` nothing less than beyond doubt is taken: next to them,
    noise in few owners is many rows.
    """
    last = _tail(marginal)
    top = chosen.TAIL * edges[last] if edges[last] > chosen.TAIL else 0
    stop = max(bisect_left(edges, min(top, edges[-1])), last + 1)
    end = _end(marginal, stop)
    fine, counts = _up_to(marginal, edges, edges[end])
    beyond = int(marginal.counts[end:stop].sum())
    if stop > end and beyond > marginal.sigma * math.sqrt(stop - end):
        return (*fine, edges[stop]), np.append(counts, beyond)
    return fine, counts


def _up_to(marginal: NoisyMarginal, edges: tuple[int, ...], top: int) -> tuple[tuple[int, ...], IntArray]:
    """Cells of degrees below ``top`` and how many owners have them, never less than none."""
    end = bisect_left(edges, top)
    return edges[: end + 1], np.maximum(marginal.counts[:end], 0)


def degree_histogram(
    marginal: NoisyMarginal, edges: tuple[int, ...], groups: tuple[int, ...], *, bound: int
) -> tuple[tuple[int, ...], IntArray]:
    """Return the cells of degrees that ``groups`` are made of, and how many owners are in each."""
    if len(groups) == 2:
        return groups, np.maximum(marginal.counts.sum(keepdims=True), 0)
    fine, counts = _shown(marginal, edges)
    if fine[-1] != groups[-1]:  # the number of rows called for degrees up to the bound
        fine, counts = _up_to(marginal, edges, min(bound + 1, edges[-1]))
    return fine, counts
