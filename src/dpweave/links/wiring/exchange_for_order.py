r"""Rows exchanged between places until rows go together with those before them, and with the gaps, as was measured.

A place belongs to an owner, comes after another of that owner or after none, and is a gap away from it. Row i is a
vector :math:`x_i` over the codes of its columns, and :math:`y_i` is what it says to the row after it, over the same
codes and that of nothing, which is what the first row of an owner is reminded of. With the row r(s) in place s, the
place p(s) before it and its gap :math:`\gamma_s`, all centred,

.. math:: P = \sum_s w\, x_{r(s)} y_{r(p(s))}^\top, \qquad
   G = \sum_s w \begin{pmatrix} x_{r(s)} \\ y_{r(p(s))} \end{pmatrix} \gamma_s^\top,

where w is the share of the owner's rows that bounds show. The loss is how far both are off, squared, and beside it how
far off is what rows of one owner have in common. Where rows i and j of places s and t change places, let
:math:`d = x_j - x_i` and :math:`e = y_j - y_i`. Then P changes by :math:`d p^\top + q e^\top`, with p what places s and
t are reminded of, one less the other (and less e where t comes after s), and q the rows after s and t, one less the
other; and G by :math:`d k^\top` and :math:`e l^\top`, with the gaps of the two, and of the places after them. So the
change of the loss needs no count. Places keep their owners and times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from dpweave.links.wiring.exchange import Effort, Exchanges, exchange
from dpweave.links.wiring.exchange_for_siblings import ENOUGH, LOOKS_PER_ROW, PAIRS, CodedVectors, SiblingMoments

if TYPE_CHECKING:
    from dpweave.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class Places:
    """Where rows can be: places in the order of owners and times."""

    owner: IntArray
    before: IntArray
    """The place before each, or one beyond the last."""
    after: IntArray
    gap: CodedVectors
    shown: FloatArray
    """Share of the rows of each place's owner that bounds show."""

    @classmethod
    def of(cls, owner: IntArray, follows: IntArray, gap: CodedVectors, shown: FloatArray) -> Self:
        """``follows`` says which places come after the one before them; ``shown`` is by owner."""
        n = len(owner)
        before = np.where(follows, np.arange(n) - 1, n)
        after = np.where(np.append(follows[1:], False), np.arange(n) + 1, n)
        return cls(owner, before, after, gap, shown[owner])


