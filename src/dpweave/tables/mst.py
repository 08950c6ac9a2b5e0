"""MST: a tree of two-way marginals (McKenna, Miklau, Sheldon 2021)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen
from dpweave.errors import UsageError
from dpweave.privacy.window import Candidate, Columns
from dpweave.tables.base import Registration, Structure, ask_and_learn
from dpweave.tables.graphical.graphical_table import GraphicalTable, restore
from dpweave.tables.session import Asking, graded, learned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dpweave.arrays import IntArray
    from dpweave.privacy.window import NoisyMarginal, Window

MAX_PREDICTED = 1 << 24
"""Cells of all candidates' predictions together: 128 megabytes."""


@dataclass(frozen=True)
class MST:
    """One-way marginals, then the edges of a maximum spanning tree, chosen one by one, then their two-way marginals.

    An edge's score is the L1 distance between the two-way counts and their prediction from independent columns, times
    what its pair is worth: the weights of the workload's sets that hold it, added up. ``singles`` and ``selection`` are
    the shares of rho for the first two steps. The paper gives a third to each step. Edges carry the one-way information
    again and few bits choose a tree, so here they get most.
    """

    singles: float = chosen.SINGLES
    selection: float = chosen.SELECTION
    name: str = field(default="mst", init=False)

    def __post_init__(self) -> None:
        if not (self.singles > 0 and self.selection > 0 and self.singles + self.selection < 1):
            raise UsageError(
                f"shares for one-way marginals and selection must be positive and add up to less than 1, "
                f"got {self.singles} and {self.selection}"
            )

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
    ) -> MST:
        """Measure columns, choose a tree, measure its edges."""
        session = Asking(window, rho=rho, rows=rows, structure=structure)
        pairs = small_pairs(session)
        progress("measuring columns", 0.0)
        if not pairs:
            session.measure_singles(session.purse.rest())
            return self
        session.measure_singles(session.purse.take(self.singles * rho))
        session.merge_rare()
        session.solve(iterations=200, tolerance=1e-4)
        chosen = self._tree(session, pairs, progress) or {(column,): 1.0 for column in session.columns}
        progress("measuring pairs", 0.7)
        for noisy in window.measure(list(chosen), rho=session.purse.rest(), weights=session.shares(chosen)):
            session.add(noisy)
        session.merge_rare()
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

    def _tree(
        self, session: Asking, pairs: Mapping[Columns, float], progress: Callable[[str, float], None]
    ) -> dict[Columns, float]:
        """Edges that join what was not joined before, best first (Kruskal's algorithm
        with noisy choices), and their worth.

        Noise goes by the most that a pair is worth. So one choice draws as many edges as can be made of pairs that are
        worth at least half of that, and the next one goes by those that are left.
        """
        predicted = session.predictions(list(pairs))
        candidates = [Candidate(pair, predicted[pair], importance) for pair, importance in pairs.items()]
        weight = np.array(list(pairs.values()))
        ends = np.array([session.reduction.variables(pair) for pair in pairs])
        fits = session.room(list(pairs))

        def groups(edges: Sequence[int]) -> IntArray:
            group = np.arange(len(session.columns))
            for a, b in ends[list(edges)]:
                group[group == group[a]] = group[b]
            return group

        def open_(edges: Sequence[int]) -> IntArray:
            return np.flatnonzero(np.not_equal(*groups(edges)[ends.T]) & fits(edges))

        joins = len(session.columns) - len(set(groups(range(len(pairs)))))
        each = self.selection * session.purse.rho / joins
        edges: list[int] = []
        while (left := open_(edges)).size:
            progress("choosing pairs", 0.1 + 0.6 * len(edges) / joins)
            best = left[weight[left] >= weight[left].max() / 2]
            count = len(set(groups(edges))) - len(set(groups([*edges, *best])))

            def among(drawn: Sequence[int], held: Sequence[int] = (*edges,), left: IntArray = left) -> IntArray:
                still = np.isin(left, open_([*held, *left[list(drawn)]]))
                return np.flatnonzero(still if still.any() else np.ones_like(still))  # none: there is no more room

            drawn: Sequence[int] = (0,)
            if len(left) > 1:
                options = [candidates[i] for i in left]
                drawn = session.window.select(options, rho=session.purse.take(count * each), count=count, among=among)
            for i in left[list(drawn)].tolist():
                edges += [i] if i in open_(edges) else []
        return {candidates[i].columns: float(weight[i]) for i in edges}


def small_pairs(session: Asking) -> dict[Columns, float]:
    """Pairs of modelled columns and their worth: within the size limits, smallest first until memory is full."""
    importance = _importance(session)
    kept: dict[Columns, float] = {}
    used = 0
    for pair in sorted(importance, key=session.reduction.cells):
        cells = session.reduction.cells(pair)
        used += cells
        if cells > session.structure.max_cells or used > MAX_PREDICTED:
            break
        kept[pair] = importance[pair]
    return graded(kept)


def _importance(session: Asking) -> dict[Columns, float]:
    """The workload's weight on each pair that some set of it holds; without a workload all pairs count alike."""
    if session.structure.workload is None:
        return dict.fromkeys(combinations(session.columns, 2), 1.0)
    found: dict[Columns, float] = {}
    for clique, weight in session.structure.workload.items():
        for pair in combinations(session.reduction.base(clique), 2):
            found[pair] = found.get(pair, 0.0) + weight
    return found


REGISTRATION = Registration(make=MST, restore=restore)
