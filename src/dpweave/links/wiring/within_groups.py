r"""Links that stay at home: a row leads to a row of its own group alone (a father in
the household, a payment for a rental of the same customer).

What was learned says how much likelier than by chance a row of one type leads to one of another. So each candidate j of
row i is its target with probability proportional to :math:`e^{\theta(i, j)}`: the largest :math:`\theta(i, j) + G_{ij}`
with independent standard Gumbel variables G is one. Where more rows choose a target than may lead to it, those with the
largest sums stay and the others choose anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpweave.arrays import running_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dpweave.arrays import FloatArray, IntArray

    Leans = Callable[[IntArray, IntArray], FloatArray]
    """How left rows lean to right rows, pair by pair."""

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
    home: UnitGroups, *, bound: int | IntArray | None, rng: np.random.Generator, leans: Leans | None = None
) -> IntArray:
    """Return a right row of its own group for each left row, -1 where there is none left; none leads to itself.

    >>> home = UnitGroups(np.array([0, 1, 1, 2]), np.array([1, 0, 1, 1]))
    >>> assign_within_groups(home, bound=1, rng=np.random.default_rng(0))[[0, 3]]
    array([ 1, -1])
    """
    target = np.full(len(home.left), -1, dtype=np.int64)
    room = np.broadcast_to(len(target) if bound is None else bound, len(home.right)).astype(np.int64)
    for i, j in candidates(home):
        score = rng.gumbel(size=len(i)) + (0.0 if leans is None else leans(i, j))
        best = np.lexsort((-score, i))
        best = best[score[best] > -np.inf]  # others must not meet
        settle(i[best], j[best], score[best], target, room)
    return target


def settle(i: IntArray, j: IntArray, score: FloatArray, target: IntArray, room: IntArray) -> None:
    """Give each row i its best target as long as that has room, and then the next one;
    pairs come by row, the best first.
    """
    while len(i):
        first = np.flatnonzero(np.diff(i, prepend=-1))
        first = first[np.lexsort((-score[first], j[first]))]
        chosen = first[running_number(j[first]) < room[j[first]]]
        target[i[chosen]] = j[chosen]
        np.subtract.at(room, j[chosen], 1)
        left = (target[i] < 0) & (room[j] > 0)
        i, j, score = i[left], j[left], score[left]


def candidates(home: UnitGroups) -> Iterator[tuple[IntArray, IntArray]]:
    """Pairs of a left row and a right row of its group, block by block: all pairs of a
    group together, as they share targets.
    """
    order, by_group = np.argsort(home.left, kind="stable"), np.argsort(home.right, kind="stable")
    groups = home.left[order]
    start, end = (np.searchsorted(home.right[by_group], groups, side=side) for side in ("left", "right"))
    ends = np.flatnonzero(np.diff(groups, append=groups[-1] + 1)) + 1 if len(groups) else np.zeros(0, dtype=np.int64)
    pairs = np.cumsum(end - start)[ends - 1]
    group = first = done = 0
    while group < len(ends):
        group = max(int(np.searchsorted(pairs, done + _PAIRS, side="right")), group + 1)
        block = slice(first, int(ends[group - 1]))
        times = (end - start)[block]
        i = np.repeat(order[block], times)
        j = by_group[np.repeat(start[block], times) + running_number(np.repeat(np.arange(len(times)), times))]
        if home.own is not None:
            others = home.own[i] != j
            i, j = i[others], j[others]
        yield i, j
        first, done = block.stop, int(pairs[group - 1])
