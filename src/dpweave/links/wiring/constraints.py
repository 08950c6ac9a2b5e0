"""What exchanges of ends must keep: rows of one group, no row that leads to itself, no pair twice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from dpweave.arrays import IntArray
    from dpweave.links.wiring.exchange import Exchanges

Mask = np.ndarray[Any, Any]


class _Lasting:
    """A constraint that exchanges leave as it is, so that any of them keep it together."""

    def conflicts(self, some: Exchanges) -> None:  # noqa: ARG002
        """No two exchanges get in each other's way."""
        return

    def after(self, some: Exchanges) -> Self:  # noqa: ARG002
        """It is the same afterwards."""
        return self


@dataclass(frozen=True)
class SameGroup(_Lasting):
    """Rows exchange ends within their ``group`` alone."""

    group: IntArray | Mask

    def allows(self, some: Exchanges) -> Mask:
        """Both rows are of one group."""
        return np.asarray(self.group[some.one] == self.group[some.two])


@dataclass(frozen=True)
class SameCounts(_Lasting):
    """Counts over kinds of rows and kinds of ends stay: both rows are of one ``kind``, or both ends of one."""

    kind: IntArray
    end_kind: IntArray

    def allows(self, some: Exchanges) -> Mask:
        """One side is alike."""
        alike = self.kind[some.one] == self.kind[some.two]
        return np.asarray(alike | (self.end_kind[some.ends] == self.end_kind[some.others]))


@dataclass(frozen=True)
class NotItself(_Lasting):
    """No row gets itself as its end; ``itself`` is each row's place among the ends."""

    itself: IntArray

    def allows(self, some: Exchanges) -> Mask:
        """Neither row gets itself."""
        return np.asarray((self.itself[some.one] != some.others) & (self.itself[some.two] != some.ends))


@dataclass(frozen=True)
class NewPairs:
    """Every pair of a start and an end that an exchange makes is new: none that there is, or was.

    That it must not have been there before keeps ``taken`` as it was sorted once. Few exchanges are lost by it.
    """

    start: IntArray
    width: int
    taken: IntArray
    fresh: IntArray

    @classmethod
    def of(cls, start: IntArray, ends: IntArray, width: int) -> NewPairs:
        """Pairs of rows that start and end there; ends are -1 … ``width`` - 2."""
        taken = np.sort(start * width + ends)
        return cls(start, width, taken, taken[:0])

    def made(self, some: Exchanges) -> IntArray:
        """The two pairs that each exchange makes."""
        one, two = self.start[some.one] * self.width + some.others, self.start[some.two] * self.width + some.ends
        return np.stack([one, two], axis=1)

    def allows(self, some: Exchanges) -> Mask:
        """Both pairs are new, and different."""
        made = self.made(some)
        known = among(made, self.taken) | among(made, self.fresh)
        return np.asarray(~known.any(axis=1) & (made[:, 0] != made[:, 1]))

    def conflicts(self, some: Exchanges) -> IntArray:
        """No two exchanges make the same pair."""
        return self.made(some)

    def after(self, some: Exchanges) -> NewPairs:
        """Remember what was made."""
        return replace(self, fresh=np.sort(np.append(self.fresh, self.made(some)), kind="stable"))


class Grouped:
    """Rows by label, to draw one of a label in constant time."""

    def __init__(self, labels: IntArray) -> None:
        self._order = np.argsort(narrow(labels), kind="stable")
        self._labels = labels[self._order]

    def draw(self, labels: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw one row of each label asked for; -1 where there is none."""
        first = np.searchsorted(self._labels, labels)
        count = np.searchsorted(self._labels, labels, side="right") - first
        at = first + (rng.random(len(labels)) * count).astype(np.int64)
        return np.where(count > 0, self._order[np.minimum(at, len(self._order) - 1)], -1)


def narrow(codes: IntArray) -> np.ndarray[tuple[int], np.dtype[np.uint16]] | IntArray:
    """Sixteen bits where they suffice: NumPy then sorts by radix, in linear time."""
    return codes.astype(np.uint16) if len(codes) == 0 or (codes.max() < 1 << 16 and codes.min() >= 0) else codes


def among(values: IntArray, known: IntArray) -> Mask:
    """Which values are in a sorted list."""
    if not len(known):
        return np.zeros(values.shape, dtype=bool)
    return np.asarray(known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values)


def repeated(labels: IntArray) -> IntArray:
    """Positions of labels that occur earlier, too.

    >>> repeated(np.array([5, 7, 5, 5]))
    array([2, 3])
    """
    ordered = np.sort(labels)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    suspects = np.flatnonzero(among(labels, twice)) if len(twice) else np.zeros(0, dtype=np.int64)
    _, first = np.unique(labels[suspects], return_index=True)
    return np.delete(suspects, first)
