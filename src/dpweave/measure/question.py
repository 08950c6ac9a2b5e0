r"""A question about rows that describes itself: what is counted, with how much noise, and how it is asked.

A question counts rows per cell of some ``columns`` and, in each cell, how many have each of its ``codes``. Plain counts
have one code, that of every row, and noise for all that a unit can move. A clipped sum over units
(:class:`dpweave.privacy.window.UnitSum`) has noise for its ``clip``. Which codes, scales, centres and clip are best is
worked out by :mod:`~dpweave.measure.per_unit.centred_counts`, :mod:`~dpweave.measure.per_unit.clipped_counts` and
:mod:`~dpweave.measure.per_unit.public_row_sums`. All of them make questions of this one class. What an answer says is
read by :func:`dpweave.measure.estimates.estimates`, from the fields that a release holds with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from dpweave.privacy.accounting import gaussian_sigma, split, subtract
from dpweave.privacy.window import NoisyMarginal, UnitSum

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpweave.arrays import FloatArray
    from dpweave.privacy.window import Code, Columns, Noisy, Window


class Way(Enum):
    """How the rows of a table, or the links of a relation, are counted.

    It is decided in one place, by public facts: :mod:`dpweave.budget.ways_of_counting`.
    """

    PLAIN = "plain"
    """Every set of columns by itself, with noise for all that a unit can move."""
    CENTRED = "centred"
    """Rows of one owner around what all rows show (:mod:`dpweave.measure.per_unit.centred_counts`)."""
    CLIPPED = "clipped"
    """Links within units, with room for those that a unit mostly has: ``measure/per_unit/clipped_counts.py``."""
    CODED = "coded"
    """Links to public rows by the values of these, all at once (:mod:`dpweave.measure.per_unit.public_row_sums`)."""


@dataclass(frozen=True)
class Question:
    """Rows per cell of ``columns`` and code, each code with its scale of noise and the share of rows it is counted
    around.

    One unit's numbers, over the scales, are scaled down to the length ``clip``. Nobody is scaled down in plain counts,
    whose clip is infinite; then ``most`` is all that a unit can move.
    """

    columns: Columns
    codes: tuple[Code, ...] = ((),)
    scales: tuple[float, ...] = (1.0,)
    clip: float = math.inf
    centres: tuple[float, ...] = ()
    most: float = math.inf

    @classmethod
    def of(cls, noisy: Noisy) -> Question:
        """The question that an answer belongs to, as the release keeps it."""
        if isinstance(noisy, NoisyMarginal):
            return cls(noisy.columns)
        asked = noisy.unit_sum
        return cls(asked.columns, asked.codes, asked.scales, asked.clip, asked.centres)

    @property
    def looks_at(self) -> Columns:
        """All columns that it is about, those of its codes last."""
        return tuple(dict.fromkeys((*self.columns, *(c for code in self.codes for c, _ in code))))

    @property
    def shows_rows(self) -> bool:
        """Whether it shows how many rows there are, and not only how they spread: by the code of every row."""
        return () in self.codes

    @property
    def plain(self) -> bool:
        """Whether rows are counted as they are."""
        return math.isinf(self.clip)

    @property
    def centred(self) -> bool:
        """Whether counts are those beyond some share of all rows."""
        return bool(self.centres)

    @property
    def l2(self) -> float:
        """What noise must hide of one unit."""
        return min(self.clip, self.most)

    def noise(self, rho: float) -> FloatArray:
        """Scale of the noise in the counts of each code, for ``rho``.

        >>> Question(("a",), most=3.0).noise(0.5), Question(("a",), ((),), (2.0,), 1.5).noise(0.5)
        (array([3.]), array([3.]))
        """
        return gaussian_sigma(self.l2, rho) * np.array(self.scales)

    @property
    def unit_sum(self) -> UnitSum:
        """What the window is asked for."""
        return UnitSum(self.columns, self.codes, self.scales, self.clip, self.centres)


def ask(
    window: Window,
    asked: Sequence[Question | Callable[[float], Question]],
    *,
    rho: float,
    weights: Sequence[float] | None = None,
) -> tuple[Noisy, ...]:
    """Answers to all that is ``asked`` in its order, for ``rho`` in all, shared out by ``weights``.

    What is called with a budget makes a sum over units, with the clip that suits what is spent on it.
    """
    weights = [1.0] * len(asked) if weights is None else list(weights)
    plain = {i: q.columns for i, q in enumerate(asked) if isinstance(q, Question) and q.plain}
    summed = {i: q for i, q in enumerate(asked) if i not in plain}
    own = [weights[i] for i in summed]
    out: dict[int, Noisy] = {}
    if plain:
        beside = [weights[i] for i in plain]
        share = split(rho, [sum(beside), sum(own)])[0] if summed else rho
        out |= dict(zip(plain, window.measure(list(plain.values()), rho=share, weights=beside), strict=True))
        rho = subtract(rho, share)
    if summed:
        settled = [
            q if isinstance(q, Question) else q(rho * w / sum(own)) for q, w in zip(summed.values(), own, strict=True)
        ]
        answers = window.measure_unit_sums([q.unit_sum for q in settled], rho=rho, weights=own)
        out |= dict(zip(summed, answers, strict=True))
    return tuple(out[i] for i in range(len(asked)))
