r"""What rows of one owner have in common: which moments to ask for, and what a noisy answer says beyond a copy's own.

Rows are vectors, centred (:class:`dpweave.privacy.window.UnitMoments`). Asked for are the moments S of siblings, a
symmetric matrix over the codes of all columns of the rows, and T of rows with their owners, all at once: one vector
for each unit, one clip, one noise :math:`\sigma` in every number. A copy whose rows were given to owners without
regard to siblings has moments of its own, from which the same clip would take something. What the answer has beyond
these is signal plus noise of a known size:

.. math:: S - S_{copy} = \sum_k \lambda_k f_k f_k^\top + \sigma W.

Eigenvalues of the noise lie between :math:`\pm 2\sigma\sqrt D` (Wigner), and beyond that by more than
:math:`3.27\,\sigma D^{-1/6}` once in a thousand times (Tracy and Widom). Those further out are kept, each shrunk to
:math:`\sqrt{\lambda^2 - 4\sigma^2 D}`, which loses the least (Gavish and Donoho 2017). The same holds for T, with
singular values. So where nothing stands out of the noise nothing is changed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen
from dpweave.privacy.unit_sums import MOST_NUMBERS, MOST_WIDTH, unit_vectors
from dpweave.privacy.window import UnitMoments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.arrays import FloatArray, IntArray

RARE = 3.27
"""The largest eigenvalue of noise is further out than this, in units of its spread, once in a thousand times: the
quantile of the law of Tracy and Widom.
"""


OWNERS_LOOKED_AT = 2000
"""Owners of a copy that are looked at to see how long vectors are: a limit on time. Some hundreds would do."""

TURNS = 3
"""How often rows are exchanged for moments: after a turn, the clip would take something else from the copy."""


@dataclass(frozen=True)
class OwnedRows:
    """Rows of a copy that have owners: codes of their columns, the owner of each, and codes of all owners' columns.

    ``rows`` and ``owners`` name different columns. ``shape`` has the number of codes of each, and ``above`` the unit of
    each owner, below 0 where there is none; without it each owner is a unit.
    """

    rows: Mapping[str, IntArray]
    owners: Mapping[str, IntArray]
    owner: IntArray
    shape: Mapping[str, int]
    above: IntArray | None = None

    @property
    def unit(self) -> IntArray:
        """The unit of each row."""
        return self.owner if self.above is None else self.above[self.owner]

    def some(self) -> IntArray:
        """Rows of some units, all of each, by unit and owner: the first units, as their order says nothing."""
        unit = self.unit
        first = np.unique(unit[unit >= 0])[:OWNERS_LOOKED_AT]
        rows = np.flatnonzero((unit >= 0) & (unit <= first[-1])) if len(first) else np.zeros(0, dtype=np.int64)
        return rows[np.lexsort((self.owner[rows], unit[rows]))]

    def shares(self) -> dict[str, tuple[float, ...]]:
        """Share of the rows that have each code, of their own or their owner's."""
        codes = {**self.rows, **{c: v[self.owner] for c, v in self.owners.items()}}
        rows = max(len(self.owner), 1)
        return {c: tuple((np.bincount(v, minlength=self.shape[c]) / rows).tolist()) for c, v in codes.items()}


def question(known: OwnedRows, owner: str, *, rho: float, rows: float, bound: int) -> UnitMoments | None:
    """The moments to ask of about so many real ``rows`` by the key ``owner``; None where there is nothing to ask.

    Columns with many codes are left out where all of them together would have more numbers than a unit may have.
    """
    own, theirs = _narrow([c for c in known.rows if known.shape[c] > 1], known), list(known.owners)
    size = sum(known.shape[c] for c in own)
    theirs = [c for c in theirs if known.shape[c] > 1]
    while theirs and not _has_room(size, sum(known.shape[c] for c in theirs)):
        theirs.remove(max(theirs, key=lambda c: known.shape[c]))
    if not own or not len(known.owner):
        return None
    shares = known.shares()
    moments = UnitMoments(
        owner,
        tuple((c, shares[c]) for c in (*own, *theirs)),
        tuple((c, d) for c in theirs for d in own),
        tuple((c, d) for i, c in enumerate(own) for d in own[i:]),
        1.0,
    )
    of_siblings, of_owners = _lengths(known, moments, bound=bound)
    if not of_siblings.any():
        return None
    scale = math.sqrt(float(np.square(of_owners).mean()) / float(np.square(of_siblings).mean())) or 1.0
    lengths = np.hypot(of_siblings, of_owners / scale)
    lengths = lengths[lengths > chosen.NEXT_TO_NOTHING]  # others add nothing, and no clip may be 0
    units = rows * len(lengths) / max(len(known.some()), 1)
    # The last bit of a clip costs as much noise as it saves of what all units have in common.
    above = math.sqrt(size / (2 * rho)) / max(chosen.IN_COMMON * units, chosen.NEXT_TO_NOTHING)
    return replace(moments, clip=float(np.quantile(lengths, 1 - min(above, 1.0))), scale=scale)


