"""What is known about a relation before links are fitted: weights of rows, row types, noisy counts put together."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen
from dpweave.errors import UsageError
from dpweave.links.degrees import whole
from dpweave.links.row_types import RowTypes
from dpweave.measure.cross_workloads import Workload, cells
from dpweave.measure.design import Design, informs, parts
from dpweave.measure.estimates import estimates
from dpweave.measure.margins import Margin
from dpweave.measure.per_unit.centred_counts import Centre
from dpweave.measure.per_unit.public_row_sums import PublicRowSums, outer
from dpweave.measure.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.links.degrees import Degrees
    from dpweave.links.link_method import LinkProblem
    from dpweave.measure.estimates import Estimate, SharedNoise
    from dpweave.privacy.window import Columns, Noisy, Units

FIT_CELLS = 1 << 18
"""Pairs of row types that a fit sees at most: of more, a sample stands for all (ALGORITHMS B4)."""

_SHORTEST = 3
"""Values in order that a column must have for a linear effect to be less than all it can do."""


@dataclass(frozen=True)
class FitInputs:
    """What is known before links are measured: weights of rows in the view, margins, about how many links it shows."""

    problem: LinkProblem
    left_weights: FloatArray
    right_weights: FloatArray
    left_known: bool
    right_known: bool
    links: float
    left: Mapping[str, Margin]
    right: Mapping[str, Margin]

    @classmethod
    def of(cls, problem: LinkProblem, degrees: Degrees) -> FitInputs:
        """Weigh rows by the links the view shows of them.

        Where these are given, or each left row has exactly one link, how links spread over that side is known.
        """
        lefts = _row_weights(problem.left_rows, degrees.left, degrees.left_seen, "left")
        likely = degrees.right if degrees.right is not None else degrees.right_weights
        rights = _row_weights(problem.right_rows, likely, degrees.right_seen, "right")
        sides = (lefts, rights)
        margins = [
            {c: Margin.of(codes, weights, problem.shape[c]) for c, codes in side.items()}
            for side, weights in zip((problem.left, problem.right), sides, strict=True)
        ]
        return cls(
            problem,
            lefts,
            rights,
            left_known=degrees.left is not None or problem.kind == "one-to-many",
            right_known=degrees.right is not None,
            links=max(problem.links_measured, 1.0),
            left=margins[0],
            right=margins[1],
        )

    def known(self, component: Workload) -> bool:
        """Whether the tables show a component already."""
        return (self.left_known and not component.right) or (self.right_known and not component.left)

    @property
    def given(self) -> int | None:
        """Axis of the side whose margin a fit holds fixed (0 left, 1 right), or None."""
        return 0 if self.left_known else 1 if self.right_known else None

    def fixed(self, component: Workload) -> bool:
        """Whether a component lies in the margin that a fit holds fixed."""
        return (self.given == 0 and not component.right) or (self.given == 1 and not component.left)

    def design(self, k: int, favoured: Mapping[Columns, float] | None = None) -> Design:
        """Everything that could be measured for this relation; ``favoured`` columns come first, by their weights."""
        first = {self.workload(columns): weight for columns, weight in (favoured or {}).items()}
        return Design(self.left, self.right, k=k, known=self.known, favoured=first)

    def public_row_sums(self, design: Design, units: Units) -> PublicRowSums:
        """What may be counted of the public rows on the right, for the components of a design."""
        sets = dict.fromkeys(t.right for t in design.everything if t.right)
        return PublicRowSums.of(
            self.problem.right,
            self.right_weights,
            self.left,
            self.right,
            units=units,
            sets=list(sets),
            taste=1.0 if self.left_known else None,
        )

    def centre(self, columns: Columns) -> Centre | None:
        """What is known of counts over ``columns`` before rows are counted: how all rows spread over the left ones."""
        asked = self.workload(columns)
        if not asked.left or not asked.right:
            return None
        alike = math.prod(float((self.left[c].p ** 2).sum()) for c in asked.left)
        return Centre(asked.right, asked.left, alike, lambda: self.rows_in(asked.left) / self.links)

    def rows_in(self, columns: Columns) -> FloatArray:
        """About how many links of the view fall into each cell of some columns of one side, by the synthetic rows."""
        left = all(c in self.left for c in columns)
        codes, weights = (self.problem.left, self.left_weights) if left else (self.problem.right, self.right_weights)
        sizes = {c: self.problem.shape[c] for c in columns}
        at = cells(codes, columns, sizes, rows=len(weights))
        mass = np.bincount(at, weights=weights, minlength=math.prod(sizes.values()))
        return np.asarray(self.links * mass / mass.sum()).reshape(tuple(sizes.values()))

    def present(self, columns: Columns, *, total: float = 0.0, noise: float = math.inf) -> float:
        """Share of links that counts over ``columns`` show: about that of rows,
        corrected by their ``total`` as far as its ``noise`` allows.
        """
        ways = dict(self.problem.presence[c] for c in columns if c in self.problem.presence)
        share, blur = math.prod(ways.values()), (noise / self.links) ** 2
        if not ways or blur == math.inf:
            return share
        likely = (total / self.links * chosen.DOUBT**2 + share * blur) / (chosen.DOUBT**2 + blur)
        return min(max(likely, share / 10), 1.0)

    @property
    def margin(self) -> dict[str, Margin]:
        """Margins of both sides by column."""
        return {**self.left, **self.right}

    def workload(self, columns: Sequence[str]) -> Workload:
        """Tell the sides of a clique apart."""
        return Workload(tuple(c for c in columns if c in self.left), tuple(c for c in columns if c in self.right))

    def types(
        self, side: str, columns: Sequence[str], limit: int, rng: np.random.Generator
    ) -> tuple[RowTypes, FloatArray]:
        """Row types over ``columns`` and their shares of weight; at most ``limit``, by
        a calibrated sample if needed.
        """
        codes = self.problem.left if side == "left" else self.problem.right
        weights = self.left_weights if side == "left" else self.right_weights
        types = RowTypes.of(codes, columns, shape=self.problem.shape, rows=len(weights))
        mass: FloatArray = np.bincount(types.of_row, weights=weights, minlength=types.count).astype(np.float64)
        if types.count > limit:
            types, mass = _representatives(types, mass, limit, rng)
        return types, mass / mass.sum()


def _row_weights(rows: int, degrees: IntArray | FloatArray | None, share: FloatArray | None, side: str) -> FloatArray:
    for values in (degrees, share):
        if values is not None and len(values) != rows:
            raise UsageError(f"{len(values)} degrees for {rows} {side} rows")
    weights = np.ones(rows) if degrees is None else degrees.astype(np.float64)
    if share is not None:
        weights = weights * share
    return weights if weights.sum() > 0 else np.ones(rows)


def _representatives(
    types: RowTypes, mass: FloatArray, limit: int, rng: np.random.Generator
) -> tuple[RowTypes, FloatArray]:
    """A systematic sample of types in sorted order, reweighted until every column has its margin again.

    Pairs of sampled types stand for all pairs (ALGORITHMS B4): the cost of a fit does not depend on the rows.
    """
    picks = whole(mass * (limit / mass.sum()), limit, rng)
    used = np.flatnonzero(picks)
    codes = types.codes[used]
    weight = picks[used].astype(np.float64)
    for _ in range(20):
        for c, size in enumerate(types.shape):
            wanted = np.bincount(types.codes[:, c], weights=mass, minlength=size)
            have = np.bincount(codes[:, c], weights=weight, minlength=size)
            weight *= np.where(have > 0, wanted / np.maximum(have, 1e-300), 0.0)[codes[:, c]]
    nobody = np.zeros(0, dtype=np.int64)
    return RowTypes(types.columns, types.shape, codes, nobody, types.multiplicity[used]), weight


@dataclass(frozen=True)
class Counted:
    """Noisy counts over a workload's cells, as a fit sees them.

    ``precision`` is that of each cell, 0 where a cell was not counted but follows from others. ``weight`` is the
    precision that cells of a table with even noise would have to say as much about columns beyond fewer columns.
    ``blur`` is the variance of noise over the right columns once fewer columns are taken out; None where noise is even,
    and sums over right columns say something too. ``independent`` is the share of right cells that say something of
    their own.
    """

    y: FloatArray
    precision: FloatArray
    weight: float
    blur: FloatArray | None = None
    independent: float = 1.0
    shared: tuple[tuple[float, SharedNoise], ...] = ()
    """Where noise is not even, its parts, each with the factor of its variance."""

    @classmethod
    def of(cls, estimate: Estimate, workload: Workload, margins: Mapping[str, Margin]) -> Counted:
        """An estimate with its axes in the order of a workload's columns."""
        order = [estimate.columns.index(c) for c in workload.columns]
        y, precision = (np.transpose(x, order) for x in (estimate.counts, estimate.precision))
        if estimate.shared is None:
            return cls(y, precision, estimate.sigma**-2)
        ps = [margins[c].p for c in workload.right]
        blur, independent = estimate.shared.contrasts(ps)
        trust, even = outer([p * (1 - p) for p in ps]), outer([1 - 2 * p + len(p) * p**2 for p in ps])
        weight = float((trust * even / blur).sum() / trust.sum())
        return cls(y, precision, weight, blur, independent, ((1.0, estimate.shared),))


