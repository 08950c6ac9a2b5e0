r"""Columns woven one after the other, each shrunk towards independence of those before it.

A table is a chain of one-to-many relations: every row is linked to one value of its next column. Each relation is fitted
by the link learner (:mod:`dpweave.links.map`): its own distribution comes from a noisy one-way marginal, and how it
depends on the columns before from noisy pairs, shrunk by empirical Bayes. Where noise drowns a dependence the column stays
independent, so at small budgets this beats models that fit what they measured as if it were true.

Formal guarantees: a client of the window; spends exactly ``rho``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.errors import PlanError
from dpweave.links.base import LinkProblem
from dpweave.links.degrees import Degrees, match_total
from dpweave.links.map import MAP
from dpweave.privacy.window import Columns, FloatArray, IntArray, NoisyMarginal
from dpweave.tables.base import Purse, Registration, Structure
from dpweave.tables.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from dpweave.privacy.window import Window

COUNT = 0.02
"""Share of rho for the number of rows, where nobody measured it before."""
SINGLES = 0.4
"""Share of rho for the columns' own distributions."""
LEARNER = MAP(2)
PICTURE_ROWS = 20_000
"""Rows drawn to answer what a marginal of the model is."""


@dataclass(frozen=True)
class WovenTable:
    """Noisy one-way marginals in the order of weaving, and for each column but the first the pairs that were measured."""

    shape: Mapping[str, int]
    rows: float
    singles: tuple[NoisyMarginal, ...]
    pairs: tuple[tuple[NoisyMarginal, ...], ...]

    def sample(self, rows: int, rng: np.random.Generator) -> dict[str, IntArray]:
        """Weave ``rows`` rows."""
        made: dict[str, IntArray] = {}
        for single, pairs in zip(self.singles, self.pairs, strict=True):
            (column,) = single.columns
            counts = spread(single, rows, rng)
            if not made or not rows:
                made[column] = rng.permutation(np.repeat(np.arange(len(counts)), counts))
                continue
            problem = value_problem(made, column, self.shape, rows=rows, seen=self.rows)
            made[column] = values_of(LEARNER.wire(problem, pairs, rng=rng, degrees=Degrees(right=counts)), rows)
        return {c: made.get(c, np.zeros(rows, dtype=np.int64)) for c in self.shape}

    @cached_property
    def _picture(self) -> dict[str, IntArray]:
        return self.sample(min(max(round(self.rows), 1), PICTURE_ROWS), np.random.default_rng(0))

    def marginal(self, columns: Columns) -> FloatArray:
        """Expected counts over ``columns``, from one drawn table; they add up to ``rows``."""
        sizes = tuple(self.shape[c] for c in columns)
        if not columns:
            return np.array(self.rows)
        cell = np.ravel_multi_index([self._picture[c] for c in columns], sizes)
        counts = np.bincount(cell, minlength=int(np.prod(sizes))).reshape(sizes)
        return np.asarray(counts * (self.rows / max(counts.sum(), 1)), dtype=np.float64)

    def state(self) -> tuple[dict[str, object], dict[str, npt.NDArray[Any]]]:
        """What :func:`restore` needs."""
        every = [("single", s) for s in self.singles] + [(str(i), p) for i, ps in enumerate(self.pairs) for p in ps]
        parts = [{"of": of, "columns": list(m.columns), "sigma": m.sigma} for of, m in every]
        state: dict[str, object] = {"shape": dict(self.shape), "rows": self.rows, "parts": parts}
        return state, {str(i): m.counts.ravel() for i, (_, m) in enumerate(every)}


