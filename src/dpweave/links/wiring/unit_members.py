r"""Rows of one unit that lead to each other are chosen for each other: a child's mother
is drawn among all women, and moves in.

Rows are given to their owners one by one, so that a household may have a child and nobody of the age of a mother. So
in a unit with rows C that look for a target, one of its rows gives up its place, that which suits best. Who takes the
place is drawn among all rows that are free to move, each row j with probability proportional to

.. math:: \exp \frac{1}{|C|} \sum_{i \in C} \theta(i, j),

:math:`\theta` being the log-odds that i leads to j. That holds what is known of j and the unit, too, as columns of i's
owner are among those of i. The mean and not the sum, as rows of one unit mostly say the same about their target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpweave.links.row_types import RowTypes
from dpweave.links.wiring.assign import Candidates, assign, noisy
from dpweave.links.wiring.within_groups import UnitGroups, pairs_within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.links.link_fit import LinkFit

    LogOddsTable = Callable[[IntArray, IntArray], FloatArray]
    """Log-odds of some rows and some others: one row and one column for each; minus infinity where they must not meet.
    """

BLOCK = 1 << 22
"""Pairs of rows that are looked at together."""

FIRST = 64
"""Candidates of a row, at most: the best of its block."""


class Moves(NamedTuple):
    """Units, the row of each that gives up its place, and the row that takes it."""

    unit: IntArray
    leaves: IntArray
    comes: IntArray


class Seekers(NamedTuple):
    """Left rows that look for a target within their ``unit``, with their columns;
    ``time`` is when each is, if targets must come before them.
    """

    columns: Mapping[str, IntArray]
    unit: IntArray
    time: IntArray | None = None


class Members(NamedTuple):
    """Right rows with their columns, and the ``unit`` of each; ``free`` are those that may move,
    ``time`` as for those who seek.
    """

    columns: Mapping[str, IntArray]
    unit: IntArray
    free: IntArray
    time: IntArray | None = None


def choose_members(fit: LinkFit, left: Seekers, right: Members, *, rng: np.random.Generator) -> Moves:
    """Let each unit with left rows have the row that they will lead to. Only free right rows leave and come, none
    twice.

    Units without a free row stay as they are, and those for which nobody comes into question.
    """
    units, of = np.unique(left.unit, return_inverse=True)
    seeking, leaves = _leaving(fit, left, right, of)

    def log_odds(i: IntArray, j: IntArray) -> FloatArray:
        place = np.full(len(units), -1, dtype=np.int64)
        place[seeking[i]] = np.arange(len(i))
        rows = np.flatnonzero(place[of] >= 0)
        return _mean_log_odds(fit, left, right, rows, place[of[rows]], right.free[j])

    found = draw_partners(len(seeking), len(right.free), log_odds, rng=rng)
    there = found >= 0
    return Moves(units[seeking[there]], leaves[there], right.free[found[there]])


def _leaving(fit: LinkFit, left: Seekers, right: Members, of: IntArray) -> tuple[IntArray, IntArray]:
    """Units, by their place ``of`` left rows, that have a free row, and the free row of each that suits best."""
    blocks = list(pairs_within(UnitGroups(left.unit, right.unit[right.free])))
    i = np.concatenate([rows[i] for rows, i, _ in blocks] or [right.free[:0]])
    j = np.concatenate([j for _, _, j in blocks] or [right.free[:0]])
    pairs, at = np.unique(of[i] * max(len(right.free), 1) + j, return_inverse=True)
    odds = fit.log_odds_of_pairs(left.columns, right.columns, i, right.free[j])
    who, row = np.divmod(pairs, max(len(right.free), 1))
    # Each free row is of one unit, so that units do not compete for them.
    one = np.ones(len(right.free), dtype=np.int64)
    best = assign(
        Candidates(who, row, int(of.max(initial=-1)) + 1), one, np.bincount(at, weights=odds) / np.bincount(at)
    )
    found = np.flatnonzero(best >= 0)
    return found, right.free[best[found]]


def _mean_log_odds(
    fit: LinkFit, left: Seekers, right: Members, rows: IntArray, group: IntArray, others: IntArray
) -> FloatArray:
    """Mean log-odds of each group of left ``rows`` and each of some ``others`` that come before them all."""
    own = RowTypes.of({c: left.columns[c][rows] for c in fit.left}, fit.left, shape=fit.shape, rows=len(rows))
    theirs = RowTypes.of({c: right.columns[c][others] for c in fit.right}, fit.right, shape=fit.shape, rows=len(others))
    groups = int(group.max(initial=-1)) + 1
    share = np.zeros((groups, own.count))
    np.add.at(share, (group, own.of_row), 1.0)
    share /= share.sum(axis=1, keepdims=True)
    out = np.asarray((share @ fit.log_odds(own, theirs))[:, theirs.of_row])
    if left.time is not None and right.time is not None:
        first = np.full(groups, np.iinfo(np.int64).max)
        np.minimum.at(first, group, left.time[rows])
        out[right.time[others] >= first[:, None]] = -np.inf
    return out


def draw_partners(count: int, others: int, log_odds: LogOddsTable, *, rng: np.random.Generator) -> IntArray:
    """Give each of so many rows one of so many ``others`` with probability proportional
    to the exponential of their log-odds, none twice; -1 where there is none.

    >>> def odds(i, j):
    ...     return np.where(j == 1, 50.0, 0.0) + np.zeros((len(i), 1))
    >>> draw_partners(2, 3, odds, rng=np.random.default_rng(0)).tolist().count(1)
    1
    """
    partner = np.full(count, -1, dtype=np.int64)
    for i, j in _blocks(count, others, rng):
        score = noisy(log_odds(i, j), (len(i), len(j)), rng)
        first = min(FIRST, len(j))
        best = np.argpartition(-score, first - 1, axis=1)[:, :first]
        candidates = Candidates(np.repeat(np.arange(len(i)), first), best.ravel(), len(i))
        one = np.ones(len(j), dtype=np.int64)
        found = assign(candidates, one, np.take_along_axis(score, best, axis=1).ravel())
        partner[i] = np.where(found >= 0, j[found], -1)
    return partner


def _blocks(count: int, others: int, rng: np.random.Generator) -> Iterator[tuple[IntArray, IntArray]]:
    """Deal rows and others into parts at random, so that none is looked at twice."""
    parts = max(min(int(np.ceil(np.sqrt(count * others / BLOCK))), count, others), 1)
    most = max(BLOCK // max(-(-count // parts), 1), FIRST)
    some, rest = (np.array_split(rng.permutation(n), parts) for n in (count, others))
    yield from ((i, j[:most]) for i, j in zip(some, rest, strict=True) if len(i) and len(j))
