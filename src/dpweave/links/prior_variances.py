r"""How far links may depend on columns: prior variances, judged by the noisy counts before any is fitted.

Links that depend on a column in order mostly do so steadily: older users rate higher, dearer goods are bought by fewer.
In a table of ages by genres that is one coefficient per genre, and what is beside it is many. Judged together, the one
drowns in the noise of the many, or lets it through. So a component's coefficients are told apart (:meth:`Stage.lines
<dpweave.links.fit_inputs.Stage.lines>`): those that are linear along all its columns in order, and the rest, each with
a variance of its own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpweave import chosen
from dpweave.measure.design import default_variance
from dpweave.measure.per_unit.public_row_sums import outer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dpweave.arrays import FloatArray
    from dpweave.links.fit_inputs import Residual, Stage
    from dpweave.measure.cross_workloads import Workload

GRID = np.geomspace(1e-4, 1e3, 36)
"""Multiples of the default prior variance that empirical Bayes weighs up."""

_ROUNDING = 1e-9
"""Part of a cell's noise that is left at least beside linear effects."""


class PriorVariance(NamedTuple):
    """Prior variances of a component's coefficients: those that are linear along columns in order, and the others."""

    linear: float
    rest: float


def prior_variances(stage: Stage) -> dict[Workload, PriorVariance]:
    r"""Empirical Bayes: how large each component's coefficients are, judged by the noisy counts.

    Given :math:`\tau^2`, a cell of the residual has variance :math:`m^2 p \tau^2` plus that of the noise. A component's
    variance is log-normal around that of its order (left and right columns), which is log-normal around the default:
    two levels, integrated on a grid. Linear effects come after the others: they are log-normal around all linear
    effects of the order, which are around the order. The geometric mean is returned, which errs on the side of
    independence.
    """
    logs = np.log(GRID)
    member = np.exp(-0.5 * ((logs[:, None] - logs) / chosen.VARIANCES_DOUBT) ** 2)
    member /= member.sum(axis=1, keepdims=True)
    orders: dict[tuple[int, int], dict[bool, dict[Workload, FloatArray]]] = {}
    for beyond in stage.residuals():
        t, lines = beyond.component, stage.lines(beyond.component)
        found = orders.setdefault((len(t.left), len(t.right)), {False: {}, True: {}})
        margins = [stage.scene.margin[c].p for c in t.columns]
        strength = stage.links**2 * default_variance(t, stage.links)
        for linear in (True, False) if lines else (False,):
            found[linear][t] = coefficients(beyond, margins, lines, linear=linear).likelihood(strength)
    out: dict[bool, dict[Workload, float]] = {True: {}, False: {}}
    for found in orders.values():
        typical = np.exp(-0.5 * (logs / chosen.VARIANCES_DOUBT) ** 2)
        for linear in (False, True):
            posterior = np.log(typical)
            for likelihood in found[linear].values():
                posterior = posterior + np.log(member @ np.exp(likelihood) + 1e-300)
            order = np.exp(posterior - posterior.max())
            order /= order.sum()
            for t, likelihood in found[linear].items():
                own = member * np.exp(likelihood) + 1e-300
                weight = order @ (own / own.sum(axis=1, keepdims=True))
                out[linear][t] = default_variance(t, stage.links) * float(np.exp(weight @ logs))
            typical = order @ member  # of linear effects, before they are looked at
    return {t: PriorVariance(out[True].get(t, variance), variance) for t, variance in out[False].items()}


class Coefficients(NamedTuple):
    """Some coefficients of a component as the counts show them, with the variance of
    the noise and that of an effect of unit variance.

    ``freedom`` is the share of cells that tell something of their own.
    """

    table: FloatArray
    noise: FloatArray
    signal: FloatArray
    freedom: float

    def likelihood(self, strength: float) -> FloatArray:
        """Log likelihood of effects of ``strength`` times each multiple of the grid, the largest 0."""
        total = strength * self.signal[..., None] * GRID + self.noise[..., None]
        cells = -0.5 * np.log(total) - 0.5 * (self.table**2)[..., None] / total
        found = self.freedom * cells.reshape(-1, len(GRID)).sum(axis=0)
        return np.asarray(found - found.max())


def coefficients(
    beyond: Residual, margins: Sequence[FloatArray], lines: Mapping[int, FloatArray], *, linear: bool
) -> Coefficients:
    r"""Tell the linear coefficients of a component from the rest, or leave all together where no column is in order.

    With scores x along an axis in order, of mean 0 and variance 1 under its margin p, the linear part of a table n is
    :math:`p x \sum_w x_w n_w`. A sum by x does not notice that n was centred by :math:`I - p 1^T`, so with noise of
    variance 1 before that it has variance :math:`\sum_w x_w^2`; it shares :math:`p_v x_v (x_v - p_v \sum_w x_w)` with
    the noise :math:`1 - 2 p_v + N p_v^2` of a centred cell. Along several axes these are products.
    """
    signal = outer([p * (1 - p) for p in margins])
    if not lines:
        return Coefficients(beyond.table, beyond.variance, signal, beyond.freedom)
    scores = {a: q / np.sqrt(margins[a]) for a, q in lines.items()}

    def along_lines(of: Callable[[FloatArray, FloatArray], FloatArray]) -> FloatArray:
        return outer([of(p, scores[a]) if a in lines else np.ones(1) for a, p in enumerate(margins)])

    axes = tuple(lines)
    raw = beyond.variance / along_lines(lambda p, _: 1 - 2 * p + len(p) * p**2)
    sums = (along_lines(lambda _, x: x) * beyond.table).sum(axis=axes, keepdims=True)
    blur = (along_lines(lambda _, x: x**2) * raw).sum(axis=axes, keepdims=True)
    others = outer([np.ones(1) if a in lines else p * (1 - p) for a, p in enumerate(margins)])
    if linear:
        return Coefficients(sums, blur, others, beyond.freedom / math.prod(1 - 1 / len(margins[a]) for a in axes))
    line = along_lines(lambda p, x: p * x)
    shared = raw * along_lines(lambda p, x: p * x * (x - p * x.sum()))
    noise = np.maximum(beyond.variance - 2 * shared + line**2 * blur, _ROUNDING * beyond.variance)
    few = math.prod(1 / (len(margins[a]) - 1) for a in axes)
    return Coefficients(
        beyond.table - line * sums, noise, np.maximum(signal - line**2 * others, 0.0), beyond.freedom * (1 - few)
    )
