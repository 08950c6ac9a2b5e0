"""AIM: marginals chosen round by round where the model is worst (McKenna, Mullins, Sheldon, Miklau 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen
from dpweave.errors import UsageError
from dpweave.privacy.window import LARGEST_PENALTY, Candidate, Columns
from dpweave.tables.base import Registration, Structure, ask_and_learn
from dpweave.tables.graphical.graphical_table import GraphicalTable, restore
from dpweave.tables.session import Asking, graded, learned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dpweave.arrays import FloatArray
    from dpweave.privacy.window import NoisyMarginal, Window

MAX_PREDICTED = 1 << 23
"""Cells of all candidates' predictions together: 64 megabytes."""
MAX_TRIPLES = 1500
"""Triples of columns are candidates up to this many; beyond, pairs alone."""
MEAN_ABSOLUTE = math.sqrt(2 / math.pi)
"""Mean absolute value of a standard normal variable."""


@dataclass(frozen=True)
class AIM:
    r"""Select the worst-fitting marginal, measure it, fit; spend more per round when a round taught nothing.

    A candidate r scores :math:`w_r(\lVert M_r(D) - M_r(\hat p)\rVert_1 - \sqrt{2/\pi}\,\sigma n_r)`: what measuring it
    would gain over the noise it would bring. :math:`w_r` adds up the workload's weights, each times the number of
    columns it shares with r. Single columns are candidates only where nothing larger has them. Candidates that would
    make the model too large wait; the allowance grows with the budget spent. ``rounds`` per column sets the first noise
    level, ``selection`` is the share of rho for choosing.

    Of what is left after the columns, d in number, one part in d - 1, and at most half, is kept back:
    it measures what was chosen once more, all at once and by the shares that make the noise least
    (:meth:`Session.shares`). The fewer columns, the less there is to choose and the more is gained.

    A model has at most ``model_cells`` cells: by default an eighth of what the
    structure allows, since a round costs as much.
    """

    rounds: float = 16.0
    """For each column, as in the paper on AIM."""
    selection: float = chosen.SELECTION
    model_cells: int | None = None
    name: str = field(default="aim", init=False)

    def __post_init__(self) -> None:
        if not self.rounds >= 1:
            raise UsageError(f"rounds per column must be at least 1, got {self.rounds}")
        if not 0 < self.selection < 1:
            raise UsageError(f"the share for selection must lie between 0 and 1, got {self.selection}")

    def fit(
        self,
        window: Window,
        *,
        rho: float,
        rows: float | None,
        structure: Structure,
        progress: Callable[[str, float], None],
    ) -> GraphicalTable:
        """Ask, and learn from the answers."""
        return ask_and_learn(self, window, rho=rho, rows=rows, structure=structure, progress=progress)

    def ask(
        self,
        window: Window,
        *,
        rho: float,
        rows: float | None,
        structure: Structure,
        progress: Callable[[str, float], None],
    ) -> AIM:
        """Measure columns, then marginals round by round, then those chosen once more."""
        limit = structure.max_model_cells // 8 if self.model_cells is None else self.model_cells
        session = Asking(window, rho=rho, rows=rows, structure=structure, limit=limit)
        weights = closure(session)
        progress("measuring columns", 0.0)
        if all(len(clique) < 2 for clique in weights):
            session.measure_singles(session.purse.rest())
            return self
        each = rho / (self.rounds * len(session.columns))
        session.measure_singles(session.purse.take((1 - self.selection) * each * len(session.columns)))
        session.merge_rare()
        session.solve(iterations=100, tolerance=1e-3)
        kept = session.purse.left / max(2, len(session.columns) - 1)
        while (left := session.purse.left - kept) > 0:
            progress("choosing and measuring", 0.9 * (1 - session.purse.left / rho))
            last = left < 2 * each
            moved = self._round(session, weights, left if last else each)
            if last:
                break
            each *= 1 if moved else 4
        progress("measuring once more", 0.9)
        self._once_more(session, weights)
        return self

    def learn(
        self,
        answers: Sequence[NoisyMarginal],
        shape: Mapping[str, int],
        *,
        rows: float | None,
        structure: Structure,
    ) -> GraphicalTable:
        """The graphical model of all that was answered."""
        return learned(answers, shape, rows=rows, structure=structure)

    def _round(self, session: Asking, weights: Mapping[Columns, float], rho: float) -> bool:
        """One choice and one measurement; whether it moved the model by more than its noise."""
        allowed = self._allowed(session, weights, rho)
        predicted = session.predictions(allowed)
        noise = {c: session.noise(c, (1 - self.selection) * rho) for c in allowed}
        chosen = allowed[0]
        if len(allowed) > 1:
            candidates = [
                Candidate(c, predicted[c], weights[c], min(weights[c] * MEAN_ABSOLUTE * noise[c], LARGEST_PENALTY))
                for c in allowed
            ]
            chosen = allowed[session.window.select(candidates, rho=session.purse.take(self.selection * rho))[0]]
        before: FloatArray = predicted[chosen]
        for noisy in session.window.measure([chosen], rho=session.purse.take((1 - self.selection) * rho)):
            session.add(noisy)
        session.merge_rare()
        session.solve(iterations=30, tolerance=1e-3)
        after = session.predictions([chosen])[chosen]
        return bool(np.abs(after - before).sum() > MEAN_ABSOLUTE * noise[chosen])

    def _once_more(self, session: Asking, weights: Mapping[Columns, float]) -> None:
        """Spend the rest on what was chosen; a column that no candidate has counts like the least of them."""
        least = min(weights.values())
        chosen = {clique: weights.get(clique, least) for clique in session.largest()}
        for noisy in session.window.measure(list(chosen), rho=session.purse.rest(), weights=session.shares(chosen)):
            session.add(noisy)
        session.merge_rare()

    def _allowed(self, session: Asking, weights: Mapping[Columns, float], rho: float) -> list[Columns]:
        """Candidates whose model stays within the part of the size limit that the spent budget has earned."""
        purse = session.purse
        earned = min(1.0, (purse.rho - purse.left + rho) / purse.rho)
        limit = earned * session.limit
        larger = [c for c in weights if len(c) > 1 and session.admits(session.reduction.variables(c), limit)]
        covered = {column for clique in larger for column in clique}
        return [c for c in weights if len(c) == 1 and c[0] not in covered] + larger


