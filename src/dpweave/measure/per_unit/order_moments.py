r"""In what order rows of one owner come: which questions to ask, and what their noisy answers say.

Two questions. How far rows are from the one before, as counts in buckets that grow, from public limits: the **gaps**.
And, as moments within units (:class:`dpweave.privacy.window.UnitMoments`), how columns of a row go together with those
of the row before it and with the gap between both, all at once: one vector for each unit, one clip, one noise. What the
row before says is a column of the row (:func:`dpweave.schema.domain.earlier`), null in the first row. So the moments
with the gap say too when owners begin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen
from dpweave.measure.per_unit.sibling_moments import OwnedRows, nth_of_owner
from dpweave.privacy.unit_sums import MOST_NUMBERS, MOST_WIDTH, unit_vectors
from dpweave.privacy.window import UnitMoments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class OrderedRows:
    """Rows of a copy, those of one owner in their order: codes of their own columns, of columns of the rows before
    them, of others (their time, their owner's columns), and of gaps, each by name.
    """

    owner: IntArray
    own: Mapping[str, IntArray]
    before: Mapping[str, IntArray]
    other: Mapping[str, IntArray]
    gap: Mapping[str, IntArray]
    shape: Mapping[str, int]

    @property
    def codes(self) -> dict[str, IntArray]:
        """All of them."""
        return {**self.own, **self.before, **self.other, **self.gap}

    def shares(self) -> dict[str, tuple[float, ...]]:
        """Share of the rows that have each code."""
        rows = max(len(self.owner), 1)
        return {c: tuple((np.bincount(v, minlength=self.shape[c]) / rows).tolist()) for c, v in self.codes.items()}


def question(
    known: OrderedRows,
    owner: str,
    *,
    gaps: Mapping[str, tuple[float, ...]],
    rho: float,
    rows: float,
    bound: int,
    above: IntArray | None = None,
) -> UnitMoments | None:
    """The moments to ask of about so many real ``rows``, by the table of their ``owner``; None where there are none.

    ``gaps`` are shares of gaps, by the name of their column, where they were counted, and ``above`` is the unit of each
    owner, below 0 where there is none; without it each owner is a unit. Columns with many codes are left
    out where there is no room for all.
    """
    shares = known.shares() | dict(gaps)
    kept = sorted((c for c in (*known.own, *known.other) if known.shape[c] > 1), key=lambda c: known.shape[c])

    def pairs() -> tuple[tuple[str, str], ...]:
        own = [(c, b) for c in known.own if c in kept for b in known.before if _said(b) in kept]
        with_gap = [*(c for c in kept if c in known.own or c in known.other), *dict.fromkeys(b for _, b in own)]
        return (*own, *((c, g) for g in known.gap for c in with_gap))

    def room() -> bool:
        size = sum(known.shape[a] * known.shape[b] for a, b in pairs())
        return size <= MOST_NUMBERS and sum(known.shape[c] for c in {c for p in pairs() for c in p}) <= MOST_WIDTH

    while kept and not room():
        kept.pop()
    asked = pairs()
    if not asked or not len(known.owner):
        return None
    named = dict.fromkeys(c for c in known.codes if any(c in pair for pair in asked))
    moments = UnitMoments(owner, tuple((c, shares[c]) for c in named), asked, (), 1.0)
    some = OwnedRows(known.codes, {}, known.owner, known.shape, above).some()
    some = some[nth_of_owner(known.owner[some]) < bound]
    whose = known.owner[some]
    unit = whose if above is None else above[whose]
    codes = {c: v[some] for c, v in known.codes.items()}
    found = [np.square(v).sum(axis=1) for v in unit_vectors(unit, whose, codes, moments, most_rows=bound)]
    lengths = np.sqrt(np.concatenate([np.zeros(0), *found]))
    lengths = lengths[lengths > chosen.NEXT_TO_NOTHING]
    if not len(lengths):
        return None
    units = rows * len(lengths) / max(len(some), 1)
    longer = math.sqrt(sum(map(len, dict(moments.centres).values())) / (2 * rho))
    longer /= max(chosen.IN_COMMON * units, chosen.NEXT_TO_NOTHING)
    return replace(moments, clip=float(np.quantile(lengths, 1 - min(longer, 1.0))))


def _said(before: str) -> str:
    """Column of a row of which the row after it is reminded."""
    return before.partition(".")[2]


def matrix(moments: UnitMoments, values: FloatArray, rows: Sequence[str], columns: Sequence[str]) -> FloatArray:
    """Numbers of moments as a matrix: codes of some columns by those of others."""
    first = np.cumsum([0, *(len(shares) for _, shares in moments.centres)])
    place = {n: np.arange(a, b) for (n, _), a, b in zip(moments.centres, first[:-1], first[1:], strict=True)}
    one, two, _ = moments.at
    whole = np.zeros((first[-1], first[-1]))
    whole[one, two] = values
    at = [np.concatenate([np.zeros(0, dtype=np.int64), *(place[c] for c in names)]) for names in (rows, columns)]
    return np.asarray(whole[np.ix_(*at)])
