"""What a client of the wall may hold: a window on one view, and the noisy counts that came through it.

Table models and link learners import this module and never the Curator, its counts or its sources
(the import contract holds them to it). A bug in a client costs accuracy, not privacy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Columns = tuple[str, ...]
"""A clique: names of columns of one window, in the order of a count array's axes. ``()`` is the number of rows."""


@dataclass(frozen=True)
class NoisyMarginal:
    """Counts over ``columns`` with integer noise of scale ``sigma`` in every cell; safe to publish."""

    columns: Columns
    counts: IntArray
    sigma: float

    def __post_init__(self) -> None:
        if self.counts.ndim != len(self.columns):
            raise ValueError(f"{self.counts.ndim} axes for {len(self.columns)} columns")


@dataclass(frozen=True)
class Candidate:
    r"""One option of a private choice: how badly ``prediction`` misses the true counts over ``columns``.

    Its score is :math:`w\,\lVert \text{counts} - \text{prediction} \rVert_1 - p` with weight ``w`` and penalty ``p``.
    One unit moves it by at most ``w`` times the L1 sensitivity of the marginal (PRIVACY §4). The prediction is rounded
    to integers and weight and penalty to multiples of 1/1024, so that the score is computed without rounding error.
    """

    columns: Columns
    prediction: FloatArray
    weight: float = 1.0
    penalty: float = 0.0


class Window(Protocol):
    """The two verbs, on one view: a base table with the columns of the rows its foreign keys lead to."""

    @property
    def name(self) -> str:
        """What the ledger calls this view."""
        ...

    @property
    def shape(self) -> Mapping[str, int]:
        """Number of codes of each column, in a fixed order; public."""
        ...

    def l1(self, columns: Columns) -> float:
        """L1 sensitivity of the marginal over ``columns``, the largest over protected tables; public."""
        ...

    def l2(self, columns: Columns) -> float:
        """L2 sensitivity of the marginal over ``columns``, the largest over protected tables; public."""
        ...

    def measure(
        self, cliques: Sequence[Columns], *, rho: float, weights: Sequence[float] | None = None
    ) -> tuple[NoisyMarginal, ...]:
        r"""Noisy counts for each clique, for a zCDP cost of ``rho`` in all, charged before rows are read.

        Clique i gets the share :math:`\rho_i = \rho w_i / \sum_j w_j` and noise of scale
        :math:`\sigma_i = \Delta_{2,i} / \sqrt{2 \rho_i}`.
        """
        ...

    def select(self, candidates: Sequence[Candidate], *, rho: float, count: int = 1) -> tuple[int, ...]:
        """Positions of ``count`` distinct candidates with large scores, for a zCDP cost of ``rho`` in all."""
        ...
