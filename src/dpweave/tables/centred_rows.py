"""Tables of owned rows, counted around what a first look shows (:mod:`dpweave.measure.per_unit.centred_counts`)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen
from dpweave.links.relaxed.projections import project_capped_simplex
from dpweave.measure.estimates import estimates, left_of
from dpweave.measure.per_unit.centred_counts import MOST_CELLS, Centre, Centred
from dpweave.measure.per_unit.public_row_sums import outer
from dpweave.measure.question import Question, ask
from dpweave.privacy.accounting import split, subtract

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.arrays import FloatArray
    from dpweave.privacy.window import (
        Among,
        Candidate,
        Columns,
        Noisy,
        NoisyMarginal,
        NoisyUnitSum,
        Units,
        UnitSum,
        Window,
    )


@dataclass(frozen=True)
class Look:
    """What a first look shows of a column: shares of its values, and the squared error of all of them together."""

    share: FloatArray
    doubt: float

    @classmethod
    def of(cls, noisy: NoisyMarginal) -> Look:
        """The distribution nearest to noisy counts; none is further from another than
        the root of two, whatever the noise.
        """
        rows = max(float(noisy.counts.sum()), noisy.sigma * math.sqrt(noisy.counts.size))
        share = project_capped_simplex(noisy.counts / rows, total=1.0)
        return cls(share, min(noisy.counts.size * (noisy.sigma / rows) ** 2, 2.0))


@dataclass(frozen=True)
class Looks:
    """Centres of a table: columns are taken to be independent of each other."""

    of: Mapping[str, Look]

    def __call__(self, columns: Columns) -> Centre | None:
        """Shares of all cells over ``columns``."""
        if not columns or any(c not in self.of for c in columns):
            return None
        looks = [self.of[c] for c in columns]
        alike = [float((look.share**2).sum()) for look in looks]
        doubt = sum(look.doubt * math.prod(alike[:i] + alike[i + 1 :]) for i, look in enumerate(looks))
        return Centre((), columns, math.prod(alike), lambda: outer([look.share for look in looks]), doubt)


@dataclass(frozen=True)
class CentredWindow:
    """A window whose counts are centred where that takes less noise; choices are made as before."""

    window: Window
    counts: Centred

    @property
    def name(self) -> str:
        """What the ledger calls the view."""
        return self.window.name

    @property
    def shape(self) -> Mapping[str, int]:
        """Number of codes of each column."""
        return self.window.shape

    @property
    def units(self) -> Units | None:
        """What is known of units' rows, with what a first count showed."""
        return self.counts.units

    def l1(self, columns: Columns) -> float:
        """L1 sensitivity of plain counts, by which choices are scored."""
        return self.window.l1(columns)

    def l2(self, columns: Columns) -> float:
        """Length that noise must hide."""
        return self.counts.l2(columns)

    def measure(
        self, cliques: Sequence[Columns], *, rho: float, weights: Sequence[float] | None = None
    ) -> tuple[NoisyMarginal, ...]:
        """Noisy counts for each clique, for ``rho`` in all."""
        answers = self.counts.measure(cliques, rho=rho, weights=weights)
        return tuple(_whole(noisy, self.shape, self.counts.rows) for noisy in answers)

    def measure_unit_sums(
        self, unit_sums: Sequence[UnitSum], *, rho: float, weights: Sequence[float] | None = None
    ) -> tuple[NoisyUnitSum, ...]:
        """As the window behind it."""
        return self.window.measure_unit_sums(unit_sums, rho=rho, weights=weights)

    def select(
        self, candidates: Sequence[Candidate], *, rho: float, count: int = 1, among: Among | None = None
    ) -> tuple[int, ...]:
        """As the window behind it."""
        return self.window.select(candidates, rho=rho, count=count, among=among)


def composition(window: Window, columns: Sequence[str], *, rho: float) -> tuple[NoisyMarginal, ...]:
    r"""How rows spread over the values of each column, for ``rho`` in all; how many
    there are is shown only where counts are plain.

    Units are scaled down to the length that many rows would have if they were spread evenly
    over n values, :math:`\sqrt{m^2/n + m}`. Where rows lie close together, vectors are longer
    and all units are scaled down alike: nothing is lost against a clip that would spare them.
    """
    units = window.units
    asked = [] if units is None else [_clipped(c, window.shape[c], units) for c in columns if units.hold((c,))]
    short = [q for q in asked if len(q.codes) <= MOST_CELLS and q.clip < window.l2(q.looks_at)]
    if len(short) < len(columns):
        return window.measure([(c,) for c in columns], rho=rho)
    return tuple(_whole(noisy, window.shape) for noisy in ask(window, short, rho=rho))


def _clipped(column: str, values: int, units: Units) -> Question:
    codes = tuple(((column, v),) for v in range(values))
    return Question((), codes, (1.0,) * values, math.sqrt(units.many**2 / values + units.many))


def _whole(noisy: Noisy, shape: Mapping[str, int], rows: float = 0.0) -> NoisyMarginal:
    """Counts of whole rows as a table model takes them: one answer, one table."""
    (found,) = estimates(noisy, shape, lambda _: np.array(rows))
    return found.marginal


def _longer(noisy: Noisy, units: Units, *, rows: float) -> float:
    """By how much clips should be longer, from a first count with the code of all rows.

    If a part f of rows is left, vectors are C/f long in the mean. Of this a large
    unit's rows are one part, and what they have beyond all others the rest.
    """
    question = Question.of(noisy)
    if question.plain:
        return 1.0
    own = units.many / question.scales[0]
    left = left_of(noisy, np.array(max(rows, 1.0)))
    found, expected = (math.sqrt(max((question.clip / f) ** 2 - own**2, 1e-300)) for f in (left, 1.0))
    return float(max(found / expected, 1.0) ** chosen.UNLIKE)


def centred(window: Window, *, rho: float, rows: float) -> tuple[Window, float]:
    """Take a first look at the columns that unit sums may hold and centre a table's
    window around it; returns what is left of ``rho``.

    Units whose rows are all alike (orders with the customer's own country) have vectors that are longer than expected,
    and the rarer their value the longer. Scaled down, the commonest would come out too common. So a first count shows
    how much is left, and clips are longer by that. The window itself, and all of ``rho``, where units have a single row
    or no column varies that a unit sum may hold.
    """
    units = window.units
    if units is None or units.rows < 2:
        return window, rho
    columns = [c for c, n in window.shape.items() if 1 < n <= MOST_CELLS and units.hold((c,))]
    if not columns:
        return window, rho
    look, pilot, _ = split(rho, [chosen.COUNTING, chosen.FIRST_COUNT, 1 - chosen.COUNTING - chosen.FIRST_COUNT])
    found = composition(window, columns, rho=look)
    looks = Looks({c: Look.of(noisy) for c, noisy in zip(columns, found, strict=True)})
    tried = Centred(window, units, looks, rows, kept=1.0, balanced=False).measure([(c,) for c in columns], rho=pilot)
    longer = {c: _longer(noisy, units, rows=rows) for c, noisy in zip(columns, tried, strict=True)}
    counts = Centred(window, replace(units, longer=longer), looks, rows)
    return CentredWindow(window, counts), subtract(subtract(rho, look), pilot)