@dataclass(frozen=True)
class Stage:
    """Row types of both sides over the measured columns, and independent wiring of them."""

    scene: FitInputs
    tables: Mapping[Workload, Counted]
    """Noisy counts of each measured clique, repeated cliques averaged; axes as the workload's."""
    left: RowTypes
    right: RowTypes
    base: FloatArray
    links: float
    """The number of links in the view, from a first guess and the noisy counts themselves."""

    @classmethod
    def of(cls, scene: FitInputs, measured: Sequence[Noisy], rng: np.random.Generator) -> Stage:
        """Collapse rows over the measured columns and settle how many links there are."""
        tables = _averaged(scene, measured)
        lefts = [c for c in scene.left if any(c in s.left for s in tables)]
        rights = [c for c in scene.right if any(c in s.right for s in tables)]
        left, p = scene.types("left", lefts, _room(scene, "right", rights), rng)
        right, q = scene.types("right", rights, max(FIT_CELLS // left.count, 1), rng)
        present = scene.problem.presence
        totals = [
            (float(t.y.sum()), t.weight / t.y.size)
            for s, t in tables.items()
            if t.blur is None and not any(c in present for c in s.columns)
        ]
        prior = 1 / (chosen.DOUBT * scene.links) ** 2
        best = (scene.links * prior + sum(t * w for t, w in totals)) / (prior + sum(w for _, w in totals))
        return cls(scene, tables, left, right, np.multiply.outer(p, q), max(best, 1.0))

    def components(self) -> list[Workload]:
        """Everything inside a measured clique that can vary."""
        every = dict.fromkeys(t for s in self.tables for t in self.informed_by(s))
        margin = self.scene.margin
        return [t for t in every if all(margin[c].size > 1 for c in t.columns)]

    def informed_by(self, clique: Workload) -> list[Workload]:
        """Components that the counts of a clique inform of."""
        return [t for t in parts(clique) if self.tables[clique].blur is None or t.right == clique.right]

    def precisions(self) -> dict[Workload, float]:
        """How precisely the counts show a coefficient of each component, by the formula of the design."""
        out = dict.fromkeys(self.components(), 0.0)
        for s, counted in self.tables.items():
            for t in self.informed_by(s):
                if t in out:
                    out[t] += counted.weight * self.links**2 * informs(s, t, self.scene.margin)
        return out

    def lines(self, component: Workload) -> dict[int, FloatArray]:
        """Axes of a component along which codes are in order, each with the unit vector
        of a linear effect (:func:`line`).

        Right columns of unit sums share noise between their values, so that there linear effects are not separated from
        the others; nor are they in what one side shows by itself, where there are few of them and each is a chance to
        take noise for an effect; nor along columns with values far out that hardly occur, whose noise would drown them
        and the rest.
        """
        out: dict[int, FloatArray] = {}
        if not component.left or not component.right:
            return out
        for axis, c in enumerate(component.columns):
            count = self.scene.problem.ordered.get(c, 0)
            if count >= _SHORTEST and not (c in self.scene.right and self.shares_noise):
                p = self.scene.margin[c].p
                found = line(p, count)
                # The sum along scores x = found / sqrt(p) has the noise of sum x², of even values len(p).
                if (found**2 / p).sum() <= chosen.UNEVEN * len(p):
                    out[axis] = found
        return out

    @cached_property
    def shares_noise(self) -> bool:
        """Whether values of right columns share noise, as those of unit sums over public rows do."""
        return any(t.blur is not None for t in self.tables.values())

    def informed(self, variance: Mapping[Workload, float], *, least: float) -> list[Workload]:
        """Components of which the counts say at least so much, in units of what is known of them before."""
        return [t for t, precision in self.precisions().items() if variance[t] * precision >= least]

    @cached_property
    def expected(self) -> dict[Workload, FloatArray]:
        """Independent wiring's frequencies in the measured cliques: of all rows, and
        not of those types that stand for them.
        """
        sets = dict.fromkeys(columns for s in self.tables for columns in (s.left, s.right))
        share = {columns: self.scene.rows_in(columns) / self.scene.links for columns in sets}
        return {s: np.multiply.outer(share[s.left], share[s.right]) for s in self.tables}

    def residuals(self) -> Iterator[Residual]:
        r"""Per component: counts beyond independent wiring and lower orders, and their noise.

        All cliques that contain T are summed down to T and averaged by inverse variance. Centring by
        :math:`I - p 1^T` along each axis takes away every effect of fewer columns.
        """
        wanted = dict.fromkeys(self.components())
        sums: dict[Workload, FloatArray] = dict.fromkeys(wanted, np.zeros(()))
        variances: dict[Workload, FloatArray] = dict.fromkeys(wanted, np.zeros(()))
        weights: dict[Workload, float] = dict.fromkeys(wanted, 0.0)
        freedom: dict[Workload, float] = dict.fromkeys(wanted, 0.0)
        for s, counted in self.tables.items():
            beyond = counted.y - self.links * self.expected[s]
            for t in (t for t in self.informed_by(s) if t in wanted):
                away = tuple(i for i, c in enumerate(s.columns) if c not in t.columns)
                times = math.prod(beyond.shape[i] for i in away)
                weight = counted.weight / times
                sums[t] = sums[t] + beyond.sum(axis=away) * weight
                variances[t] = variances[t] + weight**2 * times * self._blur(counted, t)
                weights[t] += weight
                freedom[t] += weight * self._freedom(counted, t)
        for t, total in sums.items():
            table = total / weights[t]
            for axis, c in enumerate(t.columns):
                table = table - along(self.scene.margin[c].p, axis, table.ndim) * table.sum(axis=axis, keepdims=True)
            yield Residual(t, table, variances[t] / weights[t] ** 2, freedom[t] / weights[t])

    def _blur(self, counted: Counted, component: Workload) -> FloatArray:
        """Variance of a table's noise, centred along every axis of ``component``."""
        even = [1 - 2 * p + len(p) * p**2 for p in (self.scene.margin[c].p for c in component.columns)]
        if counted.blur is None:
            return outer(even) / counted.weight
        return np.multiply.outer(outer(even[: len(component.left)]), counted.blur)

    def _freedom(self, counted: Counted, component: Workload) -> float:
        """Share of a component's cells that are independent: centring takes one value
        away along each axis, common noise more.
        """
        columns = component.columns if counted.blur is None else component.left
        return counted.independent * math.prod(1 - 1 / self.scene.margin[c].size for c in columns)


@dataclass(frozen=True)
class Residual:
    """Counts of a component beyond independent wiring and lower orders, with the variance of their noise cell by cell.

    ``freedom`` is the share of cells that say something of their own.
    """

    component: Workload
    table: FloatArray
    variance: FloatArray
    freedom: float


def line(p: FloatArray, count: int) -> FloatArray:
    r"""Unit vector :math:`\sqrt p\, x` of a linear effect along the first ``count`` values of a column with margin p.

    >>> line(np.array([0.25, 0.5, 0.25]), 3).round(3)
    array([-0.707,  0.   ,  0.707])
    """
    place = np.arange(len(p), dtype=np.float64)
    inside = np.where(place < count, p, 0.0)
    x = np.where(place < count, place - inside @ place / inside.sum(), 0.0)
    return np.asarray(np.sqrt(p) * x / np.sqrt(inside @ x**2))


def _room(scene: FitInputs, side: str, columns: Sequence[str]) -> int:
    """How many types the other side may have, given how many this one can have at most."""
    rows = scene.problem.right_rows if side == "right" else scene.problem.left_rows
    most = min(rows, math.prod(scene.problem.shape[c] for c in columns))
    return max(math.isqrt(FIT_CELLS), FIT_CELLS // max(most, 1))


def _averaged(scene: FitInputs, measured: Sequence[Noisy]) -> dict[Workload, Counted]:
    """Noisy counts by workload; of a clique that was measured twice, their mean by precision."""
    found: dict[Workload, list[Counted]] = {}
    for noisy in measured:
        for workload, counted in _counted(scene, noisy).items():
            found.setdefault(workload, []).append(counted)
    return {workload: _mean(several) for workload, several in found.items()}


def _mean(several: Sequence[Counted]) -> Counted:
    """Mean by weights of several tables over the same columns.

    One weight for all cells of a table: what was not counted follows from the others by
    subtraction, and must in the mean too.
    """
    if len(several) == 1:
        return several[0]
    weight = sum(c.weight for c in several)
    parts_ = [(c.weight / weight, c) for c in several]
    y = np.asarray(sum(part * c.y for part, c in parts_))
    counted = np.logical_and.reduce([c.precision > 0 for c in several])
    noise = sum(part**2 / np.where(counted, c.precision, 1.0) for part, c in parts_)
    blurs = [part**2 * c.blur for part, c in parts_ if c.blur is not None]
    blur = np.asarray(sum(blurs)) if len(blurs) == len(several) else None
    shared = tuple((part**2 * f, x) for part, c in parts_ for f, x in c.shared) if blur is not None else ()
    independent = min(c.independent for c in several)
    return Counted(y, np.where(counted, 1 / noise, 0.0), weight, blur, independent, shared)


def _counted(scene: FitInputs, noisy: Noisy) -> dict[Workload, Counted]:
    looked = Question.of(noisy).looks_at
    unknown = [c for c in looked if c not in scene.left and c not in scene.right]
    if unknown:
        raise UsageError(f"measured column {unknown[0]!r} is on neither side of the relation")
    share = scene.present(looked)
    known = (*(scene.left if scene.left_known else ()), *(scene.right if scene.right_known else ()))
    found = {}
    for estimate in estimates(noisy, scene.problem.shape, lambda columns: share * scene.rows_in(columns), known=known):
        workload = scene.workload(estimate.columns)
        if workload.k:
            counted, total = Counted.of(estimate, workload, scene.margin), estimate.counts.sum()
            shown = share
            if estimate.even:
                noise = estimate.sigma * math.sqrt(estimate.counts.size)
                shown = scene.present(workload.columns, total=total, noise=noise)
            found[workload] = _scaled(counted, shown)
    return found


def _scaled(counted: Counted, share: float) -> Counted:
    """Counts of a share of the links as those of all."""
    if share == 1:
        return counted
    blur = None if counted.blur is None else counted.blur / share**2
    return replace(
        counted,
        y=counted.y / share,
        precision=counted.precision * share**2,
        weight=counted.weight * share**2,
        blur=blur,
        shared=tuple((f / share**2, x) for f, x in counted.shared),
    )


def along(values: FloatArray, axis: int, ndim: int) -> FloatArray:
    """Lay the last axis of ``values`` along ``axis`` of a table with ``ndim`` axes; a leading axis stays in front."""
    shape = [1] * ndim
    shape[axis] = values.shape[-1]
    if values.ndim == 2:
        shape[0] = values.shape[0]
    return values.reshape(shape)
