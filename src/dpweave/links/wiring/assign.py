r"""The kernel of assignments: each row gets one target, none gets more rows than it has room for.

Which targets come into question for a row, how many rows each target may have, and how well a row and a target suit
each other are values that are handed in. Rows and targets look at the same scores. So there is exactly one assignment
in which no row and no target would both rather have each other, and the slow way to it is: take the pairs from the
highest score to the lowest, and keep each whose row is free and whose target has room. :func:`assign` finds the same
one (Gale, Shapley 1962): all rows ask their best target at once, targets keep the best they have room for, and those
that are turned away ask the next one.

With scores :math:`\theta + G`, where G are independent standard Gumbel variables (:func:`noisy`), a row's best target
is a draw with probabilities proportional to :math:`e^\theta`. Where any target of a group will do, nothing has to be
listed: :func:`assign_at_random`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpweave.arrays import running_number
from dpweave.links.wiring.constraints import narrow

if TYPE_CHECKING:
    from dpweave.arrays import FloatArray, IntArray


class Candidates(NamedTuple):
    """Pairs of a row and a target that may come together; rows are 0 … ``rows`` - 1."""

    row: IntArray
    target: IntArray
    rows: int


def assign(candidates: Candidates, capacity: IntArray, score: FloatArray) -> IntArray:
    """Return the target of each row, -1 where there is none with room left; pairs of minus infinity never meet.

    Of equal scores the lower row comes first, and of one row the pair that is listed first.

    >>> pairs = Candidates(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), 2)
    >>> assign(pairs, np.array([1, 1]), np.array([3.0, 2.0, 4.0, 1.0]))
    array([1, 0])
    """
    order = np.lexsort((-score, candidates.row))
    order = order[score[order] > -np.inf]
    row, target, score = candidates.row[order], candidates.target[order], score[order]
    every = np.arange(candidates.rows)
    asked, end = np.searchsorted(row, every), np.searchsorted(row, every, side="right")
    holds = np.zeros(candidates.rows, dtype=bool)
    free = every[asked < end]
    while len(free):
        wanted = np.zeros(len(capacity), dtype=bool)
        wanted[target[asked[free]]] = True
        rivals = np.flatnonzero(holds)
        rivals = np.append(rivals[wanted[target[asked[rivals]]]], free)
        at = asked[rivals]
        best = np.lexsort((at, -score[at], target[at]))
        rivals, there = rivals[best], target[at[best]]
        stays = place_in_run(there) < capacity[there]
        holds[rivals] = stays
        free = rivals[~stays]
        asked[free] += 1
        free = free[asked[free] < end[free]]
    out = np.full(candidates.rows, -1, dtype=np.int64)
    out[holds] = target[asked[holds]]
    return out


def place_in_run(ordered: IntArray) -> IntArray:
    """Number the entries of each run of equal values from 0.

    >>> place_in_run(np.array([3, 3, 5, 5, 5]))
    array([0, 1, 0, 1, 2])
    """
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
    return np.arange(len(ordered)) - np.repeat(starts, np.diff(starts, append=len(ordered)))


def noisy(log_odds: FloatArray | float, size: int | tuple[int, int], rng: np.random.Generator) -> FloatArray:
    """Scores by which the best is a draw with probabilities proportional to the exponential of ``log_odds``."""
    return np.asarray(log_odds + rng.gumbel(size=size))


def assign_at_random(
    group: IntArray, target_group: IntArray, capacity: IntArray | None, *, rng: np.random.Generator
) -> IntArray:
    """Return a target of its own group, a small number, for each row, -1 where there is no room left.

    Of a group with too little room some rows are left out at random. Rows draw a target in proportion to its room;
    those that come too late draw again, in proportion to what room is left. A round serves more than half of its rows,
    so that time is linear.

    >>> assign_at_random(np.zeros(5, int), np.zeros(2, int), np.array([2, 2]), rng=np.random.default_rng(0)).tolist()
    [0, -1, 0, 1, 1]
    """
    out = np.full(len(group), -1, dtype=np.int64)
    room = np.ones(len(target_group), dtype=np.int64) if capacity is None else np.maximum(capacity, 0)
    low = int(min(group.min(initial=0), target_group.min(initial=0)))
    places = _Places.of(target_group - low, room, int(group.max(initial=low)) - low + 1)
    waiting = rng.permutation(np.flatnonzero(places.size[group - low] > 0))
    if capacity is None:
        return _set(out, waiting, places.draw(group[waiting] - low, rng))
    if (np.bincount(group - low, minlength=len(places.size)) > places.size).any():
        waiting = waiting[running_number(group[waiting]) < places.size[group[waiting] - low]]
    while len(waiting):
        target = places.draw(group[waiting] - low, rng)
        crowded = (np.bincount(target, minlength=len(room)) > room)[target]
        fits = ~crowded
        fits[crowded] = running_number(target[crowded]) < room[target[crowded]]
        _set(out, waiting[fits], target[fits])
        waiting = waiting[~fits]
        if len(waiting):
            room = room - np.bincount(target[fits], minlength=len(room))
            places = places.left(room)
    return out


class _Places(NamedTuple):
    """Targets by their group, each as many places as it has room; groups are small numbers from 0."""

    targets: IntArray
    starts: IntArray
    ends: IntArray
    each: int | None

    @classmethod
    def of(cls, group: IntArray, room: IntArray, groups: int) -> _Places:
        targets = np.argsort(narrow(group), kind="stable")
        starts = np.append(0, np.cumsum(np.bincount(group, minlength=groups)))
        return cls(targets, starts, room, None).left(room)

    def left(self, room: IntArray) -> _Places:
        """The same with so much room."""
        each = int(room[0]) if len(room) and (room == room[0]).all() else None
        return self._replace(ends=np.append(0, np.cumsum(room[self.targets])), each=each)

    @property
    def size(self) -> IntArray:
        """Number of places of each group."""
        return np.asarray(np.diff(self.ends[self.starts]))

    def draw(self, group: IntArray, rng: np.random.Generator) -> IntArray:
        """A target for each row of these groups, in proportion to its places."""
        size = self.size[group]
        place = np.minimum((rng.random(len(group)) * size).astype(np.int64), size - 1)
        if self.each is not None:
            at = self.starts[group] + place // self.each
        else:
            at = np.searchsorted(self.ends, self.ends[self.starts[group]] + place, side="right") - 1
        return np.asarray(self.targets[at])


def _set(out: IntArray, rows: IntArray, target: IntArray) -> IntArray:
    out[rows] = target
    return out
