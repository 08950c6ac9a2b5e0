r"""How many rows owners have: noisy counts of their degrees and of the rows themselves, put together.

Clients of the wall. A table's rows are counted directly, with noise in proportion to the bound on what one unit owns,
and owners are counted by their degree, in buckets up to a million. Both tell the number of rows within bounds.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dpweave.links.degrees import telling_cuts
from dpweave.tables.learned_domains import BEYOND_DOUBT

if TYPE_CHECKING:
    from dpweave.arrays import FloatArray, IntArray
    from dpweave.privacy.window import NoisyMarginal

BUCKETS = 0.05
"""Relative error of a sum of degrees by what their buckets do not tell."""
TAIL = 4
"""How far, as a multiple of its beginning, the tail of degrees is taken to reach."""
GROUPS = 6
"""Groups of degrees that a table model tells apart."""
BAND = 2.5
"""Standard deviations of the direct count that the number of rows in use stays within, whatever degrees say.

Where degrees say the truth, holding them to this band costs :math:`\\sqrt{2 ((1 + z^2) Q(z) - z \\varphi(z))}`,
a twentieth of a standard deviation at 2.5; at 2 a tenth, at 3 a fiftieth. So anything from 2 to 4 does.
"""

DECLARED_DOUBT = 0.5
"""Relative error of a number of rows that a plan declares to be about right. It matters only where noise is of the
size of the table: there anything from 0.3 to 1 keeps a table from vanishing, or from growing out of nothing.
"""


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
    """Weigh a noisy count against about how many rows the plan says there are, each by its error.

    >>> with_declared(Rows(-900.0, 1000.0), 800.0)
    Rows(rows=565.5172413793102, sigma=371.39067635410373, loose=0.0)
    >>> round(with_declared(Rows(100_000.0, 50.0), 20_000.0).rows)
    99998
    """
    about = DECLARED_DOUBT * declared
    if counted.sigma == 0 or about <= 0:
        return counted
    share = about**2 / (about**2 + counted.sigma**2)
    rows = share * counted.rows + (1 - share) * declared
    return replace(counted, rows=rows, sigma=counted.sigma * math.sqrt(share))


def combined(direct: Rows, owners: Rows, marginal: NoisyMarginal, edges: tuple[int, ...], *, bound: int) -> Rows:
    r"""How many rows a table has within bounds, by all counts of it: its own, and those of its ``owners`` by degree.

    Buckets up to those that stand out of noise give a number :math:`R` of rows with variance v. Those above may be
    empty, or hold T owners of t rows. T is what is left of all owners, :math:`\hat T \pm \sigma_T`; t is what is left
    of the ``direct`` count :math:`\hat N \pm s`, :math:`D = \hat N - R`, with variance :math:`s^2 + v`; and :math:`m T
    \le t \le b T` for a tail that begins at degree m and a bound b. An empty tail is weighed against one that lies
    anywhere in there, up to all n owners (a Bayes factor), with odds

    .. math:: \frac{n^2 (b - m) / 2}{2 \pi \sigma_T \sqrt{s^2 + v}} \exp\Bigl(-\frac{\chi^2_0 - \chi^2_1}{2}\Bigr)

    of the residuals of either, times :math:`e^{z^2/2}` for a ``BAND`` of z: an empty tail is given up where
    counts contradict it as clearly as that. Taking unclear buckets for empty without that loses most of a table
    whose rows are in its tail. The mean of both stays within ``BAND`` standard deviations of the direct count.
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
    empty = 1 / (1 + math.exp(min(gain - BAND**2 / 2 - math.log(max(wide, narrow, 1.0)), 700.0)))
    share = direct.sigma**2 / spread**2
    without, within = (direct.rows - (left - t) * share for t in (0.0, float(nearest[1]) * spread))
    rows = empty * without + (1 - empty) * within
    # Nothing but the direct count tells how many rows a tail has; and one that is taken
    # for empty may hold what would fit best.
    told, room = direct.sigma * below.sigma / spread, BAND * direct.sigma
    error = math.hypot(math.sqrt(empty) * told, math.sqrt(1 - empty) * direct.sigma, within - without)
    rows = min(max(rows, direct.rows - room), direct.rows + room)
    loose = empty * BAND * math.hypot(told, rows * owners.sigma / most)  # rows of each owner, by both their numbers
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
    if excess <= 0 or child.rows <= BAND * child.sigma or variance == 0:
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
    return replace(child, rows=most) if most < child.rows <= BAND * child.sigma else child


