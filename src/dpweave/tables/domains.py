"""Domains learned under the budget: lists of categories, and groups of degrees. Ranges are learned in :mod:`dpweave.tables.ranges`."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.links.degrees import telling_cuts
from dpweave.schema.domain import Bins, Categories, Domain, bins_at, from_axis, is_plain, to_axis

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.schema.model import Column, Type
    from dpweave.window import FloatArray, IntArray, NoisyMarginal

BEYOND_DOUBT = 5.5
"""Standard deviations by which a count must stand out of its noise to be believed, of rows with large degrees, or of rows in some stretch of values."""
BUCKETS = 0.05
"""Relative error of a sum of degrees by what their buckets do not tell."""
TAIL = 4
"""How far, as a multiple of its beginning, the tail of degrees is taken to reach."""
GROUPS = 6
"""Groups of degrees that a table model tells apart."""
SIGNIFICANT = 3.0
"""Cells are taken to hold rows where their noisy count passes this many standard deviations."""


def categories_from(found: Mapping[str, int], *, most: int = 1000) -> Categories:
    """Return the categories that passed the threshold, commonest first; the rest is *other*, and so are texts with a NUL."""
    ranked = sorted(filter(is_plain, found), key=lambda v: (-found[v], v))[:most]
    return Categories(tuple(ranked), other=True)


def _body(counts: FloatArray, sigma: float) -> tuple[int, int]:
    """First and last cell that holds rows, beginning with the fullest.

    The further a cell is from those that do, the more it must stand out: there are as many more between in which noise may. A cell
    wrongly taken next to the body makes the grid a little coarser, one far away makes it useless.
    """
    first = last = int(np.argmax(counts))
    places = np.arange(len(counts))
    while True:
        far = np.maximum(np.maximum(first - places, places - last), 0)
        more = np.flatnonzero((far > 0) & (counts > doubt(far + 1) * sigma))
        if not len(more):
            return first, last
        first, last = min(first, int(more[0])), max(last, int(more[-1]))


def doubt(cells: Any) -> Any:
    """Standard deviations that the largest of so many noises hardly ever reaches."""
    return 1.0 + np.sqrt(2 * np.log(np.maximum(cells, 2)))


def degree_groups(
    marginal: NoisyMarginal, edges: tuple[int, ...], *, bound: int, noise: float, values: int
) -> tuple[int, ...]:
    """Join buckets of degrees into at most ``GROUPS`` groups for a table model; the last one ends where the tail does.

    A few wide groups show how degrees depend on other columns far above the noise of many narrow ones; degrees within a group
    are drawn from the fine counts afterwards. They are cut so that counts of rows per group, with the ``noise`` that a table
    model will have in them, tell most about the links of a column with ``values`` values.

    The tail begins where the count of rows in some run of buckets above is beyond doubt: one bucket of mere noise near a million would
    outweigh all rows there are. Larger degrees are part of it, and it reaches up to ``TAIL`` times its beginning. Where
    nothing is beyond doubt, degrees up to ``bound`` are one group.
    """
    last = _tail(marginal)
    if last == 0:
        return 0, min(bound, edges[-1] - 1) + 1
    top = (
        min(max(TAIL * edges[last], edges[last + 1]), edges[-1])
        if edges[last + 1] - edges[last] > 1
        else edges[last + 1]
    )
    if last <= GROUPS + 1:
        return (*edges[: last + 1], top)
    counts = np.maximum(np.append(marginal.counts[:last], marginal.counts[last:].sum()), 0).astype(np.float64)
    rows = max(float(counts.sum()), 1.0)
    # The tail's first bucket is where most of it is.
    shown = (*edges[: last + 1], edges[last + 1])
    cuts = telling_cuts(shown, counts / rows, rows=rows / max(values, 1), noise=noise, most=GROUPS - 1)
    return (0, *cuts, top)


def owned_rows(marginal: NoisyMarginal, edges: tuple[int, ...], *, bound: int) -> tuple[float, float]:
    """How many rows owners have, ``bound`` at most of each, by noisy counts of their degrees, and the variance of that.

    Degrees of a bucket are taken to be spread evenly over their logarithms; buckets beyond those that clearly hold owners are taken to be empty, since their noise would
    outweigh all rows. Where none does, nothing is told: infinite variance.
    """
    counts = marginal.counts.astype(np.float64)
    last = _body(counts, marginal.sigma)[1] + 1
    mean = [low if high - low < 2 else (high - low) / math.log(high / max(low, 1)) for low, high in pairwise(edges)]
    each = np.minimum(mean[:last], bound)
    rows = float(counts[:last] @ each)
    variance = marginal.sigma**2 * float((each**2).sum()) + (BUCKETS * rows) ** 2
    return (
        (rows, variance) if rows > SIGNIFICANT * marginal.sigma * float(np.sqrt((each**2).sum())) else (0.0, math.inf)
    )


def _tail(marginal: NoisyMarginal) -> int:
    """Last bucket of degrees such that the count of some run of buckets from it on is beyond doubt; the first where there is none.

    Runs of one bucket, two, four and so on: a few rows show in a short one that drown in the noise of all buckets up to a million.
    """
    running = np.concatenate([[0.0], np.cumsum(marginal.counts.astype(np.float64))])
    cells, last = len(running) - 1, 0
    for length in (1 << i for i in range(cells.bit_length() + 1)):
        ends = np.minimum(np.arange(cells) + length, cells)
        noise = marginal.sigma * np.sqrt(ends - np.arange(cells))
        clear = np.flatnonzero(running[ends] - running[:-1] > BEYOND_DOUBT * noise)
        last = max(last, int(clear[-1]) if len(clear) else 0)
    return last


def degree_histogram(
    marginal: NoisyMarginal, edges: tuple[int, ...], groups: tuple[int, ...]
) -> tuple[tuple[int, ...], IntArray]:
    """Return the fine buckets of ``groups`` with their noisy counts; those of the tail but its first are one bucket.

    The first bucket of the tail is there beyond doubt. Whether anything is above it is in doubt, so only as many rows are
    drawn there as were counted up to the tail's end.
    """
    if len(groups) == 2:
        return groups, np.maximum(marginal.counts.sum(keepdims=True), 0)
    below = _tail(marginal) + 1
    fine = (*edges[:below], *sorted({edges[below], groups[-1]}))
    beyond = marginal.counts[below : sum(e < groups[-1] for e in edges[:-1])].sum()
    counts = np.append(marginal.counts[:below], beyond)[: len(fine) - 1]
    return fine, np.maximum(counts, 0)


def public_domain(column: Column, values: list[object], *, bins: int) -> Domain:
    """Domain of a column whose values are public, from those values themselves."""
    if column.type.ordered:
        return public_bins(column.type, values, bins=bins)
    present = {v for v in values if v is not None and not (isinstance(v, str) and not is_plain(v))}
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
