r"""Domains learned under the budget: lists of categories, and bins whose edges are noisy quantiles.

Both are clients of the wall. Bins come from two noisy histograms: a coarse one over everything the type can hold
(powers of two, or years) finds where the rows are, a finer one inside that range gives the quantiles.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.privacy.accounting import split
from dpweave.schema.domain import Bins, Categories, Domain, Learn, bins_at, even_bins, from_axis, to_axis

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dpweave.schema.model import Column, Type
    from dpweave.window import FloatArray, NoisyMarginal

    Measure = Callable[[Bins, float], NoisyMarginal]

FINE_CELLS = 128
SIGNIFICANT = 3.0
"""Cells are taken to hold rows where their noisy count passes this many standard deviations."""


def categories_from(found: Mapping[str, int], *, most: int = 1000) -> Categories:
    """Return the categories that passed the threshold, commonest first; the rest is *other*."""
    ranked = sorted(found, key=lambda v: (-found[v], v))[:most]
    return Categories(tuple(ranked), other=True)


def learn_bins(kind: Type, learn: Learn, measure: Measure, *, rho: float) -> Bins:
    """Learn bins for a column of type ``kind``; ``measure`` gives noisy counts over any bins for some rho.

    Spends exactly ``rho``: a third on the range (nothing where the plan declares it), the rest on quantiles.
    """
    if learn.low is not None and learn.high is not None:
        grid = even_bins(kind, learn.low, learn.high, FINE_CELLS)
        marginal = measure(grid, rho)
    else:
        first, second = split(rho, [1, 2])
        coarse = bins_at(kind, coarse_points(kind, learn))
        marginal = measure(coarse, first)
        grid = refine(kind, coarse, marginal)
        marginal = measure(grid, second)
    return quantile_bins(
        kind, grid, marginal.counts[: grid.cells].astype(np.float64), sigma=marginal.sigma, bins=learn.bins
    )


def coarse_points(kind: Type, learn: Learn) -> list[float]:
    """Return edges that cover everything the type can hold, where nothing is declared."""
    match kind.kind:
        case "date":
            points: list[float] = [to_axis(kind, date(y, 1, 1)) for y in (1, *range(1900, 2101), 9999)]
        case "timestamp":
            points = [to_axis(kind, datetime(y, 1, 1)) for y in (1, *range(1900, 2101), 9999)]
        case "time":
            points = [*(3600.0 * h for h in range(24)), 86_399.0]
        case "float":
            powers = [2.0**k for k in range(-10, 61, 1)]
            points = [*(-p for p in reversed(powers)), 0.0, *powers]
        case _:
            largest = (
                2 ** min((kind.bits or 64) - 2, 60)
                if kind.kind == "integer"
                else 10 ** min(kind.precision or 18, 18) - 1
            )
            powers = [2.0**k for k in range(61) if 2**k <= largest]
            points = [*(-p for p in reversed(powers)), 0, *powers]
    if learn.low is not None:
        low = to_axis(kind, learn.low)
        points = [low, *(p for p in points if p > low)]
    if learn.high is not None:
        high = to_axis(kind, learn.high)
        points = [*(p for p in points if p < high), high]
    return points


def refine(kind: Type, coarse: Bins, marginal: NoisyMarginal) -> Bins:
    """Return a finer grid over the coarse cells from the first to the last that clearly hold rows."""
    first, last = _body(marginal.counts[: coarse.cells].astype(np.float64), marginal.sigma)
    points = [to_axis(kind, e) for e in coarse.edges[first : last + 2]]
    fine: list[float] = []
    for (a, b), pieces in zip(pairwise(points), _pieces(kind, points), strict=True):
        if kind.kind == "float":
            fine += [a + (b - a) * i / pieces for i in range(pieces)]
        else:
            fine += [int(a) + (int(b) - int(a)) * i // pieces for i in range(pieces)]
    return bins_at(kind, [*fine, points[-1]])


def _pieces(kind: Type, points: list[float]) -> list[int]:
    """Into how many cells to cut each stretch between ``points``: all alike, and no more than a stretch has values."""
    values = [math.inf if kind.kind == "float" else b - a for a, b in pairwise(points)]
    pieces, left = [0] * len(values), FINE_CELLS
    for done, i in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        pieces[i] = int(min(max(4, left // (len(values) - done)), values[i]))
        left -= pieces[i]
    return pieces


def _body(counts: FloatArray, sigma: float) -> tuple[int, int]:
    """First and last cell that holds rows, beginning with the fullest.

    The further a cell is from those that do, the more it must stand out: there are as many more between in which noise may. A cell
    wrongly taken next to the body makes the grid a little coarser, one far away makes it useless.
    """
    first = last = int(np.argmax(counts))
    places = np.arange(len(counts))
    while True:
        far = np.maximum(np.maximum(first - places, places - last), 0)
        more = np.flatnonzero((far > 0) & (counts > _doubt(far + 1) * sigma))
        if not len(more):
            return first, last
        first, last = min(first, int(more[0])), max(last, int(more[-1]))


def quantile_bins(kind: Type, grid: Bins, counts: FloatArray, *, sigma: float, bins: int) -> Bins:
    """Join neighbouring cells of ``grid`` into at most ``bins`` that hold about equally many rows.

    Ends that cannot be told from empty are cut off: values out there fall into the outer bins. Where a few values stand out
    and nothing is to be seen between them, as with codes, each is a bin of its own. Inside bins, rows lie where the counts
    show them (:func:`spots`).
    """
    points = [to_axis(kind, e) for e in grid.edges]
    first, last = _support(counts, sigma)
    points, counts = points[first : last + 2], counts[first : last + 1]
    total = float(np.maximum(counts, 0.0).sum())
    # A bin should rise above the noise of its own cells.
    bins = max(1, min(bins, int(total / (2 * SIGNIFICANT * sigma)) if sigma > 0 else bins))
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
            for i in np.flatnonzero(weights >= 0.001)
        ),
    )


def _cuts(counts: FloatArray, sigma: float, bins: int) -> list[int]:
    """Cells at which bins begin, but for the first."""
    standing = counts > _doubt(len(counts)) * sigma
    if 0 < standing.sum() <= bins and not _is_there(counts[~standing], sigma):
        return [int(i) for i in np.flatnonzero(standing)[1:]]
    counts = np.maximum(counts, 0.0)
    cuts: list[int] = []
    inside, total = 0.0, float(counts.sum())
    for i, count in enumerate(counts[:-1]):
        inside += count
        if inside >= total / bins and len(cuts) < bins - 1:
            cuts.append(i + 1)
            inside = 0.0
    return cuts


def spots(width: FloatArray, counts: FloatArray, sigma: float) -> FloatArray:
    r"""Weights of the cells of one bin, by their noisy ``counts``; all 0 where rows may be spread evenly by ``width``.

    A cell stands out that exceeds an even spread by more than :math:`(1 + \sqrt{2 \ln n})\sigma`, which n noises hardly ever reach.
    It keeps its count, the rest is spread anew, and again until nothing stands out. What is left is spread evenly over
    the other cells, or nowhere where it cannot be told from nothing.

    >>> spots(np.ones(3), np.array([2.0, 90.0, -1.0]), 3.0), spots(np.ones(3), np.array([20.0, 25.0, 22.0]), 3.0)
    (array([ 0., 90.,  0.]), array([0., 0., 0.]))
    """
    out = np.zeros(len(counts), dtype=bool)
    while not out.all():
        even = max(float(counts[~out].sum()), 0.0) * width / width[~out].sum()
        more = ~out & (counts - even > _doubt(len(counts)) * sigma)
        if not more.any():
            break
        out |= more
    weights = np.where(out, counts, 0.0)
    if out.any() and not out.all() and _is_there(counts[~out], sigma):
        weights[~out] = counts[~out].sum() * width[~out] / width[~out].sum()
    return weights


def _doubt(cells: Any) -> Any:
    """Standard deviations that the largest of so many noises hardly ever reaches."""
    return 1.0 + np.sqrt(2 * np.log(np.maximum(cells, 2)))


def _is_there(counts: FloatArray, sigma: float) -> bool:
    """Whether cells hold rows between them, as far as noise lets tell."""
    return float(counts.sum()) > SIGNIFICANT * sigma * math.sqrt(max(len(counts), 1))


def _support(counts: FloatArray, sigma: float) -> tuple[int, int]:
    """First and last cell of the range that holds rows: where the running count starts to rise from either end.

    Before the range a running sum of noisy counts wanders about 0, inside it climbs by the mean count per cell. Its lowest
    point against half that slope is the usual (CUSUM) estimate of where the climb begins.
    """

    def start(values: FloatArray) -> int:
        running = np.concatenate([[0.0], np.cumsum(values)])
        high = np.flatnonzero(running > SIGNIFICANT * sigma * np.sqrt(np.arange(len(running))))
        if not len(high):
            return 0
        slope = max(running[-1], 0.0) / len(values)
        return int(np.argmin(running[: high[0] + 1] - slope / 2 * np.arange(high[0] + 1)))

    first, last = start(counts), len(counts) - 1 - start(counts[::-1])
    return (first, last) if first <= last else (0, len(counts) - 1)


def public_domain(column: Column, values: list[object], *, bins: int) -> Domain:
    """Domain of a column whose values are public, from those values themselves."""
    if column.type.ordered:
        return public_bins(column.type, values, bins=bins)
    present = {v for v in values if v is not None}
    return Categories(tuple(sorted(present, key=str)), other=True)  # type: ignore[arg-type]


def public_bins(kind: Type, values: list[object], *, bins: int) -> Bins:
    """Bins for a public column, from its values themselves."""
    axis = sorted({to_axis(kind, v) for v in values if v is not None})  # type: ignore[arg-type]
    if not axis:
        return Bins((from_axis(kind, 0), from_axis(kind, 1)))
    step = 1 if kind.kind != "float" else 0
    if len(axis) <= bins:
        return bins_at(kind, [*axis, axis[-1] + (step or 1)])
    picks = [axis[len(axis) * i // bins] for i in range(bins)]
    return bins_at(kind, [*picks, axis[-1] + step])
