r"""Rows of one owner counted around what all rows show: noise for what a unit's rows are together.

A customer with d orders moves counts of orders by d, and noise hides as much for every set of columns that is asked
for. But most of what d orders say is what all orders say: a third of anybody's are paid by card. Let :math:`\mu` be
shares of all rows, known from elsewhere. Counted is what a unit's rows have *beyond* :math:`\mu`, as a unit sum
(:class:`dpweave.privacy.window.UnitSum`; docs/proofs, Theorem 6) with one code for each cell c of the owned rows'
columns:

.. math:: v_u(c) = n_u(c) - \mu(c)\, m_u, \qquad
   \mathbb{E} \lVert v_u \rVert^2 = m_u^2 (t^2 q + \delta^2) + m_u (1 - q), \qquad
   q = \textstyle\sum_c \mu(c)^2,

for a unit with :math:`m_u` rows, where t is by which part of it a unit's own share of a cell typically differs from
that of all, and :math:`\delta` how far :math:`\mu` may be off. Rows drawn like all others have length :math:`\sqrt{m}`,
and with tastes of t = 0.4 it is a fraction of m still. The clip is the length of a large unit's vector, with some room.
Adding :math:`\mu` times the rows gives the counts themselves, which is right however far :math:`\mu` is off
(:func:`dpweave.measure.estimates.restored`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpweave import chosen
from dpweave.measure.per_unit.public_row_sums import clip_at
from dpweave.measure.question import Question, ask
from dpweave.schema.domain import MAX_CELLS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpweave.arrays import FloatArray
    from dpweave.privacy.window import Columns, Noisy, Units, Window


MOST_CELLS = 2_000
"""Cells of owned rows that are counted around a centre at most: every unit has a number for each of them."""


@dataclass(frozen=True)
class Centre:
    """What is known of all rows over their columns ``over``, for counts with these and
    the columns ``beside`` of their owners.

    ``alike`` is about the sum of the squares of their shares, and ``doubt`` the squared error of all shares together.
    """

    beside: Columns
    over: Columns
    alike: float
    share: Callable[[], FloatArray]
    doubt: float = 0.0


class Centres(Protocol):
    """What is known before rows are counted."""

    def __call__(self, columns: Columns) -> Centre | None:
        """Return the centre of counts over ``columns``; None where nothing is known, or they may not be centred."""
        ...


@dataclass(frozen=True)
class Centred:
    """Counts over the rows of a window, about ``rows`` of them, centred where that takes less noise.

    ``kept`` is the length of the code of all rows, which shows how far units were scaled down, in units
    of all others together. Clips are ``balanced`` unless it is to be found out how long vectors are.
    """

    window: Window
    units: Units
    centres: Centres
    rows: float
    kept: float = chosen.KEPT
    balanced: bool = True

    def l2(self, columns: Columns) -> float:
        """What noise must hide: the length of a unit's vector, or all that a unit can move where counts are plain."""
        found = self._short(columns)
        return self.window.l2(columns) if found is None else found[1]

    def measure(
        self, cliques: Sequence[Columns], *, rho: float, weights: Sequence[float] | None = None
    ) -> tuple[Noisy, ...]:
        """Noisy counts for each clique, plain or centred, for ``rho`` in all."""
        found = {clique: self._short(clique) for clique in cliques}
        asked = [Question(c) if (short := found[c]) is None else partial(self.question, *short) for c in cliques]
        return ask(self.window, asked, rho=rho, weights=weights)

    def _short(self, columns: Columns) -> tuple[Centre, float] | None:
        """The centre of ``columns`` and the clip, where centred counts take less noise than plain ones."""
        centre = self.centres(columns) if self.units.hold(columns) else None
        if centre is None:
            return None
        cells, beside = self._cells(centre.over), self._cells(centre.beside)
        if not 1 < cells <= MOST_CELLS or (cells + 1) * beside > MAX_CELLS:
            return None
        longer = max(self.units.longer.get(c, 1.0) for c in centre.over)
        clip = longer * clip_for(self.units.many, centre.alike, centre.doubt, kept=self.kept)
        return (centre, clip) if clip < self.window.l2(columns) else None

    def _cells(self, columns: Columns) -> int:
        return math.prod(self.window.shape[c] for c in columns)

    def question(self, centre: Centre, clip: float, rho: float) -> Question:
        """All cells around their centre, the clip at a balance of noise and what scaling makes wrong.
        Where noise is hardly felt it is widened: with ample budgets nobody is scaled down.
        """
        values = product(*(range(self.window.shape[c]) for c in centre.over))
        codes = ((), *(tuple(zip(centre.over, at, strict=True)) for at in values))
        share = np.clip(centre.share().ravel(), 0.0, 1.0)
        apart = self.kept * _length(self.units.many, centre.alike, centre.doubt) / self.units.many
        rows, cells = max(self.rows, 1.0), share.size * self._cells(centre.beside)
        chance = math.sqrt(rows * float((share * (1 - share)).sum()) / cells)
        longest = self.units.rows * math.hypot(math.sqrt(2.0), apart)
        if self.balanced:
            noise, wrong = clip / math.sqrt(math.pi * rho), chosen.DIFFERENT * rows / cells
            clip *= clip_at(self.units, lambda m: _length(m, centre.alike, centre.doubt), noise=noise, wrong=wrong)
        clip = min(
            max(clip, math.sqrt(2 * rho) * max(chosen.UNFELT * chance, chosen.UNNOTICED * rows / cells)), longest
        )
        return Question(centre.beside, codes, (1 / apart, *(1.0,) * share.size), clip, (0.0, *share.tolist()))


def clip_for(rows: float, alike: float, doubt: float = 0.0, *, kept: float = chosen.KEPT) -> float:
    """Clip of a centred unit sum, for a unit with so many ``rows``; see :class:`Centre`.

    >>> round(clip_for(100.0, 0.25), 1)
    32.1
    """
    return math.exp(chosen.LENGTHS / 2) * math.hypot(1.0, kept) * _length(rows, alike, doubt)


def _length(rows: float, alike: float, doubt: float) -> float:
    return math.sqrt(rows**2 * (chosen.TASTE**2 * alike + doubt) + rows * (1 - alike))
