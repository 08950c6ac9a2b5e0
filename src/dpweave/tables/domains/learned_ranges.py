r"""Ranges learned under the budget: where the rows of a number, a date or a time lie, and bins inside.

A client of the wall. The first look is from afar: a dozen wide cells over all that the type can hold. For as long as
rows lie in one or two cells, a closer look follows inside them. Last comes a histogram of some hundred cells, whose
running count gives the bins. Each look takes a quarter of what is left of the budget, the histogram takes the rest.

**The rule.** A look with n cells and noise σ in each knows the number of rows T up to a standard deviation of
:math:`\sigma\sqrt n`. So many rows does noise hide. A range is learned *well* where noise hides at most the part
``chosen.USEFUL`` of the rows that the first look shows. It then holds nine tenths of the rows. With fewer rows it is
*coarse* if some stretch of cells stands out beyond doubt, and else it is *not* learned: then it is what the plan
declares, or a plain default.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave import chosen
from dpweave.measure.expected_error import doubt
from dpweave.privacy.accounting import split
from dpweave.schema.domain import Bins, Learn, bins_at, even_bins, from_axis, to_axis

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpweave.arrays import FloatArray
    from dpweave.plan.plan import Plan
    from dpweave.privacy.window import NoisyMarginal
    from dpweave.schema.database import Type

    BoolArray = np.ndarray[Any, np.dtype[np.bool_]]
    Measure = Callable[[Bins, float], NoisyMarginal]
    Ask = Callable[[Sequence[float], float], "Look"]

YEARS = (1, 1000, 1500, 1600, *range(1700, 1900, 10), *range(1900, 2101), 9999)
FAR_YEARS = (1, 1700, 1800, 1860, *range(1900, 2041, 20), 2100, 9999)
FAR_POWERS, FAR_BELOW = (*range(0, 33, 4), 48, 60), (60, 32, 16, 8)
"""Exponents of 2 of the first look at numbers, above 0 and below. Cells are wide where rows are seldom."""
NARROW = 2
"""Rows that lie in so many cells, or fewer, are looked at more closely: they may lie across one edge. A closer look in
one cell more would leave out one at most, and gains where it leaves out as many times what it keeps.
"""
USUAL_YEARS, USUAL_NUMBERS = (1950, 2030), (0, 100)
"""Where nothing is known, dates and numbers of a copy lie here. Any plain range would
do, since the reader is told that it means nothing.
"""


@dataclass(frozen=True)
class Look:
    """Noisy counts of the cells between points of the number line."""

    points: tuple[float, ...]
    counts: FloatArray
    sigma: float
    inside: tuple[int, ...] = ()
    """How many of the cells each cell of an earlier look has, if counts were made to
    agree with it, and the noise of that look.
    """
    before: float = 0.0
    seldom_crossed: tuple[float, ...] = ()
    """Points of which rows of one column seldom lie on both sides."""

    @property
    def total(self) -> float:
        """Number of rows, with noise."""
        return float(self.counts.sum())

    @property
    def is_enough(self) -> bool:
        """Whether noise hides at most the part ``chosen.USEFUL`` of the rows."""
        return chosen.USEFUL * self.total >= self.sigma * math.sqrt(len(self.counts))

    def between(self, first: int, last: int) -> Look:
        """Only the cells from ``first`` to ``last``."""
        counts = self.counts[first : last + 1]
        return Look(self.points[first : last + 2], counts, self.sigma, seldom_crossed=self.seldom_crossed)

    def stands_out_beside(self, other: Look) -> bool:
        """Whether a cell stands out that lies wholly outside another look."""
        beside = [b <= other.points[0] or a >= other.points[-1] for a, b in pairwise(self.points)]
        return bool((self.counts[np.array(beside)] > chosen.SIGNIFICANT * self.sigma).any())

    def joined(self, other: Look) -> Look:
        """Both answers to the same question, weighed by their noise."""
        a, b = self.sigma**-2, other.sigma**-2
        return replace(self, counts=(a * self.counts + b * other.counts) / (a + b), sigma=(a + b) ** -0.5)

    def agreed(self, wide: Look) -> Look:
        """Change counts as little as agrees with an earlier look, whose cells these lie in: least squares."""
        wide_cell = np.searchsorted(wide.points, self.points[:-1], side="right") - 1
        cells = np.bincount(wide_cell, minlength=len(wide.counts))
        sums = np.bincount(wide_cell, self.counts, minlength=len(wide.counts))
        own = self.sigma**2 * cells
        gain = (wide.counts - sums) * own / (own + wide.sigma**2) / cells
        return replace(self, counts=self.counts + gain[wide_cell], inside=tuple(cells.tolist()), before=wide.sigma)

    def running_noise(self, *, back: bool) -> FloatArray:
        r"""Standard deviation of the count of the first k cells, or the last k, for k = 0, 1, and so on.

        Inside a cell of m that an earlier look counted with noise S, that is
        :math:`\sigma^2 k - \sigma^4 k^2 / (\sigma^2 m + S^2)`, squared.
        """
        known, out = 0.0, [np.zeros(1)]
        for m in self.inside[::-1] if back else self.inside:
            own = self.sigma**2 * np.arange(1, m + 1)
            out.append(known + own - own**2 / (own[-1] + self.before**2))
            known = float(out[-1][-1])
        return np.sqrt(np.concatenate(out) if self.inside else self.sigma**2 * np.arange(len(self.counts) + 1.0))


def learn_bins(kind: Type, learn: Learn, measure: Measure, *, rho: float) -> Bins:
    """Learn bins for a column of type ``kind``; ``measure`` gives noisy counts over any bins for some rho.

    Spends exactly ``rho``. The bins say how well they were learned.
    """

    def ask(points: Sequence[float], share: float) -> Look:
        bins = bins_at(kind, points)
        noisy = measure(bins, share)
        edges = tuple(to_axis(kind, e) for e in bins.edges)
        counts = noisy.counts[: bins.cells].astype(np.float64)
        return Look(edges, counts, noisy.sigma, seldom_crossed=seldom_crossed(kind))

    if learn.low is not None and learn.high is not None:
        declared = even_bins(kind, learn.low, learn.high, chosen.FINE_CELLS)
        look = ask([to_axis(kind, e) for e in declared.edges], rho)
        if body(look) is None:
            return replace(even_bins(kind, learn.low, learn.high, learn.bins), learned="not")
        return replace(quantile_bins(kind, look, bins=learn.bins), learned="well" if look.is_enough else "coarse")
    share, left = split(rho, [chosen.LOOK, 1 - chosen.LOOK])
    first = ask(far_points(kind, learn), share)
    if found := body(first):
        fine = _closer(kind, learn, first.between(*found), ask, left)
        return replace(quantile_bins(kind, fine, bins=learn.bins), learned="well" if first.is_enough else "coarse")
    again = first.joined(ask(first.points, left))
    if found := body(again):
        return replace(quantile_bins(kind, again.between(*found), bins=learn.bins), learned="coarse")
    return replace(usual_bins(kind, learn), learned="not")


def _closer(kind: Type, learn: Learn, look: Look, ask: Ask, rho: float) -> Look:
    """Look closer while rows lie in one or two cells, then count them in fine cells; spends ``rho``."""
    while len(look.counts) <= NARROW and _values(kind, look.points) > chosen.FINE_CELLS:
        share, left = split(rho, [chosen.LOOK, 1 - chosen.LOOK])
        # As many cells as let noise hide at most the part chosen.USEFUL of the rows.
        cells = int((chosen.USEFUL * look.total / look.sigma) ** 2 * (1 - chosen.LOOK))
        points = closer_points(kind, learn, look.points, cells=min(cells, chosen.PIECES))
        if len(points) - 1 <= (NARROW + 1):
            break
        closer, rho = ask(points, share), left
        found = closer.between(*(body(closer) or (0, len(points) - 2)))
        gains = (NARROW + 1) * len(found.counts) <= len(closer.counts) and not look.stands_out_beside(found)
        look = found if gains else closer
    return ask(fine_points(kind, learn, look.points), rho).agreed(look)


def body(look: Look) -> tuple[int, int] | None:
    """First and last cell that holds rows; None where no stretch of cells stands out beyond doubt.

    It begins with the stretch that stands out most, less ends that show no rows of their own. A cell
    beside it belongs to it if there are signs of rows, one further away if it stands out itself. Across zero, or in a
    time of which few tables tell, signs must be surer: an amount that became negative, or an order of the year 2090,
    is worse than a few rows that come out as zero.
    """
    counts, cells = look.counts, len(look.counts)
    running = np.concatenate([[0.0], np.cumsum(counts)])
    start, end = np.triu_indices(cells)
    clear = (running[end + 1] - running[start]) / np.sqrt(end + 1 - start)
    best = int(np.argmax(clear))
    if clear[best] <= chosen.BEYOND_DOUBT * look.sigma:
        return None
    first, last = int(start[best]), int(end[best])
    while first < last and not _belongs(look, first + 1, last)[first]:
        first += 1
    while first < last and not _belongs(look, first, last - 1)[last]:
        last -= 1
    while len(more := np.flatnonzero(_belongs(look, first, last))):
        far = np.maximum(first - more, more - last)
        near = more[far == far.min()]  # what comes next is judged anew from there
        first, last = min(first, int(near[0])), max(last, int(near[-1]))
    return first, last


def _belongs(look: Look, first: int, last: int) -> BoolArray:
    """Which cells beside or beyond a stretch from ``first`` to ``last`` show rows that belong to it."""
    points, places = np.array(look.points, dtype=np.float64), np.arange(len(look.counts))
    least = np.finfo(np.float64).tiny  # numbers of hundreds of digits lie closer together than floats
    doublings = np.log2(np.maximum(np.diff(points), least)) - math.log2(max(points[last + 1] - points[first], least))
    signs, most = chosen.SIGN * np.maximum(doublings, 1), float(doubt(len(places)))
    for point in look.seldom_crossed:
        below, above = points[first] < point, point < points[last + 1]
        across = (points[1:] <= point) if not below else (points[:-1] >= point) if not above else np.zeros(1, bool)
        signs = np.where(across, np.maximum(signs, chosen.SURE), signs)
    beside = np.clip(signs, min(chosen.UNNOTICED * look.total / look.sigma, chosen.SIGNIFICANT), most)
    far = np.maximum(first - places, places - last)
    need = np.where(far == 1, beside, np.clip(signs, most, chosen.BEYOND_DOUBT))
    return np.asarray((far > 0) & (look.counts > need * look.sigma))


def known_points(kind: Type, learn: Learn) -> list[float]:
    """Return edges that cover everything the type can hold, where nothing is declared: years, hours, powers of two."""
    return _points(kind, learn, years=YEARS, hours=1, powers=range(-10, 61), below=range(60, -11, -1), whole=0)


def far_points(kind: Type, learn: Learn) -> list[float]:
    """Return the edges of the first look, some of those: a dozen cells."""
    return _points(kind, learn, years=FAR_YEARS, hours=3, powers=FAR_POWERS, below=FAR_BELOW, whole=1)


def seldom_crossed(kind: Type) -> tuple[float, ...]:
    """Return points of which rows of one column seldom lie on both sides: zero, and the ends of the years that most
    tables tell of, which the first look tells apart most finely.
    """
    fine = [(a, b) for a, b in pairwise(FAR_YEARS) if b - a == min(d - c for c, d in pairwise(FAR_YEARS))]
    usual = fine[0][0], fine[-1][1]
    match kind.kind:
        case "date":
            return tuple(to_axis(kind, date(y, 1, 1)) for y in usual)
        case "timestamp":
            return tuple(to_axis(kind, datetime(y, 1, 1)) for y in usual)
        case "time":
            return ()
        case _:
            return (0.0,)


def _points(
    kind: Type,
    learn: Learn,
    *,
    years: Sequence[int],
    hours: int,
    powers: Sequence[int],
    below: Sequence[int],
    whole: int,
) -> list[float]:
    match kind.kind:
        case "date":
            points: list[float] = [to_axis(kind, date(y, 1, 1)) for y in years]
        case "timestamp":
            points = [to_axis(kind, datetime(y, 1, 1)) for y in years]
        case "time":
            points = [*range(0, 86_400, 3600 * hours), 86_399]
        case "float":
            points = [*(-(2.0**k) for k in below), 0.0, *(2.0**k for k in powers)]
        case _:
            top = _largest(kind)
            points = [-top, *(-(2**k) for k in below if k >= 0 and 2**k < top)] if kind.signed else []
            points += [0, *(2**k for k in powers if k >= whole and 2**k < top), top]
    if learn.low is not None:
        low = to_axis(kind, learn.low)
        points = [low, *(p for p in points if p > low)]
    if learn.high is not None:
        high = to_axis(kind, learn.high)
        points = [*(p for p in points if p < high), high]
    return points


def _largest(kind: Type) -> int:
    if kind.kind == "decimal":
        return int(10 ** min(kind.precision or 18, 18)) - 1
    return 1 << min((kind.bits or 64) - kind.signed, 60)


def closer_points(kind: Type, learn: Learn, points: Sequence[float], *, cells: int) -> list[float]:
    """Return the edges of a closer look at what lies between ``points``, with about so many ``cells``."""
    inside = _known_inside(kind, learn, points)
    if len(inside) <= cells:
        return _cut(kind, inside, cells=cells, least=1)
    every = -(-(len(inside) - 1) // max(cells, 1))
    return sorted({*inside[::every], inside[-1]})


def fine_points(kind: Type, learn: Learn, points: Sequence[float]) -> list[float]:
    """Return the edges of the last histogram."""
    return _cut(kind, _known_inside(kind, learn, points), cells=chosen.FINE_CELLS, least=4)


def _known_inside(kind: Type, learn: Learn, points: Sequence[float]) -> list[float]:
    return sorted({*points, *(p for p in known_points(kind, learn) if points[0] < p < points[-1])})


def _values(kind: Type, points: Sequence[float]) -> float:
    """How many values lie between the ends of ``points``."""
    low, high = points[0], points[-1]
    if kind.kind != "float":
        return high - low
    return math.inf if high - low > 2**-40 * max(abs(low), abs(high)) else 1


def _cut(kind: Type, points: Sequence[float], *, cells: int, least: int) -> list[float]:
    """Cut the stretches between ``points`` into about so many ``cells`` in all, and
    ``least`` of each if it has as many values.
    """
    fine: list[float] = []
    for (a, b), pieces in zip(pairwise(points), _pieces(kind, points, cells=cells, least=least), strict=True):
        if kind.kind == "float":
            fine += [a + (b - a) * i / pieces for i in range(pieces)]
        else:
            fine += [int(a) + (int(b) - int(a)) * i // pieces for i in range(pieces)]
    return [*fine, points[-1]]


def _pieces(kind: Type, points: Sequence[float], *, cells: int, least: int) -> list[int]:
    """Into how many cells to cut each stretch between ``points``: all alike, and no more than a stretch has values."""
    values = [math.inf if kind.kind == "float" else b - a for a, b in pairwise(points)]
    pieces, left = [0] * len(values), cells
    for done, i in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        pieces[i] = int(min(max(least, left // (len(values) - done)), values[i]))
        left -= pieces[i]
    return pieces


def usual_bins(kind: Type, learn: Learn) -> Bins:
    """One bin over a range that is plainly possible, where nothing is known."""
    match kind.kind:
        case "date":
            low, high = (to_axis(kind, date(y, 1, 1)) for y in USUAL_YEARS)
        case "timestamp":
            low, high = (to_axis(kind, datetime(y, 1, 1)) for y in USUAL_YEARS)
        case "time":
            low, high = 0, 86_399
        case "float":
            low, high = USUAL_NUMBERS
        case _:
            low, high = USUAL_NUMBERS[0], min(USUAL_NUMBERS[1] * 10 ** (kind.scale or 0), _largest(kind))
    span = high - low
    if learn.low is not None:
        low = to_axis(kind, learn.low)
        high = max(high, low + span)
    if learn.high is not None:
        high = to_axis(kind, learn.high)
        low = min(low, high - span)
    return bins_at(kind, [low, high])


def quantile_bins(kind: Type, look: Look, *, bins: int) -> Bins:
    """Join neighbouring cells into at most ``bins`` that hold about equally many rows.

    Ends that hold few rows are cut off: values out there fall into the outer bins. Where
    a few values stand out and nothing is to be seen between them, as with codes, each is
    a bin of its own. Inside bins, rows lie where the counts show them (:func:`spots`).
    """
    look = look.between(*_support(look))
    points, counts, sigma = look.points, look.counts, look.sigma
    # A bin should rise above the noise of its own cells.
    bins = max(1, min(bins, int(look.total / (2 * chosen.SIGNIFICANT * sigma))))
    if len(counts) <= bins:
        return bins_at(kind, points)
    cuts = _cuts(counts, sigma, bins)
    joined = bins_at(kind, [points[0], *(points[c] for c in cuts), points[-1]])
    width = np.array([b - a for a, b in pairwise(points)], dtype=np.float64)
    weights = np.concatenate([spots(width[a:b], counts[a:b], sigma) for a, b in pairwise([0, *cuts, len(counts)])])
    return replace(
        joined,
        spots=tuple(
            (from_axis(kind, points[i]), from_axis(kind, points[i + 1]), round(float(weights[i]), 3))
            for i in np.flatnonzero(weights >= chosen.NEXT_TO_NOTHING)
        ),
    )


def _cuts(counts: FloatArray, sigma: float, bins: int) -> list[int]:
    """Cells at which bins begin, but for the first."""
    standing = counts > doubt(len(counts)) * sigma
    # Noise may hide rows between them; if that could be many, they are no codes.
    hidden = chosen.SIGNIFICANT * sigma * math.sqrt((~standing).sum())
    if 0 < standing.sum() <= bins and counts[~standing].sum() <= hidden <= counts[standing].sum() / 4:
        return [int(i) for i in np.flatnonzero(standing)[1:]]
    running = np.cumsum(counts)
    rising = (np.maximum.accumulate(running) + np.minimum.accumulate(running[::-1])[::-1]) / 2
    cuts = np.searchsorted(rising, rising[-1] * np.arange(1, bins) / bins) + 1
    return sorted({int(c) for c in cuts if c < len(counts)})


def spots(width: FloatArray, counts: FloatArray, sigma: float) -> FloatArray:
    r"""Weights of the cells of one bin, by their noisy ``counts``; all 0 where rows may be spread evenly by ``width``.

    A cell stands out that exceeds an even spread by more than :math:`(1 + \sqrt{2 \ln n})\sigma`, which n
    noises hardly ever reach. It keeps its count, the rest is spread anew, and again until nothing stands out.
    What is left is spread evenly over the other cells, or nowhere where it cannot be told from nothing.

    >>> spots(np.ones(3), np.array([2.0, 90.0, -1.0]), 3.0), spots(np.ones(3), np.array([20.0, 25.0, 22.0]), 3.0)
    (array([ 0., 90.,  0.]), array([0., 0., 0.]))
    """
    out = np.zeros(len(counts), dtype=bool)
    while not out.all():
        even = max(float(counts[~out].sum()), 0.0) * width / width[~out].sum()
        more = ~out & (counts - even > doubt(len(counts)) * sigma)
        if not more.any():
            break
        out |= more
    weights = np.where(out, counts, 0.0)
    rest = float(counts[~out].sum())
    if out.any() and not out.all() and rest > chosen.SIGNIFICANT * sigma * math.sqrt((~out).sum()):
        weights[~out] = rest * width[~out] / width[~out].sum()
    return weights


def _support(look: Look) -> tuple[int, int]:
    """First and last cell of the range that holds rows.

    Ends are cut off that surely hold few rows. Ends so wide that they would double the range are cut off
    if they hold few as far as can be seen: a tail of numbers that nobody has would make every mean wrong.
    """
    cells, points = len(look.counts), look.points
    low, surely_low = _empty_ends(look, back=False)
    high, surely_high = (cells - n for n in _empty_ends(look, back=True))
    if low >= high:
        return 0, cells - 1
    width = points[high] - points[low]
    low = low if points[low] - points[surely_low] > width else surely_low
    high = high if points[surely_high] - points[high] > width else surely_high
    return low, high - 1


def _empty_ends(look: Look, *, back: bool) -> tuple[int, int]:
    """How many cells at one end hold few rows, as far as can be seen and surely, and
    none beyond where the running count starts to rise.

    Before the range a running sum of noisy counts wanders about 0, inside it climbs by the mean count per
    cell. Its lowest point against half that slope is the usual (CUSUM) estimate of where the climb begins.
    """
    running = np.concatenate([[0.0], np.cumsum(look.counts[::-1] if back else look.counts)])
    places = np.arange(len(running))
    high = np.flatnonzero(running > chosen.SIGNIFICANT * look.sigma * np.sqrt(places))
    if not len(high):
        return 0, 0
    slope = max(running[-1], 0.0) / len(look.counts)
    climbs = int(np.argmin((running - slope / 2 * places)[: high[0] + 1]))
    noise = look.running_noise(back=back)
    few = chosen.UNNOTICED * look.total
    seen, sure = (int(np.max(places[running + x * noise <= few], initial=0)) for x in (0.0, chosen.SURE))
    return min(climbs, seen), min(climbs, sure)


def rows_needed(kind: Type, learn: Learn, sigma: float) -> float:
    """Rows from which on a range is learned well, where a count that takes all of the
    column's budget has noise ``sigma``.
    """
    if learn.low is not None and learn.high is not None:
        return sigma * math.sqrt(even_bins(kind, learn.low, learn.high, chosen.FINE_CELLS).cells) / chosen.USEFUL
    return sigma * math.sqrt((len(far_points(kind, learn)) - 1) / chosen.LOOK) / chosen.USEFUL


def remarks(plan: Plan) -> tuple[str, ...]:
    """What readers of a copy must know about the ranges of its columns, once they are learned."""
    columns = [(f"{t.name}.{c.name}", c.domain) for t in plan.tables for c in t.columns if isinstance(c.domain, Bins)]
    coarse = ", ".join(name for name, bins in columns if bins.learned == "coarse")
    unknown = ", ".join(f"{n} ({b.edges[0]} to {b.edges[-1]})" for n, b in columns if b.learned == "not")
    said = []
    if unknown:
        said.append(
            f"ranges that were not learned, because noise hides the rows: {unknown}; where in it values of a copy lie"
            " means nothing, so declare low and high, or spend more"
        )
    if coarse:
        said.append(
            f"ranges that are coarse, because noise hides many rows: {coarse}; they may be too wide, or leave out more"
            " than a tenth of the rows, so declare low and high, or spend more"
        )
    return tuple(said)
