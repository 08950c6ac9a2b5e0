r"""Projected gradient descent for the relaxed problem (paper, `sec::proj_grad_desc`, `alg::relaxed_optimization`).

Minimise :math:`f(b) = \lVert \hat{\mathbf Q} b / m - \hat a \rVert_2^2` over a convex set, on pairs of row types. All
inner products weigh a pair of types by its multiplicity, so every number here equals that of the expanded problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpweave.errors import UsageError

if TYPE_CHECKING:
    from dpweave.arrays import FloatArray
    from dpweave.links.row_types import LinkOperator


class FeasibleSet(Protocol):
    r"""A convex set :math:`\Omega` of weighted bi-adjacency matrices over pairs of types."""

    def project(self, b: FloatArray, near: FloatArray | None = None) -> FloatArray:
        """Nearest point of the set. ``near`` is one of its points that it may be near
        to: it saves time, nothing else.
        """
        ...

    def extreme(self, gradient: FloatArray) -> FloatArray:
        """A point where the inner product with ``gradient`` is least, over the set or one that contains it."""
        ...

    def centre(self) -> FloatArray:
        """A point of the set that prefers no pair: links at random."""
        ...


@dataclass(frozen=True)
class SingularValue:
    """Largest singular value with the relative change of the last step."""

    value: float
    iterations: int
    change: float


def largest_singular_value(operator: LinkOperator, *, iterations: int = 500, tolerance: float = 1e-13) -> SingularValue:
    r""":math:`\sigma_{\max}(\hat{\mathbf Q})` of the expanded matrix by power iteration (`alg::relaxed_optimization`).

    The matrix has no negative entry, so its leading right singular vector has none either, and starting from a positive
    vector cannot miss it: no random start is needed.
    """
    weight = operator.multiplicity
    v = np.ones(operator.shape)
    value, change = 0.0, np.inf
    for step in range(1, iterations + 1):
        norm = float(np.sqrt((weight * v * v).sum()))
        if norm == 0.0:
            return SingularValue(0.0, step, 0.0)
        v = operator.adjoint(operator.apply(v / norm))
        before, value = value, float(np.sqrt(np.sqrt((weight * v * v).sum())))
        change = abs(value - before) / max(value, 1e-300)
        if change <= tolerance:
            return SingularValue(value, step, change)
    return SingularValue(value, iterations, change)


@dataclass(frozen=True)
class Relaxed:
    r"""A weighted bi-adjacency matrix, one value per pair of types.

    ``gap`` bounds how far ``objective`` is from the optimum: by convexity
    :math:`f(b) - f^* \le \max_{x \in \Omega} \langle \nabla f(b), b - x \rangle`.
    """

    value: FloatArray
    objective: float
    gap: float
    step: float
    iterations: int
    converged: bool


def descend(
    operator: LinkOperator,
    answers: FloatArray,
    feasible: FeasibleSet,
    *,
    links: float,
    iterations: int = 100,
    tolerance: float = 0.0,
    start: FloatArray | None = None,
    accelerate: bool = False,
) -> Relaxed:
    r"""Minimise :math:`\lVert \hat{\mathbf Q} b / m - \hat a \rVert^2` over ``feasible`` (`alg::relaxed_optimization`).

    The step is :math:`\eta = \frac12 (m / \sigma_{\max})^2` and the rate :math:`f(b_T) - f^* \le C / T` with
    :math:`C = 3 \lVert b_0 - b^* \rVert^2 / \eta + f(b_0) - f^*` (`thm::convergence`). With ``accelerate`` the step
    starts from an extrapolated point (Nesterov; momentum is dropped whenever it points uphill), for problems that are
    solved whole rather than in slices. Stops early once ``gap`` <= ``tolerance``, which is looked at now and then.

    ``answers`` are frequencies stacked by :meth:`LinkOperator.stack`, ``links`` is m. Starts from the set's
    centre unless ``start`` is given.
    """
    if links <= 0:
        raise UsageError(f"links = {links}: the relaxed problem needs at least one link")
    sigma = largest_singular_value(operator, iterations=100, tolerance=1e-8).value
    # Power iteration comes from below; the margin keeps the step at or under 1/L.
    step = 0.5 * (links / (sigma * (1 + 1e-7))) ** 2 if sigma > 0.0 else 0.0
    target = answers * operator.mask
    b = feasible.project(feasible.centre() if start is None else start)
    ahead, momentum = b, 1.0
    done = 0
    for done in range(1, iterations + 1):
        gradient = _gradient(operator, ahead, target, links)
        moved = feasible.project(ahead - step * gradient, b)
        if accelerate:
            uphill = float((operator.multiplicity * gradient * (moved - b)).sum()) > 0.0
            momentum = 1.0 if uphill else momentum
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
            ahead = moved + ((momentum - 1.0) / following) * (moved - b)
            momentum = following
        else:
            ahead = moved
        b = moved
        if tolerance > 0.0 and done % 50 == 0 and _gap(operator, feasible, b, target, links) <= tolerance:
            break
    gap = _gap(operator, feasible, b, target, links)
    residual = operator.apply(b) / links - target
    return Relaxed(b, float((residual**2).sum()), gap, step, done, gap <= tolerance)


def _gradient(operator: LinkOperator, b: FloatArray, target: FloatArray, links: float) -> FloatArray:
    r""":math:`\nabla f(b) = \frac2m \hat{\mathbf Q}^T (\frac1m \hat{\mathbf Q} b - \hat a)` (`eq::relaxed_grad`)."""
    return operator.adjoint(operator.apply(b) / links - target) * (2.0 / links)


def _gap(operator: LinkOperator, feasible: FeasibleSet, b: FloatArray, target: FloatArray, links: float) -> float:
    gradient = _gradient(operator, b, target, links)
    return max(float((operator.multiplicity * gradient * (b - feasible.extreme(gradient))).sum()), 0.0)