def closure(session: Asking) -> dict[Columns, float]:
    """Every candidate with its weight: all subsets of the workload's cliques, within the size limits."""
    columns = session.columns
    reduction = session.reduction
    if session.structure.workload is not None:
        workload: dict[Columns, float] = {}
        for clique, weight in session.structure.workload.items():
            base = reduction.base(clique)
            workload[base] = workload.get(base, 0.0) + weight
    else:
        order = 3 if math.comb(len(columns), 3) <= MAX_TRIPLES else 2
        workload = dict.fromkeys(combinations(columns, min(order, len(columns))), 1.0)
    workload.pop((), None)
    small = {
        subset
        for clique in workload
        for k in range(1, len(clique) + 1)
        for subset in combinations(clique, k)
        if reduction.cells(subset) <= session.structure.max_cells
    }
    weight_of = {c: sum(weight for clique, weight in workload.items() if c in clique) for c in columns}
    candidates: dict[Columns, float] = {}
    used = 0
    for clique in sorted(small, key=lambda c: (reduction.cells(c), c)):
        used += reduction.cells(clique)
        if used > MAX_PREDICTED:
            break
        # The sum over the workload of the columns shared is a sum over columns of the workload that has them.
        candidates[clique] = sum(weight_of[column] for column in clique)
    return graded(candidates)


REGISTRATION = Registration(make=AIM, restore=restore)