@dataclass(frozen=True)
class OrderMoments:
    """Rows in places, and how far off is how they go together with those before them, and with gaps."""

    x: CodedVectors
    y: CodedVectors
    """What rows say to the row after them; the last one is what nobody says."""
    places: Places
    row: IntArray
    """Which row is in each place; the last one is nobody."""
    group: IntArray
    """Rows of one number may exchange places."""
    siblings: SiblingMoments | None
    off: FloatArray
    off_gaps: FloatArray

    @classmethod
    def of(
        cls,
        x: CodedVectors,
        y: CodedVectors,
        places: Places,
        group: IntArray,
        siblings: SiblingMoments | None,
        missing: FloatArray,
        missing_gaps: FloatArray,
    ) -> Self:
        """Row i is in place i, and so much is ``missing``."""
        return cls(x, y, places, np.arange(len(group) + 1), group, siblings, -missing, -missing_gaps)

    @property
    def loss(self) -> float:
        """Square of how far moments are off."""
        beside = 0.0 if self.siblings is None else self.siblings.loss
        return float(np.square(self.off).sum() + np.square(self.off_gaps).sum() + beside)

    def propose(self, ends: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Draw pairs of rows of one group."""
        some = rng.permutation(len(ends))[: 2 * PAIRS] if len(ends) > 4 * PAIRS else rng.permutation(len(ends))
        some = some[np.argsort(self.group[some], kind="stable")]
        start = int(rng.integers(0, 2))
        some = some[start : len(some) - (len(some) - start) % 2]
        one, two = some[0::2], some[1::2]
        same = np.flatnonzero(self.group[one] == self.group[two])[:PAIRS]
        return one[same], two[same]

    def _said(self, place: IntArray) -> FloatArray:
        """What the row in each place says to the next."""
        return self.y.at(self.row[place])

    def _there(self, place: IntArray) -> FloatArray:
        """The row in each place; nothing where there is no place."""
        none = place == len(self.group)
        found = self.x.at(self.row[np.where(none, 0, place)])
        found[none] = 0.0
        return found

    def _gap(self, place: IntArray) -> FloatArray:
        none = place == len(self.group)
        safe = np.where(none, 0, place)
        found = self.places.gap.at(safe) * self.places.shown[safe][:, None]
        found[none] = 0.0
        return found

    def change(self, some: Exchanges) -> FloatArray:
        """By how much each exchange changes the loss, made alone."""
        one, two, s, t = some
        swap = self.places.before[s] == t  # let t be the one that comes after
        one, two, s, t = (np.where(swap, b, a) for a, b in ((one, two), (two, one), (s, t), (t, s)))
        places, d, e = self.places, self.x.at(two) - self.x.at(one), self.y.at(two) - self.y.at(one)
        w, v = places.shown[s][:, None], places.shown[t][:, None]
        p = w * self._said(places.before[s]) - v * self._said(places.before[t])
        p -= np.where(places.before[t] == s, 1.0, 0.0)[:, None] * w * e
        q = w * self._there(places.after[s]) - v * self._there(places.after[t])
        k = self._gap(s) - self._gap(t)
        m = self._gap(places.after[s]) - self._gap(places.after[t])
        width = len(self.x.centre)
        linear = _dot(d @ self.off, p) + _dot(q @ self.off, e)
        linear += _dot(d @ self.off_gaps[:width], k) + _dot(e @ self.off_gaps[width:], m)
        dd, ee = _dot(d, d), _dot(e, e)
        square = dd * (_dot(p, p) + _dot(k, k)) + ee * (_dot(q, q) + _dot(m, m)) + 2 * _dot(d, q) * _dot(p, e)
        change = 2 * linear + square
        if self.siblings is not None:
            moving = self._between(some)
            change = change + np.where(moving.ends == moving.others, 0.0, self.siblings.change(moving))
        return np.asarray(change)

    def _between(self, some: Exchanges) -> Exchanges:
        """The same exchanges as ones between owners."""
        return some.between_owners(self.places.owner)

    def conflicts(self, some: Exchanges) -> IntArray:
        """A place takes part once, and so do those beside it."""
        places = self.places
        near = np.stack([places.before[some.ends], some.ends, places.before[some.others], some.others], axis=1)
        # One beyond the last is no place that anything could share.
        alone = np.arange(near.size).reshape(near.shape) + len(self.group) + 1
        return np.where(near < len(self.group), near, alone)

    def most(self, some: Exchanges) -> int:
        """All of them."""
        return len(some.one)

    def after(self, some: Exchanges) -> tuple[Self, float]:
        """Work out anew what the places say that are touched."""
        row = self.row.copy()
        row[some.ends], row[some.others] = some.two, some.one
        places = np.concatenate([some.ends, some.others])
        touched = np.unique(np.append(places, self.places.after[places]))
        touched = touched[touched < len(self.group)]
        found = replace(self, row=row)
        off, off_gaps = self.off.copy(), self.off_gaps.copy()
        for sign, now in ((1.0, found), (-1.0, self)):
            x, y = now._there(touched), now._said(self.places.before[touched])
            off += sign * (x * self.places.shown[touched][:, None]).T @ y
            off_gaps += sign * np.concatenate([x, y], axis=1).T @ self._gap(touched)
        siblings = self.siblings
        if siblings is not None:
            moving = self._between(some)
            siblings, _ = siblings.after(moving.some(moving.ends != moving.others))
        found = replace(found, off=off, off_gaps=off_gaps, siblings=siblings)
        return found, found.loss - self.loss


def _dot(a: FloatArray, b: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("ij,ij->i", a, b))


def exchange_for_order(moments: OrderMoments, *, rng: np.random.Generator) -> IntArray:
    """Return the place of each row after exchanges that bring ``moments`` nearer to what they should be.

    They end when looking at every row lowers the loss by next to nothing.
    """
    once = -(-len(moments.group) // (2 * PAIRS))
    effort = Effort(rounds=LOOKS_PER_ROW * once, patience=3 * once, enough=ENOUGH / once)
    return exchange(np.arange(len(moments.group)), (), moments, effort=effort, rng=rng).ends
