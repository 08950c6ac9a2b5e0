"""What the graphical mechanisms share while they fit: a purse, measurements so far, the model they make."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dpweave.tables.base import MAX_MODEL_CELLS, Purse, Structure
from dpweave.tables.graphical.estimation import Estimate, Measurement, Zero, estimate
from dpweave.tables.graphical.large import estimate_large
from dpweave.tables.graphical.table import GraphicalTable, require_possible
from dpweave.tables.graphical.tree import Variables, model_cells
from dpweave.tables.reduction import Merge, reduce

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dpweave.privacy.window import Columns, FloatArray, NoisyMarginal, Window

COUNT_WEIGHT = 0.2
"""Budget of the row count, where the model has to measure it, relative to that of one column."""
RARE = 3.0
"""A category is rare when its noisy count is below this many standard deviations of its noise."""


class Session:
    """One fit. Everything public is checked at birth, before anything is spent."""

    def __init__(self, window: Window, *, rho: float, rows: float | None, structure: Structure) -> None:
        self.window = window
        self.purse = Purse(rho)
        self.structure = structure
        self.reduction, zeros = reduce(window.shape, structure)
        self.zeros = tuple(Zero(self.reduction.variables(z.columns), z.mask) for z in zeros)
        self.measurements: dict[Variables, Measurement] = {}
        self.estimate: Estimate | None = None
        self._rows = rows
        self._totals: list[tuple[float, float]] = []
        modelled = {column: self.reduction.shape[column] for column in self.columns}
        structure.require_room(modelled, cells=self.cells_with(()))
        require_possible(self.reduction.sizes, self.zeros)

    @property
    def columns(self) -> Columns:
        """The modelled columns."""
        return self.reduction.columns

    @property
    def total(self) -> float:
        """Number of rows: as given, else every measurement's sum combined by inverse variance; at least one."""
        if self._rows is not None:
            return max(self._rows, 1.0)
        return max(self._combined(), 1.0)

    def _combined(self) -> float:
        weights = np.array([1.0 / variance for _, variance in self._totals])
        return float(np.array([value for value, _ in self._totals]) @ weights / weights.sum())

    def cells_with(self, variables: Variables) -> int:
        """Cells of the model if ``variables`` were measured too."""
        cliques = [*self.measurements, *(zero.variables for zero in self.zeros), variables]
        return model_cells(self.reduction.sizes, cliques)

    def room(self, edges: Sequence[Columns]) -> Callable[[Columns], bool]:
        """Whether one more pair fits into a model of ``edges``, a forest of pairs, and the zeros."""
        sizes = self.reduction.sizes
        limit = self.structure.max_model_cells
        cliques = [self.reduction.variables(edge) for edge in edges]
        if self.zeros:
            cliques += [zero.variables for zero in self.zeros]
            return lambda pair: model_cells(sizes, [*cliques, self.reduction.variables(pair)]) <= limit
        used = sum(math.prod(sizes[v] for v in clique) for clique in cliques)
        return lambda pair: used + math.prod(sizes[v] for v in self.reduction.variables(pair)) <= limit

    def admits(self, variables: Variables, cells: float) -> bool:
        """Whether the model with ``variables`` measured has at most ``cells`` cells, or no more than it has now."""
        assert self.estimate is not None
        tree = self.estimate.model.engine.tree
        if any(set(variables) <= set(clique) for clique in tree.cliques):
            return True
        # Carrying all but one of the variables through the whole tree is a junction tree already.
        sizes = [self.reduction.sizes[v] for v in variables]
        if tree.cells * (math.prod(sizes) // min(sizes)) <= cells:
            return True
        return self.cells_with(variables) <= cells

    def noise(self, columns: Columns, rho: float) -> float:
        """Standard deviations of a measurement of ``columns`` for ``rho``, added up over model codes."""
        fans = 1.0
        for v in self.reduction.variables(columns):
            fans *= float(np.sqrt(np.bincount(self.reduction.merges[v].code)).sum())
        return fans * self.window.l2(columns) / math.sqrt(2 * rho)

    def measure_singles(self, rho: float) -> None:
        """One-way marginals of all columns, and the row count if nobody measured it before."""
        cliques: list[Columns] = [(column,) for column in self.columns]
        weights = [1.0] * len(cliques)
        if self._rows is None or not cliques:
            cliques.append(())
            weights.append(COUNT_WEIGHT)
        for noisy in self.window.measure(cliques, rho=rho, weights=weights):
            self.add(noisy)

    def add(self, noisy: NoisyMarginal) -> Measurement | None:
        """Take a measurement into the model; a repeated one is averaged with the earlier."""
        variance = noisy.sigma**2
        self._totals.append((float(noisy.counts.sum()), variance * max(noisy.counts.size, 1)))
        if not noisy.columns:
            return None
        counts, fan = self.reduction.collapse(noisy.columns, noisy.counts.astype(np.float64))
        variables = self.reduction.variables(noisy.columns)
        new = Measurement(variables, counts, 1.0 / (variance * fan))
        old = self.measurements.get(variables)
        self.measurements[variables] = new if old is None else old.merged(new)
        return new

    def merge_rare(self) -> None:
        """Merge rare categories, after the one-way measurements and before any other.

        Columns with structural zeros keep their categories, so that unmerging cannot break a zero.
        """
        kept = {v for zero in self.zeros for v in zero.variables}
        merges = []
        for v, merge in enumerate(self.reduction.merges):
            measured = self.measurements[v,]
            threshold = RARE / math.sqrt(float(np.min(measured.weight)))
            merges.append(merge if v in kept else Merge.rare(measured.counts, threshold=threshold))
        singles = {v: self.measurements.pop((v,)) for v in range(len(merges))}
        self.reduction = self.reduction.merged(tuple(merges))
        for v, single in singles.items():
            counts, fan = self.reduction.collapse((self.columns[v],), single.counts)
            self.measurements[v,] = Measurement((v,), counts, np.min(single.weight) / fan)

    def solve(self, *, iterations: int, tolerance: float) -> Estimate:
        """Fit the model to all measurements, starting from the last fit; a very large one by mbi, from scratch."""
        given = tuple(self.measurements.values())
        if self.cells_with(()) > MAX_MODEL_CELLS:
            self.estimate = estimate_large(self.reduction.sizes, given, total=self.total, zeros=self.zeros)
            return self.estimate
        before = self.estimate.potentials if self.estimate is not None else None
        self.estimate = estimate(
            self.reduction.sizes,
            given,
            total=self.total,
            zeros=self.zeros,
            start=before,
            iterations=iterations,
            tolerance=tolerance,
        )
        return self.estimate

    def predictions(self, cliques: Sequence[Columns]) -> dict[Columns, FloatArray]:
        """Expected full counts of the last fit over cliques of modelled columns, each in the model's order."""
        assert self.estimate is not None
        model = self.estimate.model
        wanted: dict[Variables, Columns] = {self.reduction.variables(clique): clique for clique in cliques}
        laws = model.tuples(min(3, max(map(len, cliques))), wanted)
        laws |= {v: model.marginal(v) for v in wanted if len(v) > 3}
        total = self.total
        return {wanted[v]: self.reduction.expand(wanted[v], total * law) for v, law in laws.items()}

    def finish(self) -> GraphicalTable:
        """The table of the last fit."""
        potentials: Mapping[Variables, FloatArray] = self.estimate.potentials if self.estimate is not None else {}
        rows = self._rows if self._rows is not None else self._combined()
        return GraphicalTable(self.reduction, dict(potentials), self.zeros, max(rows, 0.0))


def polish(session: Session, progress: Callable[[str, float], None]) -> GraphicalTable:
    """The last, thorough fit."""
    progress("fitting", 0.95)
    session.solve(iterations=400, tolerance=1e-5)
    progress("fitted", 1.0)
    return session.finish()
