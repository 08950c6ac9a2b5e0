"""Signal against noise: what the released counts say about correlation across a relation (ALGORITHMS B6)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpweave.links.degrees import UNKNOWN, Degrees
from dpweave.links.fit_inputs import FitInputs, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpweave.links.fit_inputs import Residual
    from dpweave.links.link_method import LinkProblem
    from dpweave.privacy.window import Noisy


@dataclass(frozen=True)
class Evidence:
    r"""What the noisy counts say about one component: do its columns go together beyond chance and lower orders?

    ``statistic`` is chi-squared with ``freedom`` degrees of freedom if links are independent in these columns.
    ``signal`` estimates the variance of the true effect in units of the noise; ``score`` is the statistic as a
    standard normal quantity.
    """

    columns: tuple[str, ...]
    statistic: float
    freedom: int
    score: float

    @property
    def signal(self) -> float:
        """Signal against noise: 0 is noise alone."""
        return max(self.statistic / self.freedom - 1.0, 0.0)

    @property
    def verdict(self) -> str:
        """One sentence for people."""
        what = " × ".join(self.columns)
        if self.score >= 3.0:
            return f"{what}: the data clearly support a correlation"
        if self.score >= 1.6:
            return f"{what}: weak signs of a correlation"
        return f"{what}: no correlation above the noise; wired as if independent"


def evidence(
    problem: LinkProblem, measured: Sequence[Noisy], *, degrees: Degrees = UNKNOWN, rng: np.random.Generator
) -> tuple[Evidence, ...]:
    r"""What the noisy counts say for each cross-table component, strongest first.

    The centred residual r of a component has noise covariance :math:`\sigma^2 \bigotimes_c M_c M_c^T` with
    :math:`M_c = I - p_c 1^T`, so :math:`r^T (\cdot)^+ r` is chi-squared with :math:`\prod_c (n_c - 1)` degrees of
    freedom where links do not depend on these columns together. Post-processing: it reads the release alone.
    """
    if not measured:
        return ()
    stage = Stage.of(FitInputs.of(problem, degrees), measured, rng)
    found = []
    for beyond in stage.residuals():
        t = beyond.component
        if not (t.left and t.right):
            continue
        statistic, freedom = _statistic(stage, beyond)
        # Wilson and Hilferty's cube root makes chi-squared nearly normal.
        spread_ = 2 / (9 * freedom)
        score = ((max(statistic, 0.0) / freedom) ** (1 / 3) - (1 - spread_)) / math.sqrt(spread_)
        found.append(Evidence(t.columns, statistic, freedom, score))
    return tuple(sorted(found, key=lambda e: -e.score))


def _statistic(stage: Stage, beyond: Residual) -> tuple[float, int]:
    """Chi-squared of a residual and its degrees of freedom: exact where noise is even,
    else by how many cells are independent.
    """
    if beyond.even is None:
        freedom = max(round(beyond.freedom * beyond.table.size), 1)
        return freedom * float((beyond.table**2 / np.maximum(beyond.variance, 1e-300)).mean()), freedom
    whitened = beyond.table
    for axis, c in enumerate(beyond.component.columns):
        p = stage.scene.margin[c].p
        centre = np.eye(len(p)) - p[:, None]
        inverse = np.linalg.pinv(centre @ centre.T, rcond=1e-9, hermitian=True)
        whitened = np.moveaxis(np.tensordot(inverse, whitened, axes=(1, axis)), 0, axis)
    freedom = math.prod(stage.scene.margin[c].size - 1 for c in beyond.component.columns)
    return float((beyond.table * whitened).sum() / beyond.even), freedom


def verdict(found: Sequence[Evidence]) -> str:
    """One sentence about a relation: did the data support correlation across it?

    >>> verdict(())
    'the budget is too small to measure any correlation across this relation; links are independent'
    """
    if not found:
        return "the budget is too small to measure any correlation across this relation; links are independent"
    # The best of many scores is high by chance: compare it with what the largest of as many normal draws would be.
    chance = math.sqrt(2 * math.log(max(len(found), 2))) + 1.0
    strong = [e for e in found if e.score >= chance]
    if strong:
        named = ", ".join(" × ".join(e.columns) for e in strong[:3])
        more = f" and {len(strong) - 3} more" if len(strong) > 3 else ""
        return f"the data support correlation across this relation, clearest in {named}{more}"
    return "no correlation across this relation stands out of the noise; links are as good as independent"


def describe(
    problem: LinkProblem, measured: Sequence[Noisy], *, degrees: Degrees = UNKNOWN, rng: np.random.Generator
) -> dict[str, object]:
    """Return the verdict on a relation with the figures behind it, as plain values."""
    found = evidence(problem, measured, degrees=degrees, rng=rng) if measured else ()
    parts = [
        {"columns": list(e.columns), "signal": round(e.signal, 4), "score": round(e.score, 2), "verdict": e.verdict}
        for e in found
    ]
    return {"verdict": verdict(found), "components": parts}