def restore(state: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> WovenTable:
    """Invert :meth:`WovenTable.state`."""
    found: dict[str, list[NoisyMarginal]] = {}
    for i, part in enumerate(state["parts"]):
        counts = arrays[str(i)].reshape([state["shape"][c] for c in part["columns"]])
        found.setdefault(part["of"], []).append(NoisyMarginal(tuple(part["columns"]), counts, part["sigma"]))
    singles = tuple(found.get("single", ()))
    pairs = tuple(tuple(found.get(str(i), ())) for i in range(len(singles)))
    return WovenTable(state["shape"], state["rows"], singles, pairs)


@dataclass(frozen=True)
class Woven:
    """The mechanism. Knows no structural zeros and no dependencies between columns."""

    name: str = field(default="woven", init=False)

    def fit(
        self,
        window: Window,
        *,
        rho: float,
        rows: float | None,
        structure: Structure,
        progress: Callable[[str, float], None],
    ) -> WovenTable:
        r"""Measure columns from the smallest to the largest, each with the pairs that promise most.

        The L1 noise of n cells at cost ρ grows as :math:`n / \sqrt\rho`; a sum of such terms is least for shares
        proportional to :math:`n^{2/3}`.
        """
        Session(window, rho=rho, rows=rows, structure=structure)  # its checks: budget, sizes, contradictions
        if structure.zeros or structure.dependencies:
            raise PlanError("the mechanism 'woven' keeps no structural zeros or dependencies; use 'aim' or 'mst'")
        columns = sorted((c for c, n in window.shape.items() if n > 1), key=lambda c: window.shape[c])
        purse = Purse(rho)
        size = rows
        if size is None and columns:
            (total,) = window.measure([()], rho=purse.take(COUNT * rho))
            size = max(float(total.counts), 0.0)
        weights = np.array([window.shape[c] ** (2 / 3) for c in columns])
        if size is None or not columns:
            (total,) = window.measure([()], rho=purse.rest())
            progress("woven", 1.0)
            return WovenTable(dict(window.shape), max(float(total.counts), 0.0) if rows is None else rows, (), ())
        first = purse.rest() if len(columns) == 1 else purse.take(SINGLES * rho)
        singles = window.measure([(c,) for c in columns], rho=first, weights=weights.tolist())
        pool = purse.left
        rng = np.random.default_rng(0)
        table = max(round(size), 1)
        made = {columns[0]: _drawn(singles[0], table, rng)}
        pairs: list[tuple[NoisyMarginal, ...]] = [()]
        for i, column in enumerate(columns[1:], start=1):
            progress(f"weaving {column}", i / len(columns))
            last = i == len(columns) - 1
            share = purse.rest() if last else purse.take(pool * weights[i] / weights[1:].sum())
            problem = value_problem(made, column, window.shape, rows=table, seen=float(table))
            counts = spread(singles[i], table, rng)
            learned = LEARNER.learn(
                window, problem, rho=share, rng=rng, progress=lambda _step, _share: None, degrees=Degrees(right=counts)
            )
            made[column] = values_of(learned.pairs, table)
            pairs.append(learned.measured)
        progress("woven", 1.0)
        return WovenTable(dict(window.shape), float(size), singles, tuple(pairs))


def spread(single: NoisyMarginal, rows: int, rng: np.random.Generator) -> IntArray:
    """Whole counts that add up to ``rows``, in proportion to what is not negative in a noisy marginal."""
    positive = np.maximum(single.counts, 0)
    if not rows:
        return np.zeros(len(positive), dtype=np.int64)
    return match_total(positive, rows, cap=rows, rng=rng)


def _drawn(single: NoisyMarginal, rows: int, rng: np.random.Generator) -> IntArray:
    counts = spread(single, rows, rng)
    return rng.permutation(np.repeat(np.arange(len(counts)), counts))


def value_problem(
    made: Mapping[str, IntArray], column: str, shape: Mapping[str, int], *, rows: int, seen: float
) -> LinkProblem:
    """Every row is to be linked to one value of ``column``."""
    sizes = {c: shape[c] for c in (*made, column)}
    values = {column: np.arange(shape[column])}
    return LinkProblem(dict(made), values, shape=sizes, links=rows, links_measured=max(seen, 1.0), kind="one-to-many")


def values_of(pairs: IntArray, rows: int) -> IntArray:
    """Value of each row, from links between rows and values."""
    out = np.zeros(rows, dtype=np.int64)
    out[pairs[:, 0]] = pairs[:, 1]
    return out


REGISTRATION = Registration(make=Woven, restore=restore)
