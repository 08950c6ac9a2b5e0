"""What the released counts say about correlation across a relation, by :mod:`dpweave.measure.dependence`.

It is judged once, after the fit, and stands in the certificate. Reports show what stands there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dpweave.links.degrees import UNKNOWN, Degrees
from dpweave.links.fit_inputs import FitInputs, Stage
from dpweave.measure.dependence import Dependence, dependence, threshold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpweave.arrays import FloatArray
    from dpweave.links.fit_inputs import Counted
    from dpweave.links.link_method import LinkProblem
    from dpweave.measure.cross_workloads import Workload
    from dpweave.measure.estimates import SharedNoise
    from dpweave.privacy.window import Noisy

MOST_JUDGED = 2_000
"""Cells of public rows at most over which shared noise is taken apart, which takes seconds for so many. Sets of columns
with more are not judged.
"""


@dataclass(frozen=True)
class Evidence:
    """What the noisy counts say about one component: do its columns go together beyond chance and lower orders?"""

    columns: tuple[str, ...]
    found: Dependence
    stands_out: bool
    """Whether the score passes the threshold for as many components as were looked at."""

    @property
    def score(self) -> float:
        """A standard normal quantity if links are independent in these columns."""
        return self.found.score

    @property
    def verdict(self) -> str:
        """One sentence for people."""
        what = " × ".join(self.columns)
        if self.stands_out:
            return f"{what}: the data clearly support a correlation"
        if self.score >= threshold(1):
            return f"{what}: weak signs of a correlation, as chance makes them among so many"
        return f"{what}: no correlation above the noise; wired as if independent"


@dataclass
class _Sum:
    """Counts over the columns of a component from all tables that hold them, by weights, and the noise of that sum."""

    counts: FloatArray = field(default_factory=lambda: np.zeros(()))
    weight: float = 0.0
    even: float = 0.0
    shared: list[tuple[float, SharedNoise]] = field(default_factory=list)

    def add(self, clique: Workload, counted: Counted, component: Workload) -> None:
        """Add one table, summed down to the component's columns."""
        away = tuple(i for i, c in enumerate(clique.columns) if c not in component.columns)
        times = math.prod(counted.y.shape[i] for i in away)
        weight = counted.weight / times
        self.counts = self.counts + counted.y.sum(axis=away) * weight
        self.weight += weight
        if counted.blur is None:
            self.even += weight**2 * times / counted.weight
        self.shared += [(weight**2 * times * factor, noise) for factor, noise in counted.shared]

    def dependence(self, margins: Sequence[FloatArray]) -> Dependence | None:
        """How far the mean lies from independence; None where there are too many cells to tell."""
        mean, even = self.counts / self.weight, self.even / self.weight**2
        if not self.shared:
            return dependence(mean, margins, sigma=math.sqrt(even))
        cells = self.shared[0][1].variance.size
        if cells > MOST_JUDGED:
            return None
        cover = sum(factor / self.weight**2 * noise.covariance for factor, noise in self.shared) + even * np.eye(cells)
        return dependence(mean, margins, cover=np.asarray(cover))


def evidence(
    problem: LinkProblem, measured: Sequence[Noisy], *, degrees: Degrees = UNKNOWN, rng: np.random.Generator
) -> tuple[Evidence, ...]:
    """What the noisy counts say for each cross-table component, strongest first. It reads the release alone."""
    if not measured:
        return ()
    stage = Stage.of(FitInputs.of(problem, degrees), measured, rng)
    sums = {t: _Sum() for t in stage.components() if t.left and t.right}
    for s, counted in stage.tables.items():
        for t in (t for t in stage.informed_by(s) if t in sums):
            sums[t].add(s, counted, t)
    judged = {t: total.dependence([stage.scene.margin[c].p for c in t.columns]) for t, total in sums.items()}
    found = {t.columns: x for t, x in judged.items() if x is not None}
    least = threshold(len(found))
    out = [Evidence(columns, x, x.score >= least) for columns, x in found.items()]
    return tuple(sorted(out, key=lambda e: -e.score))


def verdict(found: Sequence[Evidence]) -> str:
    """One sentence about a relation: did the data support correlation across it?

    >>> verdict(())
    'the budget is too small to measure any correlation across this relation; links are independent'
    """
    if not found:
        return "the budget is too small to measure any correlation across this relation; links are independent"
    strong = [e for e in found if e.stands_out]
    if strong:
        named = ", ".join(" × ".join(e.columns) for e in strong[:3])
        more = f" and {len(strong) - 3} more" if len(strong) > 3 else ""
        return f"the data support correlation across this relation, clearest in {named}{more}"
    return "no correlation across this relation stands out of the noise; links go by the columns of each side alone"


def describe(
    problem: LinkProblem, measured: Sequence[Noisy], *, degrees: Degrees = UNKNOWN, rng: np.random.Generator
) -> dict[str, object]:
    """Return the verdict on a relation with the figures behind it, as plain values."""
    found = evidence(problem, measured, degrees=degrees, rng=rng) if measured else ()
    parts = [
        {
            "columns": list(e.columns),
            "signal": round(e.found.signal, 4),
            "score": round(e.score, 2),
            "stands_out": e.stands_out,
            "verdict": e.verdict,
        }
        for e in found
    ]
    return {"verdict": verdict(found), "components": parts}