def _has_room(own: int, theirs: int) -> bool:
    """Whether rows with so many codes, and owners with so many, may be asked about. Pairs are counted as too many
    rather than too few.
    """
    return own * own // 2 + own * (theirs + 1) <= MOST_NUMBERS and own + theirs <= MOST_WIDTH


def _narrow(columns: list[str], known: OwnedRows) -> list[str]:
    """As many of the columns as leave room for their pairs, those with most codes left out first."""
    kept = sorted(columns, key=lambda c: known.shape[c])
    while kept and not _has_room(2 * sum(known.shape[c] for c in kept), 0):
        kept.pop()
    return [c for c in columns if c in kept]


def _lengths(known: OwnedRows, moments: UnitMoments, *, bound: int) -> tuple[FloatArray, FloatArray]:
    r"""Lengths of the vectors of some units that have rows in the copy, as far as the bound shows them: the part that
    is about siblings, and the part about owners.

    Rows of the copy have nothing in common yet, real ones may. If an owner's own shares differ from those of all by a
    part t of them, n rows bring :math:`n t^2 \lVert\pi\rVert^2` more (:mod:`dpweave.measure.per_unit.centred_counts`).
    """
    rows = known.some()
    rows = rows[nth_of_owner(known.owner[rows]) < bound]
    owner, unit = known.owner[rows], known.unit[rows]
    codes = {c: v[rows] for c, v in known.rows.items()} | {c: v[owner] for c, v in known.owners.items()}
    together = moments.at[2]
    squares = [
        (np.square(v[:, together:]).sum(axis=1), np.square(v[:, :together]).sum(axis=1))
        for v in unit_vectors(unit, owner, codes, moments, most_rows=bound)
    ]
    siblings, owners = (np.concatenate([np.zeros(0), *part]) for part in zip(*squares, strict=True))
    alike = sum(float(np.square(shares).sum()) for name, shares in moments.centres if name in known.rows)
    columns = sum(name in known.rows for name, _ in moments.centres)
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    count = np.diff(np.append(first, len(owner)))
    of_units = np.unique(unit[first], return_inverse=True)[1]
    tastes = np.bincount(of_units, np.where(count > 1, count, 0)) * chosen.TASTE**2 * alike
    return np.sqrt(siblings + tastes**2 / 2), np.sqrt(
        owners * (1 + tastes / max(columns - alike, chosen.NEXT_TO_NOTHING))
    )


def nth_of_owner(owner: IntArray) -> IntArray:
    """Number the rows of each owner from 0; those of one owner lie side by side.

    >>> nth_of_owner(np.array([7, 7, 2, 2, 2])).tolist()
    [0, 1, 0, 1, 2]
    """
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    return np.arange(len(owner)) - np.repeat(first, np.diff(np.append(first, len(owner))))


@dataclass(frozen=True)
class Matrices:
    """Moments as matrices over codes: of siblings, symmetric, and of owners' columns by rows'."""

    siblings: FloatArray
    owners: FloatArray


def matrices(moments: UnitMoments, values: FloatArray, own: int) -> Matrices:
    """Put numbers in their places; the first ``own`` codes are those of the rows."""
    one, two, together = moments.at
    size = sum(len(shares) for _, shares in moments.centres)
    owners, siblings = np.zeros((size, size)), np.zeros((size, size))
    owners[one[:together], two[:together]] = values[:together]
    siblings[one[together:], two[together:]] = values[together:]
    siblings[two[together:], one[together:]] = values[together:]
    return Matrices(siblings[:own, :own], owners[own:, :own])


