"""Links made to come in both directions: with each pair the pair the other way round.

Rows keep the end they belong to, and with it how many links each end has. Only where the other end lies is changed, and
only as far as it must be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpweave.arrays import running_number

if TYPE_CHECKING:
    from dpweave.arrays import BoolArray, IntArray

_ROUNDS = 8
"""Rounds of partners for rows whose own have no room: in each, all but a few of those who can find one do."""


def unmirrored(a: IntArray, b: IntArray) -> BoolArray:
    """Rows that lead somewhere by both keys where no row leads the other way round.

    >>> unmirrored(np.array([0, 1, 2, 2, 3]), np.array([1, 0, 2, 3, -1]))
    array([False, False, False,  True, False])
    """
    both, size = (a >= 0) & (b >= 0), int(max(a.max(initial=0), b.max(initial=0))) + 1
    return np.asarray(both & ~np.isin(a * size + b, (b * size + a)[both]))


def mirrored(a: IntArray, b: IntArray, labels: IntArray, rng: np.random.Generator) -> IntArray:
    """Where the second key leads so that no pair of ``a`` and it comes twice, none leads to itself, and each comes both
    ways; -1 for rows that find no partner, or had none. ``labels`` say which targets are alike.

    Pairs that come both ways stay. Then others, in any order, become pairs both ways as long as both ends have a row
    left. Rows that still have no partner are paired with those who look for one like them, and the rest at random.

    >>> made = mirrored(np.array([0, 1, 2, 3]), np.array([1, 2, 3, 0]), np.zeros(4, int), np.random.default_rng(0))
    >>> made.tolist() in ([1, 0, 3, 2], [3, 2, 1, 0])
    True
    """
    rows = np.flatnonzero((a >= 0) & (b >= 0))
    size = len(labels)
    wanted = np.unique(a[rows] * size + b[rows])
    low, high = np.minimum(wanted // size, wanted % size), np.maximum(wanted // size, wanted % size)
    pairs, times = np.unique((low * size + high)[low != high], return_counts=True)
    rows_of = np.bincount(a[rows], minlength=size)
    edges = _as_room_allows(pairs, times > 1, rows_of, size, rng)
    for by_label in [True] * _ROUNDS + [False] * _ROUNDS:
        if by_label:
            bare = rng.permutation(rows[_dealt(edges, a, b, rows, labels)[rows] < 0])
            one, other = _looking_for_each_other(labels[a[bare]], labels[b[bare]])
            ends = a[bare[one]], a[bare[other]]
        else:
            bare = rng.permutation(np.repeat(np.arange(size), rows_of - _degrees(edges, size)))
            ends = bare[: len(bare) // 2], bare[len(bare) // 2 : len(bare) // 2 * 2]
        low, high = np.minimum(*ends), np.maximum(*ends)
        edges = np.union1d(edges, (low * size + high)[low != high])
    return _dealt(edges, a, b, rows, labels)


def _degrees(edges: IntArray, size: int) -> IntArray:
    return np.asarray(np.bincount(edges // size, minlength=size) + np.bincount(edges % size, minlength=size))


def _as_room_allows(
    edges: IntArray, first: BoolArray, rows_of: IntArray, size: int, rng: np.random.Generator
) -> IntArray:
    """Edges such that no other fits beside them: of each end no more than it has rows; all that come ``first``."""
    chosen, order = edges[first], rng.permutation(edges[~first])
    room = rows_of - _degrees(chosen, size)
    while len(order):
        ends = np.stack([order // size, order % size], axis=1).ravel()
        fits = (running_number(ends) < room[ends]).reshape(-1, 2).all(axis=1)
        chosen, room = np.r_[chosen, order[fits]], room - _degrees(order[fits], size)
        order = order[~fits]
        order = order[(room[order // size] > 0) & (room[order % size] > 0)]
    return np.sort(chosen)


def _looking_for_each_other(have: IntArray, want: IntArray) -> tuple[IntArray, IntArray]:
    """Places of rows that are what another wants and want what it is, each used once.

    >>> _looking_for_each_other(np.array([0, 1, 1, 2, 2]), np.array([1, 1, 0, 2, 2]))
    (array([0, 3]), array([2, 4]))
    """
    kind = have * (max(have.max(initial=0), want.max(initial=0)) + 1) + want
    second = np.where(have == want, running_number(kind) % 2 == 1, have > want)
    one, other = np.flatnonzero(~second), np.flatnonzero(second)
    size = max(have.max(initial=0), want.max(initial=0)) + 1
    found = _matched(kind[one], want[other] * size + have[other])
    return one[found[0]], other[found[1]]


def _dealt(edges: IntArray, a: IntArray, b: IntArray, rows: IntArray, labels: IntArray) -> IntArray:
    """Give each way of each edge to a row of where it starts: to the one that led there, else to one that led to
    somebody alike, else to any; -1 for rows that get none.
    """
    out, size = np.full(len(a), -1, dtype=np.int64), len(labels)
    low, high = edges // size, edges % size
    start, end = np.r_[low, high], np.r_[high, low]
    for like in (lambda t: t, lambda t: labels[t], np.zeros_like):
        at, way = _matched(a[rows] * size + like(b[rows]), start * size + like(end))
        out[rows[at]] = end[way]
        rows, start, end = np.delete(rows, at), np.delete(start, way), np.delete(end, way)
    return out


def _matched(x: IntArray, y: IntArray) -> tuple[IntArray, IntArray]:
    """Places in ``x`` and in ``y`` that hold the same, each used once.

    >>> _matched(np.array([5, 5, 7]), np.array([7, 5, 8]))
    (array([0, 2]), array([1, 0]))
    """
    _, code = np.unique(np.r_[x, y], return_inverse=True)
    most = len(code) + 1
    one, two = (c * most + running_number(c) for c in (code[: len(x)], code[len(x) :]))
    _, at, other = np.intersect1d(one, two, assume_unique=True, return_indices=True)
    return at, other
