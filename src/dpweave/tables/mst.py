"""MST: a tree of two-way marginals (McKenna, Miklau, Sheldon 2021)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

from dpweave.errors import UsageError
from dpweave.privacy.window import Candidate, Columns
from dpweave.tables.base import Registration, Structure
from dpweave.tables.graphical.table import GraphicalTable, restore
from dpweave.tables.session import Session, polish

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpweave.privacy.window import Window

MAX_PREDICTED = 1 << 24
"""Cells of all candidates' predictions together: 128 megabytes."""


@dataclass(frozen=True)
class MST:
    """One-way marginals, then the edges of a maximum spanning tree, chosen one by one, then their two-way marginals.

    An edge's score is the L1 distance between the two-way counts and their prediction from independent columns.
    ``singles`` and ``selection`` are the shares of rho for the first two steps. The paper gives a third to each step.
    Edges carry the one-way information again and few bits choose a tree, so here they get most.
    """

    singles: float = 0.2
    selection: float = 0.1
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
        """Measure columns, choose a tree, measure its edges."""
        session = Session(window, rho=rho, rows=rows, structure=structure)
        pairs = small_pairs(session)
        progress("measuring columns", 0.0)
        if not pairs:
            session.measure_singles(session.purse.rest())
            return polish(session, progress)
        session.measure_singles(session.purse.take(self.singles * rho))
        session.merge_rare()
        session.solve(iterations=200, tolerance=1e-4)
        edges = self._tree(session, pairs, progress)
        progress("measuring pairs", 0.7)
        for noisy in window.measure(edges or [(c,) for c in session.columns], rho=session.purse.rest()):
            session.add(noisy)
        return polish(session, progress)

    def _tree(self, session: Session, pairs: list[Columns], progress: Callable[[str, float], None]) -> list[Columns]:
        """Edges that join what was not joined before, best first (Kruskal's algorithm with noisy choices)."""
        predicted = session.predictions(pairs)
        candidates = [Candidate(pair, predicted[pair]) for pair in pairs]
        group = {column: i for i, column in enumerate(session.columns)}
        joins = _joins(session.columns, pairs)
        each = self.selection * session.purse.rho / joins
        edges: list[Columns] = []
        while len(edges) < joins:
            progress("choosing pairs", 0.1 + 0.6 * len(edges) / joins)
            fits = session.room(edges)
            open_ = [c for c in candidates if group[c.columns[0]] != group[c.columns[1]] and fits(c.columns)]
            if not open_:
                break
            position = session.window.select(open_, rho=session.purse.take(each))[0] if len(open_) > 1 else 0
            a, b = open_[position].columns
            edges.append((a, b))
            old, new = group[a], group[b]
            group = {column: new if g == old else g for column, g in group.items()}
        return edges


def small_pairs(session: Session) -> list[Columns]:
    """Pairs of modelled columns within the size limits, smallest first until the predictions fill their memory."""
    pairs = sorted(combinations(session.columns, 2), key=session.reduction.cells)
    kept: list[Columns] = []
    used = 0
    for pair in pairs:
        cells = session.reduction.cells(pair)
        used += cells
        if cells > session.structure.max_cells or used > MAX_PREDICTED:
            break
        kept.append(pair)
    return kept


def _joins(columns: Columns, pairs: list[Columns]) -> int:
    """How many edges a spanning forest over ``pairs`` has."""
    group = {column: i for i, column in enumerate(columns)}
    for a, b in pairs:
        old, new = group[a], group[b]
        if old != new:
            group = {column: new if g == old else g for column, g in group.items()}
    return len(columns) - len(set(group.values()))


REGISTRATION = Registration(make=MST, restore=restore)
