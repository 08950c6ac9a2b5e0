"""Links that stay within a group: a row leads to a row of its own group alone (a father in
the household, a payment for a rental of the same customer).

What was learned says how much likelier than by chance a row of one type leads to one of another. So each candidate of
a row is its target with probability proportional to the exponential of its log-odds
(:mod:`dpweave.links.wiring.assign`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpweave.links.wiring.assign import Candidates, assign, noisy, place_in_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dpweave.arrays import FloatArray, IntArray

    LogOdds = Callable[[IntArray, IntArray], FloatArray]
    """How much likelier than by chance left rows lead to right rows, as a logarithm, pair by pair."""

_PAIRS = 1 << 22
"""Pairs of rows that are looked at together."""


class UnitGroups(NamedTuple):
    """Groups of left and right rows, of which only equals may meet; ``own`` is each
    left row's place on the right, where both are of one table.
    """

    left: IntArray
    right: IntArray
    own: IntArray | None = None


def assign_within_groups(
    groups: UnitGroups, *, bound: int | IntArray | None, rng: np.random.Generator, log_odds: LogOdds | None = None
) -> IntArray:
    """Return a right row of its own group for each left row, -1 where there is none left; none leads to itself.

    >>> groups = UnitGroups(np.array([0, 1, 1, 2]), np.array([1, 0, 1, 1]))
    >>> assign_within_groups(groups, bound=1, rng=np.random.default_rng(0))[[0, 3]]
    array([ 1, -1])
    """
    target = np.full(len(groups.left), -1, dtype=np.int64)
    capacity = np.broadcast_to(len(target) if bound is None else bound, len(groups.right)).astype(np.int64)
    for some, i, j in pairs_within(groups):
        score = noisy(0.0 if log_odds is None else log_odds(some[i], j), len(i), rng)
        target[some] = assign(Candidates(i, j, len(some)), capacity, score)
    return target


def pairs_within(groups: UnitGroups) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """Left rows, block by block, and pairs of one of them, by its place in the block, and a right row of its group.
    All pairs of a group are in one block, as they share targets.
    """
    order, by_group = np.argsort(groups.left, kind="stable"), np.argsort(groups.right, kind="stable")
    left = groups.left[order]
    start, end = (np.searchsorted(groups.right[by_group], left, side=side) for side in ("left", "right"))
    ends = np.flatnonzero(np.diff(left, append=left[-1] + 1)) + 1 if len(left) else np.zeros(0, dtype=np.int64)
    pairs = np.cumsum(end - start)[ends - 1]
    group = first = done = 0
    while group < len(ends):
        group = max(int(np.searchsorted(pairs, done + _PAIRS, side="right")), group + 1)
        block = slice(first, int(ends[group - 1]))
        times = (end - start)[block]
        i = np.repeat(np.arange(len(times)), times)
        j = by_group[np.repeat(start[block], times) + place_in_run(i)]
        if groups.own is not None:
            others = groups.own[order[block]][i] != j
            i, j = i[others], j[others]
        yield order[block], i, j
        first, done = block.stop, int(pairs[group - 1])
