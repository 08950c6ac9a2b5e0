"""What the graphical mechanisms share while they ask and learn: a purse, measurements so far, the model they make."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen
from dpweave.measure.answers import averaged, onto, within
from dpweave.measure.purse import Purse
from dpweave.tables.base import MAX_MODEL_CELLS, Structure
from dpweave.tables.graphical.estimation import Estimate, Measurement, Zero, estimate
from dpweave.tables.graphical.graphical_table import GraphicalTable, require_possible
from dpweave.tables.graphical.junction_tree import Variables, model_cells
from dpweave.tables.graphical.mbi_estimation import estimate_large
from dpweave.tables.reduction import Merge, forbidden, reduce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dpweave.arrays import FloatArray
    from dpweave.privacy.window import Columns, NoisyMarginal, Window
    from dpweave.tables.base import BoolArray
    from dpweave.tables.reduction import Reduction

GRADES = 1024.0
"""Weights of a choice lie between this and one over it."""


class Session:
    """What is known of one table while it is learned. Everything public is checked at birth."""

    def __init__(
        self, shape: Mapping[str, int], *, rows: float | None, structure: Structure, limit: int | None = None
    ) -> None:
        self.limit = structure.max_model_cells if limit is None else min(limit, structure.max_model_cells)
        self.structure = structure
        self.reduction, zeros = reduce(shape, structure)
        self._facts = zeros
        self.zeros = tuple(Zero(self.reduction.variables(z.columns), z.mask) for z in zeros)
        self.measurements: dict[Variables, Measurement] = {}
        self.estimate: Estimate | None = None
        self._full: dict[Variables, Measurement] = {}
        self._fresh: set[int] = set()
        self._start: Mapping[Variables, FloatArray] | None = None
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
        return model_cells(self.reduction.sizes, [*self._cliques(), variables])

    def _cliques(self) -> list[Variables]:
        return [*self._full, *(zero.variables for zero in self.zeros)]

    def room(self, pairs: Sequence[Columns]) -> Callable[[Sequence[int]], BoolArray]:
        """Which of ``pairs`` fit one more each into a model of some of them, by position, and the zeros."""
        sizes, limit = self.reduction.sizes, self.structure.max_model_cells
        inside = [self.reduction.variables(pair) for pair in pairs]
        cells = np.array([math.prod(sizes[v] for v in pair) for pair in inside], dtype=np.int64)
        zeros = [zero.variables for zero in self.zeros]

        def fits(held: Sequence[int]) -> BoolArray:
            if not zeros:
                return np.asarray(cells[list(held)].sum() + cells <= limit)
            cliques = [*zeros, *(inside[i] for i in held)]
            # Carrying one variable of a pair through the whole tree is a junction tree already.
            now = model_cells(sizes, cliques)
            sure = (now * min(sizes[v] for v in pair) <= limit for pair in inside)
            return np.array(
                [s or model_cells(sizes, [*cliques, pair]) <= limit for s, pair in zip(sure, inside, strict=True)]
            )

        return fits

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

    def possible(self, columns: Columns) -> float:
        """Share of the cells over ``columns`` that zeros leave; columns of zeros are never merged."""
        facts = [z for z in self._facts if set(z.columns) <= set(columns)]
        if not facts:
            return 1.0
        inside = tuple(dict.fromkeys(c for z in facts for c in z.columns))
        return 1.0 - float(forbidden(inside, tuple(self.reduction.shape[c] for c in inside), facts).mean())

    def add(self, noisy: NoisyMarginal) -> None:
        """Take a measurement into the model; a repeated one is averaged with the earlier."""
        variance = noisy.sigma**2
        self._totals.append((float(noisy.counts.sum()), variance * max(noisy.counts.size, 1)))
        if not noisy.columns:
            return
        variables = self.reduction.variables(noisy.columns)
        new = Measurement(variables, noisy.counts.astype(np.float64), 1.0 / variance)
        old = self._full.get(variables)
        self._full[variables] = new if old is None else old.merged(new)
        self._fresh.update(variables)
        self.measurements[variables] = self._collapsed(self._full[variables])

    def _collapsed(self, full: Measurement) -> Measurement:
        """The same over model codes."""
        counts, fan = self.reduction.collapse(tuple(self.columns[v] for v in full.variables), full.counts)
        return Measurement(full.variables, counts, full.weight / fan)

    def merge_rare(self) -> None:
        """Merge the categories that are rare by all that was measured so far, and no others.

        What is merged is modelled as one, so what a pair tells about it is lost: a faint first look
        must not decide for good. Columns with structural zeros keep their categories, so that unmerging
        cannot break a zero. A column keeps its last merge where the model would grow beyond its limit.
        """
        kept = {v for zero in self.zeros for v in zero.variables}
        before = self.reduction
        for v in sorted(self._fresh - kept, key=lambda v: before.merges[v].code.size):
            merges = list(self.reduction.merges)
            counts, noise = one_way(v, self._full.values())
            merges[v] = Merge.rare(counts, threshold=chosen.SIGNIFICANT * noise)
            after = self.reduction.merged(tuple(merges))
            if after.sizes[v] <= self.reduction.sizes[v] or model_cells(after.sizes, self._cliques()) <= self.limit:
                self.reduction = after
        self._fresh.clear()
        pairs = zip(before.merges, self.reduction.merges, strict=True)
        changed = {v for v, (old, new) in enumerate(pairs) if not np.array_equal(old.code, new.code)}
        self.measurements |= {v: self._collapsed(full) for v, full in self._full.items() if changed.intersection(v)}
        if self.estimate is not None and changed:
            self._start = {v: moved(v, array, before, self.reduction) for v, array in self.estimate.potentials.items()}

    def largest(self) -> list[Columns]:
        """What was measured, without what is part of something larger that was."""
        every = list(self._full)
        top = [v for v in every if not any(set(v) < set(other) for other in every)]
        return [tuple(self.columns[i] for i in v) for v in top]

    def solve(self, *, iterations: int, tolerance: float) -> Estimate:
        """Fit the model to all measurements, starting from the last fit; a very large one by mbi, from scratch."""
        given = tuple(self.measurements.values())
        if self.cells_with(()) > MAX_MODEL_CELLS:
            self.estimate = estimate_large(self.reduction.sizes, given, total=self.total, zeros=self.zeros)
        else:
            self.estimate = estimate(
                self.reduction.sizes,
                given,
                total=self.total,
                zeros=self.zeros,
                start=self._start,
                iterations=iterations,
                tolerance=tolerance,
            )
        self._start = self.estimate.potentials
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


class Asking(Session):
    """A session that still asks, from a purse of ``rho``. What a structure says was measured before, it knows."""

    def __init__(
        self, window: Window, *, rho: float, rows: float | None, structure: Structure, limit: int | None = None
    ) -> None:
        super().__init__(window.shape, rows=rows, structure=structure, limit=limit)
        self.window = window
        self.purse = Purse(rho)
        for noisy in structure.measured:
            inside = set(noisy.columns) <= set(self.columns)
            if inside and self.cells_with(self.reduction.variables(noisy.columns)) <= self.limit:
                self.add(noisy)

    def noise(self, columns: Columns, rho: float) -> float:
        """Standard deviations of a measurement of ``columns`` for ``rho``, added up over model codes that can occur."""
        fans = self.possible(columns)
        for v in self.reduction.variables(columns):
            fans *= float(np.sqrt(np.bincount(self.reduction.merges[v].code)).sum())
        return fans * self.window.l2(columns) / math.sqrt(2 * rho)

    def shares(self, weights: Mapping[Columns, float]) -> list[float]:
        r"""Shares of a budget for measuring the keys of ``weights`` together.

        At cost ρ a marginal r brings L1 noise proportional to :math:`n_r / \sqrt\rho`. The sum
        of these with weights w is least for shares proportional to :math:`(w_r n_r)^{2/3}`.
        """
        return [(weight * self.noise(columns, 1.0)) ** (2 / 3) for columns, weight in weights.items()]

    def measure_singles(self, rho: float) -> None:
        """One-way marginals of all columns, and the row count if nobody measured it before."""
        cliques: list[Columns] = [(column,) for column in self.columns]
        weights = [1.0] * len(cliques)
        if self._rows is None or not cliques:
            cliques.append(())
            weights.append(chosen.COUNTING)
        for noisy in self.window.measure(cliques, rho=rho, weights=weights):
            self.add(noisy)


def require_structure(shape: Mapping[str, int], structure: Structure) -> None:
    """Refuse facts about columns of ``shape`` that leave no possible row, or that no model has room for."""
    reduction, zeros = reduce(shape, structure)
    held = tuple(Zero(reduction.variables(z.columns), z.mask) for z in zeros)
    cells = model_cells(reduction.sizes, [z.variables for z in held])
    structure.require_room({c: reduction.shape[c] for c in reduction.columns}, cells=cells)
    require_possible(reduction.sizes, held)


def one_way(variable: int, measurements: Iterable[Measurement]) -> tuple[FloatArray, float]:
    r"""Counts of one variable by all measurements with it, and the noise that a category of its own brings.

    Measurement i, of variance :math:`\sigma_i^2` per cell, sums :math:`n_i` cells to a count of precision :math:`1 /
    (n_i \sigma_i^2)`, by which counts are averaged. Standard deviations of a category's cells add up to :math:`n_i
    \sigma_i` where there is one measurement, and to :math:`(\sum_i \sigma_i^{-2})^{1/2} / \sum_i (n_i \sigma_i^2)^{-1}`
    in general: the deviation of the average times the root of the mean of :math:`n_i`.
    """
    counts = np.zeros(())
    cells = precision = 0.0
    for m in measurements:
        if variable in m.variables:
            away = tuple(i for i, v in enumerate(m.variables) if v != variable)
            weight = float(np.min(m.weight))
            share = weight / math.prod(m.counts.shape[i] for i in away)
            counts = counts + share * m.counts.sum(axis=away)
            cells += weight
            precision += share
    return counts / precision, math.sqrt(cells) / precision


def moved(variables: Variables, potential: FloatArray, before: Reduction, after: Reduction) -> FloatArray:
    """A potential over the codes of one reduction for those of another: where the next fit starts.

    A code takes the potential of the one that its first category was in. Of a single
    variable's, it takes its categories' share.
    """
    for axis, v in enumerate(variables):
        old, new = before.merges[v], after.merges[v]
        _, first = np.unique(new.code, return_index=True)
        potential = np.take(potential, old.code[first], axis=axis)
        if len(variables) == 1:
            potential = potential + np.log(np.maximum(np.bincount(new.code, old.share), chosen.NEXT_TO_NOTHING))
    return potential


def learned(
    answers: Sequence[NoisyMarginal],
    shape: Mapping[str, int],
    *,
    rows: float | None,
    structure: Structure,
    most: int | None = None,
) -> GraphicalTable:
    """Fit a graphical model to ``answers``, or to what they say of sets of at most ``most`` columns.

    Where a model of all of them would be too large, those come first that are furthest from what single columns say.
    """
    session = Session(shape, rows=rows, structure=structure)
    known = within(answers, session.columns, most=most)
    for noisy in known:
        session.add(noisy)
        session.merge_rare()
    if session.cells_with(()) > session.limit:
        session = _selected(known, shape, rows=rows, structure=structure)
    session.solve(iterations=400, tolerance=1e-5)
    return session.finish()


def _selected(
    answers: Sequence[NoisyMarginal], shape: Mapping[str, int], *, rows: float | None, structure: Structure
) -> Session:
    """Take as many answers as there is room for, those with most to tell first; of others what single columns say."""
    session = Session(shape, rows=rows, structure=structure)
    singles = {
        c: averaged([onto(m, (c,)) for m in answers if c in m.columns])
        for c in dict.fromkeys(c for m in answers for c in m.columns)
    }
    for single in singles.values():
        session.add(single)
        session.merge_rare()
    for noisy in sorted((m for m in answers if len(m.columns) > 1), key=lambda m: -_surprise(m, singles)):
        if session.cells_with(session.reduction.variables(noisy.columns)) <= session.limit:
            session.add(noisy)
            session.merge_rare()
    return session


def _surprise(noisy: NoisyMarginal, singles: Mapping[str, NoisyMarginal]) -> float:
    """How far counts are from those of independent columns, beyond their noise, in units of it."""
    total = max(float(noisy.counts.sum()), 1.0)
    expected = np.full((), total)
    for column in noisy.columns:
        share = np.maximum(singles[column].counts, 0.0)
        expected = np.multiply.outer(expected, share / max(share.sum(), 1.0))
    return float(np.abs(noisy.counts - expected).sum() / noisy.sigma - math.sqrt(2 / math.pi) * noisy.counts.size)


def graded(importance: Mapping[Columns, float]) -> dict[Columns, float]:
    """Scale weights to where choices tell them apart: they are rounded to 1/1024 there, and none may come to nothing.

    >>> graded({("a",): 2.0, ("b",): 1.0, ("c",): 1e-9})
    {('a',): 1024.0, ('b',): 512.0, ('c',): 0.0009765625}
    """
    largest = max(importance.values(), default=1.0)
    return {columns: max(weight / largest * GRADES, 1 / GRADES) for columns, weight in importance.items()}