def _below(marginal: NoisyMarginal, edges: tuple[int, ...], *, end: int, bound: int) -> Rows | None:
    """Rows of owners with degrees below bucket ``end``, ``bound`` at most of each; None where nothing is beyond doubt.

    Degrees of a bucket are taken to be spread evenly over their logarithms.
    """
    mean = [low if high - low < 2 else (high - low) / math.log(high / max(low, 1)) for low, high in pairwise(edges)]
    each = np.minimum(mean[:end], bound)
    rows, sigma = float(marginal.counts[:end] @ each), marginal.sigma * float(np.linalg.norm(each))
    return Rows(rows, math.hypot(sigma, BUCKETS * rows)) if rows > 0 and sigma > 0 else None


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
    """Join buckets of degrees into at most ``GROUPS`` groups for a table model; the last one ends where the tail does.

    A few wide groups show how degrees depend on other columns far above the noise of many narrow ones; degrees within
    a group are drawn from the fine counts afterwards. They are cut so that counts of rows per group, with the
    ``noise`` that a table model will have in them, tell most about the links of a column with ``values`` values.

    The tail begins where the count of rows in some run of buckets above is beyond doubt: one bucket of mere noise near
    a million would outweigh all rows there are. Larger degrees are part of it, and it reaches up to ``TAIL`` times its
    beginning, and up to ``bound`` where owners are known to have more ``rows`` than that leaves room for. Where nothing
    is beyond doubt, degrees up to ``bound`` are one group.
    """
    last, top = _tail(marginal), _top(marginal, edges)
    if last == 0:
        return 0, min(bound, edges[-1] - 1) + 1
    below = _below(marginal, edges, end=bisect_left(edges, top), bound=bound)
    if bound + 1 > top and (below is None or rows > below.rows + BAND * below.sigma):
        top = min(bound + 1, edges[-1])
        last = bisect_left(edges, top) - 1
    if last <= GROUPS + 1:
        return (*edges[: last + 1], top)
    counts = np.maximum(np.append(marginal.counts[:last], marginal.counts[last:].sum()), 0).astype(np.float64)
    owners = max(float(counts.sum()), 1.0)
    # The tail's first bucket is where most of it is.
    shown = (*edges[: last + 1], edges[last + 1])
    cuts = telling_cuts(shown, counts / owners, rows=owners / max(values, 1), noise=noise, most=GROUPS - 1)
    return (0, *cuts, top)


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
        clear = np.flatnonzero(running[ends] - running[:-1] > BEYOND_DOUBT * noise)
        last = max(last, int(clear[-1]) if len(clear) else 0)
    return last


def _end(marginal: NoisyMarginal) -> int:
    """Where buckets that stand out of noise end: those beyond doubt, and others above them.

    The further a bucket is from those that do, the more it must stand out: there are as
    many more between in which noise may.
    """
    end = _tail(marginal) + 1
    while True:
        far = np.arange(1, len(marginal.counts) - end + 1)
        more = np.flatnonzero(marginal.counts[end:] > (1 + np.sqrt(2 * np.log(far + 1))) * marginal.sigma)
        if not len(more):
            return end
        end += int(more[-1]) + 1


def _top(marginal: NoisyMarginal, edges: tuple[int, ...]) -> int:
    """Where the tail of degrees is taken to end."""
    last = _tail(marginal)
    if edges[last + 1] - edges[last] == 1:
        return edges[last + 1]
    return min(max(TAIL * edges[last], edges[last + 1]), edges[-1])


def degree_histogram(
    marginal: NoisyMarginal, edges: tuple[int, ...], groups: tuple[int, ...], *, bound: int
) -> tuple[tuple[int, ...], IntArray]:
    """Return the fine buckets of ``groups`` with their noisy counts; those of the tail but its first are one bucket.

    The first bucket of the tail is there beyond doubt. Whether anything is above it is in
    doubt, so only as many rows are drawn there as were counted up to the tail's end. Where the
    number of rows says that something is, up to the ``bound``, counts tell how it is spread.
    """
    if len(groups) == 2:
        return groups, np.maximum(marginal.counts.sum(keepdims=True), 0)
    told = groups[-1] == bound + 1 and groups[-1] in edges
    below = edges.index(groups[-1]) if told else _tail(marginal) + 1
    fine = (*edges[:below], *sorted({edges[below], groups[-1]}))
    beyond = marginal.counts[below : sum(e < groups[-1] for e in edges[:-1])].sum()
    counts = np.append(marginal.counts[:below], beyond)[: len(fine) - 1]
    return fine, np.maximum(counts, 0)