@dataclass(frozen=True)
class Clipped:
    """What a clip does to the moments of some units: what it takes from their sum, number by number, and the sum of the
    squares of what it leaves about siblings.
    """

    lost: FloatArray
    squares: float

    @classmethod
    def of(
        cls, units: IntArray, owners: IntArray, codes: Mapping[str, IntArray], moments: UnitMoments, *, bound: int
    ) -> Clipped:
        """A row is of unit ``units[i]``, ascending, and owner ``owners[i]``, ascending within each unit, of whose rows
        the ``bound`` shows the first.
        """
        rows = np.flatnonzero(nth_of_owner(owners) < bound)
        shown = {c: v[rows] for c, v in codes.items()}
        lost, squares, together = np.zeros(len(moments.at[0])), 0.0, moments.at[2]
        for vectors in unit_vectors(units[rows], owners[rows], shown, moments, most_rows=bound):
            length = np.sqrt(np.square(vectors).sum(axis=1))
            left = np.minimum(1.0, moments.clip / np.maximum(length, chosen.NEXT_TO_NOTHING))
            lost += (1 - left) @ vectors
            squares += float(np.square(left[:, None] * vectors[:, together:]).sum())
        return cls(lost * np.where(np.arange(len(lost)) < together, moments.scale, 1.0), squares)

    def chance(self, moments: UnitMoments) -> float:
        """Standard deviation of a number about siblings, if units differ by chance alone."""
        return math.sqrt(self.squares / max(len(self.lost) - moments.at[2], 1))

    def times(self, many: float) -> Clipped:
        """The same for so many times as many units."""
        return Clipped(self.lost * many, self.squares * many)


def kept_by_the_clip(got: FloatArray, lost: FloatArray) -> float:
    """Part that the clip leaves of what rows have ``got`` in common, a half at least: of more, it takes more.

    >>> kept_by_the_clip(np.array([4.0]), np.array([1.0])), kept_by_the_clip(np.array([0.0]), np.array([1.0]))
    (0.75, 1.0)
    """
    square = float((got * got).sum())
    return 1.0 if square <= 0 else min(max(1 - float((got * lost).sum()) / square, 0.5), 1.0)


@dataclass(frozen=True)
class Found:
    """What stands out of the noise: the matrix of it, how many factors it has, and how strong the first is, in units
    of the strongest that noise alone has.
    """

    matrix: FloatArray
    factors: int
    strongest: float


def beyond_noise(matrix: FloatArray, sigma: float) -> Found:
    """Keep what stands out of noise of scale ``sigma`` in each number of any matrix.

    >>> found = beyond_noise(np.outer([3.0, 4.0], [0.0, 5.0, 0.0]), 0.01)
    >>> found.factors, found.matrix.round().tolist()
    (1, [[0.0, 15.0, 0.0], [0.0, 20.0, 0.0]])
    """
    if not matrix.size:
        return Found(matrix, 0, 0.0)
    m, n = matrix.shape
    left, value, right = np.linalg.svd(matrix, full_matrices=False)
    edge = math.sqrt(m) + math.sqrt(n)
    limit = sigma * math.sqrt(edge**2 + RARE * edge * (1 / math.sqrt(m) + 1 / math.sqrt(n)) ** (1 / 3))
    kept = value > limit
    rest = (value**2 - (m + n) * sigma**2) ** 2 - 4 * m * n * sigma**4
    shrunk = np.where(kept, np.sqrt(np.maximum(rest, 0.0)) / np.maximum(value, 1e-300), 0.0)
    return Found((left * shrunk) @ right, int(kept.sum()), float(value[0] / limit))


def symmetric_beyond_noise(matrix: FloatArray, sigma: float) -> Found:
    """Keep what stands out of noise of scale ``sigma`` in each number of a symmetric matrix.

    >>> symmetric_beyond_noise(np.diag([100.0, 0.0]), 0.1).factors
    1
    """
    size = len(matrix)
    value, vector = np.linalg.eigh(matrix)
    limit = sigma * (2 * math.sqrt(size) + RARE * size ** (-1 / 6))
    kept = np.abs(value) > limit
    shrunk = np.where(kept, np.sign(value) * np.sqrt(np.maximum(value**2 - 4 * sigma**2 * size, 0.0)), 0.0)
    return Found((vector * shrunk) @ vector.T, int(kept.sum()), float(np.abs(value).max() / limit))
