r"""Rows of one unit that lead to each other are chosen for each other: a child's mother
is drawn among all women, and moves in.

Rows are given to their owners one by one, so that a household may have a child and nobody of the age of a
mother. So a unit with rows C that look for a target **claims** the seat of one of its rows, that which suits
best. Who takes it is drawn among all rows that are free to move, each row j with probability proportional to

.. math:: \exp \frac{1}{|C|} \sum_{i \in C} \theta(i, j),

:math:`\theta` being how much likelier than by chance i leads to j. That holds what is known of j and the unit, too, as
columns of i's owner are among those of i. The mean and not the sum, as rows of one unit mostly say the same about their
target. The largest :math:`\overline\theta + G` with independent standard Gumbel variables G is such a draw; where two
units choose the same row, the one with the larger sum has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpweave.links.row_types import RowTypes
from dpweave.links.wiring.within_groups import UnitGroups, candidates, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.links.link_fit import LinkFit

    Leans = Callable[[IntArray, IntArray], FloatArray]
    """How some rows lean to some others: one row and one column for each; minus infinity where they must not meet."""

BLOCK = 1 << 22
"""Pairs of rows that are looked at together."""

FIRST = 64
"""Rows from which one chooses while others do, at most."""


class Claims(NamedTuple):
    """Units, the row of each whose seat is claimed, and the row that takes it."""

    unit: IntArray
    seat: IntArray
    taken: IntArray


class Seekers(NamedTuple):
    """Left rows that look for a target within their ``unit``, with their columns;
    ``time`` is when each is, if targets must come before them.
    """

    columns: Mapping[str, IntArray]
    unit: IntArray
    time: IntArray | None = None


class Sitters(NamedTuple):
    """Right rows with their columns, and the ``unit`` where each has a seat; ``free``
    are those that may move, ``time`` as for those who seek.
    """

    columns: Mapping[str, IntArray]
    unit: IntArray
    free: IntArray
    time: IntArray | None = None


def claim(fit: LinkFit, left: Seekers, right: Sitters, *, rng: np.random.Generator) -> Claims:
    """Let each unit with left rows claim a seat for the row that they will lead to.
    Only free right rows have seats to claim, and take them, none twice.

    Units without a free row claim nothing, nor do those for which nobody comes into question.
    """
    units, of = np.unique(left.unit, return_inverse=True)
    claiming, seat = _seats(fit, left, right, of)

    def leans(i: IntArray, j: IntArray) -> FloatArray:
        place = np.full(len(units), -1, dtype=np.int64)
        place[claiming[i]] = np.arange(len(i))
        rows = np.flatnonzero(place[of] >= 0)
        return _mean_leans(fit, left, right, rows, place[of[rows]], right.free[j])

    found = matched(len(claiming), len(right.free), leans, rng=rng)
    there = found >= 0
    return Claims(units[claiming[there]], seat[there], right.free[found[there]])


def _seats(fit: LinkFit, left: Seekers, right: Sitters, of: IntArray) -> tuple[IntArray, IntArray]:
    """Units, by their place ``of`` left rows, that have a free row, and the free row of each that suits best."""
    blocks = list(candidates(UnitGroups(left.unit, right.unit[right.free])))
    i, j = (np.concatenate([b[side] for b in blocks] or [right.free[:0]]) for side in (0, 1))
    pairs, at = np.unique(of[i] * max(len(right.free), 1) + j, return_inverse=True)
    score = np.bincount(at, weights=fit.leans(left.columns, right.columns, i, right.free[j])) / np.bincount(at)
    who, row = np.divmod(pairs, max(len(right.free), 1))
    best = np.lexsort((-score, who))
    best = best[np.flatnonzero(np.diff(who[best], prepend=-1))]
    return who[best], right.free[row[best]]


def _mean_leans(
    fit: LinkFit, left: Seekers, right: Sitters, rows: IntArray, group: IntArray, others: IntArray
) -> FloatArray:
    """Mean lean of each group of left ``rows`` to each of some ``others`` that come before them all."""
    own = RowTypes.of({c: left.columns[c][rows] for c in fit.left}, fit.left, shape=fit.shape, rows=len(rows))
    theirs = RowTypes.of({c: right.columns[c][others] for c in fit.right}, fit.right, shape=fit.shape, rows=len(others))
    groups = int(group.max(initial=-1)) + 1
    share = np.zeros((groups, own.count))
    np.add.at(share, (group, own.of_row), 1.0)
    share /= share.sum(axis=1, keepdims=True)
    out = np.asarray((share @ fit.lean(own, theirs))[:, theirs.of_row])
    if left.time is not None and right.time is not None:
        first = np.full(groups, np.iinfo(np.int64).max)
        np.minimum.at(first, group, left.time[rows])
        out[right.time[others] >= first[:, None]] = -np.inf
    return out


def matched(count: int, others: int, leans: Leans, *, rng: np.random.Generator) -> IntArray:
    """Give each of so many rows one of so many ``others`` with probability proportional
    to the exponential of its lean, none twice; -1 where there is none.

    >>> def scores(i, j):
    ...     return np.where(j == 1, 50.0, 0.0) + np.zeros((len(i), 1))
    >>> matched(2, 3, scores, rng=np.random.default_rng(0)).tolist().count(1)
    1
    """
    taken = np.full(count, -1, dtype=np.int64)
    for i, j in _blocks(count, others, rng):
        score = leans(i, j) + rng.gumbel(size=(len(i), len(j)))
        first = min(FIRST, len(j))
        best = np.argpartition(-score, first - 1, axis=1)[:, :first]
        rows, found = np.repeat(np.arange(len(i)), first), np.take_along_axis(score, best, axis=1).ravel()
        order = np.lexsort((-found, rows))
        order = order[found[order] > -np.inf]
        target = np.full(len(i), -1, dtype=np.int64)
        settle(rows[order], best.ravel()[order], found[order], target, np.ones(len(j), dtype=np.int64))
        taken[i] = np.where(target >= 0, j[target], -1)
    return taken


def _blocks(count: int, others: int, rng: np.random.Generator) -> Iterator[tuple[IntArray, IntArray]]:
    """Deal rows and others into parts at random, so that none is looked at twice."""
    parts = max(min(int(np.ceil(np.sqrt(count * others / BLOCK))), count, others), 1)
    most = max(BLOCK // max(-(-count // parts), 1), FIRST)
    some, rest = (np.array_split(rng.permutation(n), parts) for n in (count, others))
    yield from ((i, j[:most]) for i, j in zip(some, rest, strict=True) if len(i) and len(j))
