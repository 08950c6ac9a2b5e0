r"""Pairs that repeat: rows exchange targets until as many of them repeat a pair as were measured.

A junction's row *repeats* if an earlier row of its owner has the same target. Exchanging targets between two rows
keeps every degree on both sides. If both rows are of one kind, or both targets are, it also keeps every count over
columns of the two sides, so that what was learned of the links stays as it is while pairs come together or apart.

There is an end to it: different pairs are the edges of a graph between owners and targets. Edges that form no circle
can carry any degrees, and there are at most one fewer of these than owners and targets together. So all but that many
rows can always be made to repeat; fewer different pairs take owners and targets whose degrees happen to add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from dpweave.arrays import IntArray

Mask = np.ndarray[Any, Any]

_IDLE = 4
"""Rounds without any exchange after which no more is looked for."""
_ROUNDS = 400


@dataclass(frozen=True)
class Pairs:
    """Rows of a junction: who owns each, where it leads, and what may be exchanged.

    Rows of one ``place`` may have each other's targets. ``kind`` tells rows apart by what their links
    were learned on, and ``target_kind`` the targets. ``seen`` are the rows that a bounded view shows.
    """

    owner: IntArray
    target: IntArray
    place: IntArray
    kind: IntArray
    target_kind: IntArray
    seen: Mask


@dataclass(frozen=True)
class Repeated:
    """Targets after the exchange, and the share of seen rows that repeat: before, as wanted, and now."""

    target: IntArray
    before: float
    wanted: float
    reached: float


def repeat(pairs: Pairs, *, share: float, error: float, rng: np.random.Generator) -> Repeated:
    """Exchange targets until the ``share`` of seen rows that repeat is within ``error`` of what was measured.

    Rows of one kind are tried first, then any rows of one place; of these, rows whose pair is single
    first, then all, which may leave a pair for one that occurs more often. Where owners have too few
    rows for so many repetitions, or targets too few rows to be taken from, it comes as near as it can.
    """
    rows = int(pairs.seen.sum())
    target = pairs.target.copy()
    before = _repeats(pairs, target)
    wanted = round(min(max(before, (share - error) * rows), (share + error) * rows))
    most = rows - len(np.unique(pairs.owner[pairs.seen]))
    for strict, gather in product((True, False), (False, True)):
        idle = 0
        for _ in range(_ROUNDS):
            gap = min(wanted, most) - _repeats(pairs, target)
            if not gap or idle == _IDLE:
                break
            idle = 0 if _exchange(pairs, target, gap, strict=strict, gather=gather, rng=rng) else idle + 1
    return Repeated(target, before / max(rows, 1), wanted / max(rows, 1), _repeats(pairs, target) / max(rows, 1))


def _repeats(pairs: Pairs, target: IntArray) -> int:
    codes = _codes(pairs, pairs.owner, target)[pairs.seen]
    return len(codes) - len(np.unique(codes))


def _codes(pairs: Pairs, owner: IntArray, target: IntArray) -> IntArray:
    return np.asarray(owner * len(pairs.target_kind) + target, dtype=np.int64)


def _exchange(pairs: Pairs, target: IntArray, gap: int, *, strict: bool, gather: bool, rng: np.random.Generator) -> int:
    """One round of exchanges that change disjoint pairs, at most as many as close the gap; returns how many.

    To ``gather``, exchanges that change nothing are made too if pairs that occur often
    occur more often: the sum of squares of their numbers rises, so that this ends.
    """
    have = _Counted(_codes(pairs, pairs.owner, target))
    shown = _Counted(_codes(pairs, pairs.owner, target)[pairs.seen])
    mine, theirs = _proposals(pairs, target, have, gap, strict=strict, gather=gather, rng=rng)
    legal = (pairs.owner[mine] != pairs.owner[theirs]) & (pairs.place[mine] == pairs.place[theirs])
    legal &= target[mine] != target[theirs]
    if strict:
        kinds = pairs.target_kind
        legal &= (pairs.kind[mine] == pairs.kind[theirs]) | (kinds[target[mine]] == kinds[target[theirs]])
    mine, theirs = mine[legal], theirs[legal]
    owners, ends = (pairs.owner[mine], pairs.owner[theirs]), (target[mine], target[theirs])
    left = [_codes(pairs, o, t) for o, t in zip(owners, ends, strict=True)]
    taken = [_codes(pairs, o, t) for o, t in zip(owners, reversed(ends), strict=True)]
    everybody = np.ones(len(mine), dtype=bool)
    change = _change(have, left, taken, (everybody, everybody))
    helps = change * np.sign(gap) > 0
    if gather and gap > 0:
        rise = sum(have.of(c) for c in taken) - sum(have.of(c) for c in left) + 2
        helps |= (change == 0) & (np.asarray(rise) > 0)
    useful = np.flatnonzero(helps)
    useful = useful[_disjoint(np.stack([*left, *taken], axis=1)[useful])]
    visible = _change(shown, left, taken, (pairs.seen[mine], pairs.seen[theirs]))[useful]
    useful = useful[np.cumsum(visible * np.sign(gap)) <= abs(gap)]
    target[mine[useful]], target[theirs[useful]] = ends[1][useful], ends[0][useful]
    return len(useful)


def _proposals(
    pairs: Pairs, target: IntArray, have: _Counted, gap: int, *, strict: bool, gather: bool, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Draw pairs of rows whose exchange may help: towards a target that the owner has,
    or away from one it has twice.
    """
    twice = have.of(_codes(pairs, pairs.owner, target)) > 1
    among = twice if gap < 0 else ~twice | gather
    mine = rng.permutation(np.flatnonzero(among))[: 4 * abs(gap) + 64]
    if gap > 0:
        sibling = _Grouped(pairs.owner).draw(pairs.owner[mine], rng)
        wanted = target[sibling]
        groups = len(pairs.target_kind)
        theirs = _Grouped(target).draw(wanted, rng)
        alike = _Grouped(pairs.kind * groups + target).draw(pairs.kind[mine] * groups + wanted, rng)
        theirs = np.where(alike >= 0, alike, theirs) if strict else theirs
    else:
        theirs = _Grouped(pairs.kind).draw(pairs.kind[mine], rng) if strict else rng.integers(0, len(target), len(mine))
    return mine, theirs


