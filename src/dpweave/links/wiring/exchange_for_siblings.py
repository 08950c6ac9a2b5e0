r"""Rows exchanged between owners until what rows of one owner have in common is what was measured.

Row i is a vector :math:`x_i` over the codes of its columns, owner p one :math:`y_p`, both centred. With :math:`X_p` the
sum over its :math:`n_p` rows,

.. math:: S = \sum_p \frac{w_p}{n_p - 1} \Bigl(X_p X_p^\top - \sum_{i \in p} x_i x_i^\top\Bigr), \qquad
   T = \sum_p w_p\, y_p X_p^\top,

where :math:`w_p` is the share of the owner's rows that bounds show. The loss is how far both are off what they should
be, :math:`\lVert S - \hat S \rVert^2 + \omega \lVert T - \hat T \rVert^2`, with the weight ω
that the noise of both calls for. Where rows i of p and j of q change places, with
:math:`d = x_j - x_i` and :math:`g = \frac{w_p}{n_p - 1} (X_p - x_i) - \frac{w_q}{n_q - 1} (X_q - x_j)`, S changes by
:math:`d g^\top + g d^\top` and T by :math:`(w_p y_p - w_q y_q)\, d^\top`. So the change of the loss needs no count.
Every owner keeps its number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dpweave.links.wiring.exchange import Effort, exchange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.links.wiring.exchange import Constraint, Exchanges

PAIRS = 1 << 14
"""Exchanges that a round looks at, at most."""
CACHED = 1 << 10
"""Exchanges that are worked out at a time."""
LOOKS_PER_ROW = 60
"""How often a row is looked at, at most: a limit on time. Most exchanges end before, when rounds bring little."""
ENOUGH = 0.005
"""Part of the loss that looking at every row must take away for the next look."""


@dataclass(frozen=True)
class CodedVectors:
    """Rows as vectors, made when they are needed: 1 at the code of each column, less the ``centre``."""

    codes: IntArray
    """Where the code of each column lies in the vector, rows by columns."""
    centre: FloatArray

    @classmethod
    def of(cls, columns: Sequence[IntArray], centres: Sequence[Sequence[float]], rows: int) -> Self:
        """Rows by the codes of their ``columns``, with a share for each code."""
        first = np.cumsum([0, *map(len, centres)])[:-1]
        codes = [np.minimum(c, len(s) - 1) + at for c, s, at in zip(columns, centres, first, strict=True)]
        stacked = np.stack(codes, axis=1) if codes else np.zeros((rows, 0))
        return cls(stacked.astype(np.int32), np.concatenate([np.zeros(0), *centres]).astype(np.float32))

    def at(self, rows: IntArray) -> FloatArray:
        """Vectors of some rows."""
        out = np.tile(-self.centre, (len(rows), 1))
        out[np.arange(len(rows))[:, None], self.codes[rows]] += np.float32(1.0)  # no row has a place twice
        return out

    def between(self, one: IntArray, two: IntArray, first: FloatArray, second: FloatArray) -> FloatArray:
        """Vectors of some ``second`` times those with codes at the places ``two``, less ``first`` times those at
        ``one`` (:meth:`places`).
        """
        first, second = _single(first), _single(second)
        out = np.multiply.outer(first - second, self.centre)
        flat = out.reshape(-1)
        flat[one] -= first[:, None]
        flat[two] += second[:, None]
        return out

    def places(self, rows: IntArray) -> IntArray:
        """Where the codes of some rows lie in the matrix of their vectors, which is read from front to back."""
        return np.asarray(self.codes[rows] + len(self.centre) * np.arange(len(rows))[:, None])

    def blocks(self) -> Iterator[IntArray]:
        """All rows, some at a time."""
        rows = np.arange(len(self.codes))
        yield from (rows[i : i + PAIRS] for i in range(0, len(rows), PAIRS))


@dataclass(frozen=True)
class SiblingMoments:
    """Moments of rows ``x`` and owners ``y``, and how far they are ``off`` what they should be."""

    x: CodedVectors
    y: CodedVectors
    shown: FloatArray
    """Share of each owner's rows that bounds show."""
    per_sibling: FloatArray
    """Weight of each owner's pairs of rows."""
    sums: FloatArray
    off: FloatArray
    off_owners: FloatArray
    weight: float = 1.0
    """Of what is off with owners."""
    moved: tuple[IntArray, FloatArray] | None = None
    """Owners whose rows have moved since ``sums`` were written, and what is theirs now."""
    ours: bool = False
    """Whether ``sums`` may be written over: nobody else holds them."""

    @cached_property
    def current(self) -> FloatArray:
        """Sums over the rows of each owner, as they are now.

        Most owners keep theirs, so they are written over where rows moved. What came before is not asked again, and
        batches that are not made never get here.
        """
        if self.moved is None:
            return self.sums
        found, (owners, now) = self.sums if self.ours else self.sums.copy(), self.moved
        found[owners] = now
        return found

    @classmethod
    def of(cls, x: CodedVectors, y: CodedVectors, owner: IntArray, shown: FloatArray) -> Self:
        """Moments of rows ``x``, each of an ``owner`` among ``y``; ``shown`` is the share of an owner's rows that
        bounds show.
        """
        rows = np.bincount(owner, minlength=len(shown))
        per_sibling = np.where(rows > 1, shown / np.maximum(rows - 1, 1), 0.0)
        sums: FloatArray = np.zeros((len(shown), len(x.centre)), dtype=np.float32)
        for column in x.codes.T:
            place = np.multiply(owner, len(x.centre)) + column
            sums += np.bincount(place, minlength=sums.size).reshape(sums.shape)
        sums -= np.multiply.outer(rows, x.centre).astype(np.float32)
        siblings, owners = np.zeros((len(x.centre),) * 2), np.zeros((len(y.centre), len(x.centre)))
        for some in x.blocks():
            mine = x.at(some)
            siblings -= mine.T @ (mine * per_sibling[owner[some]][:, None])
        for some in y.blocks():
            siblings += sums[some].T @ (sums[some] * per_sibling[some][:, None])
            owners += (y.at(some) * shown[some][:, None]).T @ sums[some]
        return cls(x, y, shown, per_sibling, sums, siblings, owners)

    def aiming_at(self, siblings: FloatArray, owners: FloatArray, *, weight: float) -> Self:
        """The same rows, which should have so much more in common than they have."""
        return replace(self, off=-siblings, off_owners=-owners, weight=weight)

    @property
    def loss(self) -> float:
        """Square of how far moments are off."""
        return float(np.square(self.off).sum() + self.weight * np.square(self.off_owners).sum())

    def propose(self, ends: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Draw pairs of rows."""
        some, pairs = rng.permutation(len(ends)), min(PAIRS, len(ends) // 2)
        return some[:pairs], some[pairs : 2 * pairs]

    def change(self, some: Exchanges) -> FloatArray:
        """By how much each exchange changes the loss, made alone; some at a time, which stay in the processor's cache.

        Only a few places of d are not 0, those of codes that differ: 1 in place of the second row's, -1 of the first's.
        """
        off, off_owners, weights = _single(self.off), _single(self.off_owners), _single(self.per_sibling)
        change = np.empty(len(some.one))
        room: FloatArray = np.empty((CACHED, len(self.x.centre)), dtype=np.float32)
        for start in range(0, len(change), CACHED):
            block = some.some(slice(start, start + CACHED))
            mine, theirs = self.x.places(block.one), self.x.places(block.two)
            p, q = block.ends, block.others
            g = self.x.between(mine, theirs, weights[p], weights[q])
            g += self._weighted(p, weights, room)
            g -= self._weighted(q, weights, room)
            h = self.y.between(self.y.places(q), self.y.places(p), self.shown[q], self.shown[p])
            square = 2.0 * (mine != theirs).sum(axis=1)
            found = 4 * _along(g @ off, mine, theirs) + 2 * square * _dot(g, g) + 2 * _along(g, mine, theirs) ** 2
            found += self.weight * (2 * _along(h @ off_owners, mine, theirs) + square * _dot(h, h))
            change[start : start + CACHED] = found
        return change

    def _weighted(self, owners: IntArray, weights: FloatArray, room: FloatArray) -> FloatArray:
        """Sums of some owners' rows by their weights, in the ``room`` there is."""
        out = room[: len(owners)]
        np.take(self.current, owners, axis=0, out=out, mode="clip")  # which does without a copy; nothing is clipped
        out *= weights[owners][:, None]
        return out

    def conflicts(self, some: Exchanges) -> None:  # noqa: ARG002
        """None: what many exchanges do together is worked out before they are made."""
        return

    def most(self, some: Exchanges) -> int:
        """All of them."""
        return len(some.one)

    def after(self, some: Exchanges) -> tuple[Self, float]:
        """Work out anew what owners have whose rows moved."""
        touched, place = np.unique(np.append(some.ends, some.others), return_inverse=True)
        here, there = np.split(place[:, None] * len(self.x.centre), 2)
        mine, theirs = self.x.codes[some.one], self.x.codes[some.two]
        before = self.current[touched]
        now = before.copy()
        for at, step in ((here + theirs, 1), (here + mine, -1), (there + mine, 1), (there + theirs, -1)):
            np.add.at(now.reshape(-1), at.ravel(), np.float32(step))
        one, two = self.x.at(some.one), self.x.at(some.two)
        p, q = some.ends, some.others
        # A row's own square counts with the weight of its owner.
        off = self.off + _squares(before, now, self.per_sibling[touched])
        off += _squares(one, two, self.per_sibling[q] - self.per_sibling[p])
        h = self.y.between(self.y.places(q), self.y.places(p), self.shown[q], self.shown[p])
        owners = self.off_owners + h.T @ (two - one)
        ours, moved = self.moved is not None, (touched, now)
        found = replace(self, sums=self.current, off=off, off_owners=owners, moved=moved, ours=ours)
        return found, found.loss - self.loss


@dataclass(frozen=True)
class Levels:
    """Rows that have something in common with those of their owner, and with those of its owner.

    Each level has its moments, the owner there of each owner, and a weight.
    """

    each: tuple[tuple[SiblingMoments, IntArray, float], ...]

    @property
    def loss(self) -> float:
        """Sum over levels."""
        return sum(weight * moments.loss for moments, _, weight in self.each)

    def propose(self, ends: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Draw pairs of rows."""
        return self.each[0][0].propose(ends, rng)

    def change(self, some: Exchanges) -> FloatArray:
        """Sum over levels on which rows get another owner."""
        change = np.zeros(len(some.one))
        for moments, above, weight in self.each:
            moving = some.between_owners(above)
            moves = np.flatnonzero(moving.ends != moving.others)
            change[moves] += weight * moments.change(moving.some(moves))
        return change

    def conflicts(self, some: Exchanges) -> None:
        """None, as for one level."""
        return self.each[0][0].conflicts(some)

    def most(self, some: Exchanges) -> int:
        """All of them."""
        return len(some.one)

    def after(self, some: Exchanges) -> tuple[Self, float]:
        """Level by level."""
        found = []
        for moments, above, weight in self.each:
            moving = some.between_owners(above)
            changed, _ = moments.after(moving.some(moving.ends != moving.others))
            found.append((changed, above, weight))
        after = replace(self, each=tuple(found))
        return after, after.loss - self.loss


def _single(values: FloatArray) -> FloatArray:
    """Numbers of single precision."""
    found: Any = values.astype(np.float32)
    return found  # type: ignore[no-any-return]


def _squares(before: FloatArray, after: FloatArray, weight: FloatArray) -> FloatArray:
    """By how much the sum of ``weight`` times each row times itself changes."""
    half = (after - before).T @ ((after + before) * _single(weight)[:, None])
    return np.asarray((half + half.T) / 2, dtype=np.float64)


def _along(vectors: FloatArray, one: IntArray, two: IntArray) -> FloatArray:
    """Products of vectors with differences of rows, given by the places of their codes: ``two`` less ``one``."""
    flat = vectors.reshape(-1)
    return np.asarray((flat[two] - flat[one]).sum(axis=1))


def _dot(a: FloatArray, b: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("ij,ij->i", a, b))


def exchange_for_siblings(
    owner: IntArray, keep: Sequence[Constraint], moments: SiblingMoments | Levels, *, rng: np.random.Generator
) -> IntArray:
    """Return owners of the rows after exchanges that bring ``moments`` nearer to what they should be.

    They end when looking at every row lowers the loss by next to nothing.
    """
    once = -(-len(owner) // (2 * PAIRS))  # rounds in which every row is looked at
    effort = Effort(rounds=LOOKS_PER_ROW * once, patience=3 * once, enough=ENOUGH / once)
    return exchange(owner, keep, moments, effort=effort, rng=rng).ends
