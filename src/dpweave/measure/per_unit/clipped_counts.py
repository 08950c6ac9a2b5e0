r"""Links within units, counted with room for the few that a unit mostly has and not for all that it might have.

A household may have six persons with a father each, and noise in plain counts hides six. Most have one or two. So every
clique is counted as a unit sum (:class:`dpweave.privacy.window.UnitSum`) of whole cells: one unit's counts n are scaled
down to :math:`n \min(1, C / \lVert n \rVert_2)`, and noise hides C. Numbers of links of units that have any are taken
to be geometric with mean g, all of them in one cell, which is the worst case. Then a clip takes from the links' weight
about the part

.. math:: \mathrm{lost}(C) = \frac{\sum_{m > C} (m - C) p_m}{\sum_m m p_m} = (1 - 1/g)^C,

and C is where noise and what that makes wrong are least together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen
from dpweave.measure.question import Question, ask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpweave.privacy.window import Columns, Noisy, Units, Window


@dataclass(frozen=True)
class Clipped:
    """Counts over about so many ``links`` that a window shows, none of which leaves its unit."""

    window: Window
    units: Units
    links: float

    def l2(self, columns: Columns) -> float:
        """About what noise must hide."""
        return min(chosen.MEAN_LINKS, self.window.l2(columns))

    def measure(
        self, cliques: Sequence[Columns], *, rho: float, weights: Sequence[float] | None = None
    ) -> tuple[Noisy, ...]:
        """Noisy counts for each clique, for ``rho`` in all."""
        return ask(self.window, [partial(self.question, c) for c in cliques], rho=rho, weights=weights)

    def question(self, columns: Columns, rho: float) -> Question:
        """Whole cells, the clip where noise and what it takes are least together."""
        cells = math.prod(self.window.shape[c] for c in columns)
        clips = np.geomspace(1.0, max(self.units.rows, 1.0), 40)
        wrong = chosen.DIFFERENT * self.links / cells * (1 - 1 / chosen.MEAN_LINKS) ** clips
        return Question(columns, clip=float(clips[np.argmin(clips / math.sqrt(math.pi * rho) + wrong)]))