def _change(have: _Counted, left: list[IntArray], taken: list[IntArray], who: tuple[Mask, Mask]) -> IntArray:
    """By how much the number of rows that repeat changes if each of ``who`` leaves its pair for the other."""
    fewer = sum(w & (have.of(c) > 1) for w, c in zip(who, left, strict=True))
    more = sum(w & (have.of(c) > 0) for w, c in zip(who, taken, strict=True))
    return np.asarray(more, dtype=np.int64) - np.asarray(fewer, dtype=np.int64)


def _disjoint(touched: IntArray) -> IntArray:
    """Positions of rows of ``touched`` none of whose entries occurs in an earlier row."""
    _, first = np.unique(touched.reshape(-1), return_index=True)
    fresh = np.zeros(touched.size, dtype=bool)
    fresh[first] = True
    return np.flatnonzero(fresh.reshape(touched.shape).all(axis=1))


class _Counted:
    """How often each code occurs."""

    def __init__(self, codes: IntArray) -> None:
        self._codes, self._counts = np.unique(codes, return_counts=True)

    def of(self, codes: IntArray) -> IntArray:
        if not len(self._codes):
            return np.zeros(len(codes), dtype=np.int64)
        at = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        return np.where(self._codes[at] == codes, self._counts[at], 0)


class _Grouped:
    """Rows by label."""

    def __init__(self, labels: IntArray) -> None:
        self._order = np.argsort(labels, kind="stable")
        self._labels = labels[self._order]

    def draw(self, labels: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw one row of each label asked for; -1 where there is none."""
        first = np.searchsorted(self._labels, labels)
        count = np.searchsorted(self._labels, labels, side="right") - first
        at = first + (rng.random(len(labels)) * count).astype(np.int64)
        return np.where(count > 0, self._order[np.minimum(at, len(self._order) - 1)], -1)
