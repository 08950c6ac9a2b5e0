r"""Pairs that repeat: rows exchange targets until as many of them repeat a pair as should, or none does.

A row *repeats* if an earlier row of its owner has the same target. Exchanging targets between two rows keeps every
degree on both sides. If both rows are of one kind, or both targets are, it also keeps every count over columns of the
two sides, so that what was learned of the links stays as it is while pairs come together or apart.

There is an end to it: different pairs are the edges of a graph between owners and targets. Edges that form no circle
can carry any degrees, and there are at most one fewer of these than owners and targets together. So all but that many
rows can always be made to repeat; fewer different pairs take owners and targets whose degrees happen to add up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dpweave.links.wiring.constraints import Grouped, SameCounts, SameGroup, among
from dpweave.links.wiring.exchange import Effort, exchange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.links.wiring.exchange import Constraint, Exchanges

    Labels = Callable[[IntArray], IntArray]
    """Numbers of links by what they have in common, for links with these ends."""

Mask = np.ndarray[Any, Any]

_EFFORT = Effort(rounds=400, patience=3)
"""For repetitions: after four rounds without any exchange no more is looked for."""

_TURNS = Effort(rounds=30, patience=5)
"""How often bad links look for partners of one kind, and how often in vain."""


@dataclass(frozen=True)
class BadLinks:
    """Links that must not stay as they are: each looks for a partner of its label, wherever it leads then.

    Which ends links may get is for constraints to say, so that whoever takes part in an exchange is fine afterwards.
    """

    bad: IntArray
    """In order."""
    labels: IntArray

    @property
    def loss(self) -> float:
        """How many there are."""
        return float(len(self.bad))

    @cached_property
    def _alike(self) -> Grouped:
        return Grouped(self.labels)

    def propose(self, ends: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:  # noqa: ARG002
        """Any other link of the same label."""
        return self.bad, self._alike.draw(self.labels[self.bad], rng) if len(self.bad) else self.bad

    def change(self, some: Exchanges) -> FloatArray:
        """One less, or two where the partner is bad as well."""
        return -1.0 - among(some.two, self.bad)

    def conflicts(self, some: Exchanges) -> None:  # noqa: ARG002
        """Links are bad each for itself."""
        return

    def most(self, some: Exchanges) -> int:
        """All of them."""
        return len(some.one)

    def after(self, some: Exchanges) -> tuple[Self, float]:
        """Leave out those that found another end."""
        bad = self.bad[~np.isin(self.bad, np.append(some.one, some.two))]
        return replace(self, bad=bad), float(len(bad) - len(self.bad))


def without_bad_links(
    ends: IntArray,
    bad: IntArray,
    keep: Sequence[Constraint],
    partners: Iterable[Labels],
    *,
    rng: np.random.Generator,
) -> tuple[IntArray, IntArray]:
    """Let ``bad`` links, in order, exchange ends with others, at first of the same label by the first of ``partners``,
    then of the next; return all ends, and the links that are still bad.
    """
    for labels in partners:
        if not len(bad):
            break
        found = exchange(ends, keep, BadLinks(bad, labels(ends)), effort=_TURNS, rng=rng)
        ends, keep, bad = found.ends, found.keep, found.objective.bad
    return ends, bad


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

    @cached_property
    def by_owner(self) -> Grouped:
        """Rows of each owner."""
        return Grouped(self.owner)

    @cached_property
    def by_kind(self) -> Grouped:
        """Rows of each kind."""
        return Grouped(self.kind)


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
    now = Repetitions.of(pairs, pairs.target)
    before = now.repeats
    wanted = round(min(max(before, (share - error) * rows), (share + error) * rows))
    most = rows - len(np.unique(pairs.owner[pairs.seen]))
    now, target = replace(now, wanted=min(wanted, most)), pairs.target
    for strict, gather in product((True, False), (False, True)):
        keep: list[Constraint] = [SameGroup(pairs.place)]
        keep += [SameCounts(pairs.kind, pairs.target_kind)] if strict else []
        aim = replace(now, alike=strict, gather=gather)
        found = exchange(target, keep, aim, effort=_EFFORT, rng=rng)
        target, now = found.ends, found.objective
    return Repeated(target, before / max(rows, 1), wanted / max(rows, 1), now.repeats / max(rows, 1))


@dataclass(frozen=True)
class Repetitions:
    """As many seen rows as ``wanted`` shall repeat a pair.

    Rows that are not seen are treated as those that are: an exchange helps if more (or fewer) of all rows repeat, and
    the number of seen ones comes no further from what is wanted. To ``gather``, exchanges that change nothing are made
    too if pairs that occur often occur more often: the sum of squares of their numbers rises, so that this ends.
    ``alike`` looks for partners of the same kind.
    """

    pairs: Pairs
    codes: IntArray
    """One number for each row's pair."""
    wanted: int = 0
    alike: bool = False
    gather: bool = False

    @classmethod
    def of(cls, pairs: Pairs, target: IntArray) -> Self:
        """Nothing is wanted yet."""
        return cls(pairs, np.asarray(pairs.owner * len(pairs.target_kind) + target, dtype=np.int64))

    @cached_property
    def _have(self) -> _Counted:
        return _Counted(self.codes)

    @cached_property
    def _shown(self) -> _Counted:
        return self._have if self.pairs.seen.all() else _Counted(self.codes[self.pairs.seen])

    @property
    def repeats(self) -> int:
        """How many seen rows repeat a pair."""
        return self._shown.repeats

    @property
    def _gap(self) -> int:
        return self.wanted - self.repeats

    @property
    def loss(self) -> float:
        """How many more or fewer rows should repeat."""
        return float(abs(self._gap))

    def propose(self, ends: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Rows and partners: towards a target that the owner has, or away from one that it has twice."""
        gap, pairs = self._gap, self.pairs
        if not gap:
            return ends[:0], ends[:0]
        twice = self._have.of(self.codes) > 1
        mine = np.flatnonzero(twice if gap < 0 else ~twice | self.gather)
        mine = rng.permutation(mine)[: 4 * abs(gap) + 64]
        if gap < 0 and self.alike:
            return mine, pairs.by_kind.draw(pairs.kind[mine], rng)
        if gap < 0:
            return mine, rng.integers(0, len(ends), len(mine))
        wanted = ends[pairs.by_owner.draw(pairs.owner[mine], rng)]
        theirs = Grouped(ends).draw(wanted, rng)
        if self.alike:
            width = len(pairs.target_kind)
            same = Grouped(pairs.kind * width + ends).draw(pairs.kind[mine] * width + wanted, rng)
            theirs = np.where(same >= 0, same, theirs)
        return mine, theirs

    def _pairs(self, some: Exchanges) -> tuple[tuple[IntArray, IntArray], tuple[IntArray, IntArray]]:
        """Pairs that both rows leave, and that they take."""
        way = some.others - some.ends
        left = self.codes[some.one], self.codes[some.two]
        return left, (left[0] + way, left[1] - way)

    def change(self, some: Exchanges) -> FloatArray:
        """By how many rows more repeat, if that is wanted, and else fewer; nothing where the gap would be passed."""
        left, taken = self._pairs(some)
        everybody = np.ones(len(some.one), dtype=bool)
        way = np.sign(self._gap)
        change = -way * self._have.change(left, taken, (everybody, everybody)).astype(np.float64)
        if self.gather and way > 0:
            rise = sum(map(self._have.of, taken)) - sum(map(self._have.of, left)) + 2
            change = np.where(change == 0, -np.maximum(rise, 0) / (4.0 * len(self.codes)), change)
        visible = way * self._seen_change(some)
        useless = self.pairs.owner[some.one] == self.pairs.owner[some.two]
        return np.where(useless | (visible < 0) | (visible > abs(self._gap)), 0.0, change)

    def _seen_change(self, some: Exchanges) -> IntArray:
        seen = self.pairs.seen
        return self._shown.change(*self._pairs(some), (seen[some.one], seen[some.two]))

    def conflicts(self, some: Exchanges) -> IntArray:
        """Exchanges that change the same pair."""
        left, taken = self._pairs(some)
        return np.stack([*left, *taken], axis=1)

    def most(self, some: Exchanges) -> int:
        """As many as close the gap."""
        visible = np.cumsum(np.abs(self._seen_change(some)))
        return int(np.searchsorted(visible, abs(self._gap), side="right"))

    def after(self, some: Exchanges) -> tuple[Self, float]:
        """Changes of different pairs add up."""
        codes = self.codes.copy()
        _, (codes[some.one], codes[some.two]) = self._pairs(some)
        return replace(self, codes=codes), float(self.change(some).sum())


class _Counted:
    """How often each code occurs."""

    def __init__(self, codes: IntArray) -> None:
        self._codes, self._counts = np.unique(codes, return_counts=True)
        self.repeats = len(codes) - len(self._codes)

    def of(self, codes: IntArray) -> IntArray:
        if not len(self._codes):
            return np.zeros(len(codes), dtype=np.int64)
        at = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        return np.where(self._codes[at] == codes, self._counts[at], 0)

    def change(
        self, left: tuple[IntArray, IntArray], taken: tuple[IntArray, IntArray], who: tuple[Mask, Mask]
    ) -> IntArray:
        """By how many rows more repeat if each of ``who`` leaves its pair for the other."""
        fewer = sum(w & (self.of(c) > 1) for w, c in zip(who, left, strict=True))
        more = sum(w & (self.of(c) > 0) for w, c in zip(who, taken, strict=True))
        return np.asarray(more, dtype=np.int64) - np.asarray(fewer, dtype=np.int64)
