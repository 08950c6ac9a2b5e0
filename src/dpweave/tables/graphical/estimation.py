"""Estimation of a graphical model from noisy marginals: mirror descent with warm start and Anderson acceleration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpweave.tables.graphical.inference import Calibrated, Engine, Placement
from dpweave.tables.graphical.junction_tree import Variables, junction_tree
from dpweave.tables.graphical.sub_marginals import Projection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.arrays import FloatArray
    from dpweave.tables.base import BoolArray

MEMORY = 6
"""Steps that the acceleration looks back."""
PATIENCE = 5
"""Iterations over which progress is judged."""


@dataclass(frozen=True)
class Measurement:
    """Noisy counts over ``variables``; ``weight`` is one over the variance, per cell or for all cells."""

    variables: Variables
    counts: FloatArray
    weight: FloatArray | float

    def merged(self, other: Measurement) -> Measurement:
        """Both measurements of the same marginal as one, by inverse variance."""
        weight = self.weight + other.weight
        return Measurement(self.variables, (self.counts * self.weight + other.counts * other.weight) / weight, weight)


@dataclass(frozen=True)
class Zero:
    """Impossible combinations of ``variables``."""

    variables: Variables
    mask: BoolArray


@dataclass(frozen=True)
class Estimate:
    """Log-potentials per measured marginal, the distribution they make, and how the search for them ended."""

    potentials: Mapping[Variables, FloatArray]
    model: Calibrated
    loss: float
    iterations: int
    converged: bool


class Factors:
    """Potentials over given sets of variables, placed on a junction tree that holds them all, and zeros."""

    def __init__(self, sizes: Sequence[int], cliques: Sequence[Variables], zeros: Sequence[Zero]) -> None:
        everything = [*((v,) for v in range(len(sizes))), *cliques, *(zero.variables for zero in zeros)]
        self.engine = Engine(junction_tree(sizes, everything))
        tree = self.engine.tree
        hosts = [tree.host(clique) for clique in cliques]
        self._inside = [[i for i, host in enumerate(hosts) if host == c] for c in range(len(tree.cliques))]
        self._projections = [
            Projection(clique, [cliques[i] for i in inside], tree.sizes)
            for clique, inside in zip(tree.cliques, self._inside, strict=True)
        ]
        self._base = [np.zeros(shape) for shape in self.engine.shapes]
        for zero in zeros:
            host = tree.host(zero.variables)
            mask = Placement(zero.variables, tree.cliques[host], tree.sizes).spread(zero.mask)
            self._base[host] = np.where(mask, -np.inf, self._base[host])

    def calibrate(self, potentials: Sequence[FloatArray]) -> Calibrated:
        """The distribution proportional to the exponential of all ``potentials``, zero where a zero says so."""
        sums = [
            projection.spread(base, [potentials[i] for i in inside])
            for projection, base, inside in zip(self._projections, self._base, self._inside, strict=True)
        ]
        return self.engine.calibrate(sums)

    def gather(self, model: Calibrated) -> list[FloatArray]:
        """The model's marginal over each set of variables."""
        found: list[FloatArray] = [np.zeros(0)] * sum(map(len, self._inside))
        for projection, marginal, inside in zip(self._projections, model.marginals, self._inside, strict=True):
            for i, array in zip(inside, projection.gather(marginal), strict=True):
                found[i] = array
        return found


@dataclass(frozen=True)
class _Point:
    """Where the search stands: parameters, loss, its gradient by the marginals, the marginals."""

    theta: FloatArray
    loss: float
    gradient: FloatArray
    marginals: FloatArray
    model: Calibrated


class _Objective:
    r""":math:`L(\mu) = \tfrac12 \sum_r w_r \lVert N \mu_r - y_r \rVert^2` as a function of stacked log-potentials."""

    def __init__(
        self, sizes: Sequence[int], measurements: Sequence[Measurement], *, total: float, zeros: Sequence[Zero]
    ) -> None:
        self.factors = Factors(sizes, [m.variables for m in measurements], zeros)
        self.shapes = [m.counts.shape for m in measurements]
        self.ends = np.cumsum([m.counts.size for m in measurements], dtype=np.int64)
        self.target = np.concatenate([m.counts.ravel() / total for m in measurements])
        self.weight = np.concatenate([(_weight(m, zeros, sizes) * total**2).ravel() for m in measurements])

    def split(self, theta: FloatArray) -> list[FloatArray]:
        pieces = np.split(theta, self.ends[:-1])
        return [piece.reshape(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def at(self, theta: FloatArray) -> _Point:
        model = self.factors.calibrate(self.split(theta))
        marginals = np.concatenate([array.ravel() for array in self.factors.gather(model)])
        residual = marginals - self.target
        gradient = self.weight * residual
        return _Point(theta, 0.5 * float(gradient @ residual), gradient, marginals, model)


def _weight(measurement: Measurement, zeros: Sequence[Zero], sizes: Sequence[int]) -> FloatArray:
    """Weights per cell; none where a zero says that noise is all there is, so that it does not count as misfit."""
    weight = np.broadcast_to(np.asarray(measurement.weight, dtype=np.float64), measurement.counts.shape)
    for zero in zeros:
        if set(zero.variables) <= set(measurement.variables):
            mask = Placement(zero.variables, measurement.variables, sizes).spread(zero.mask)
            weight = np.where(mask, 0.0, weight)
    return weight


def estimate(
    sizes: Sequence[int],
    measurements: Sequence[Measurement],
    *,
    total: float,
    zeros: Sequence[Zero] = (),
    start: Mapping[Variables, FloatArray] | None = None,
    iterations: int = 300,
    tolerance: float = 1e-5,
) -> Estimate:
    r"""Maximum-entropy distribution whose marginals fit ``measurements`` best, in weighted least squares.

    Mirror descent with the entropy as mirror (McKenna, Sheldon, Miklau 2019) is :math:`\theta \leftarrow \theta - s
    \nabla L(\mu(\theta))`, where :math:`\mu` comes from sum-product: every iterate is a distribution of the model's
    family. The map is accelerated by Anderson's extrapolation over the last few steps, which saves some nine in ten
    iterations. A step that does not lower the loss is replaced by a plain one with backtracking, so the loss falls
    monotonically. It ends when five iterations lower it by less than ``tolerance`` of itself.
    """
    if not measurements:
        model = Factors(sizes, (), zeros).calibrate(())
        return Estimate({}, model, 0.0, 0, converged=True)
    objective = _Objective(sizes, measurements, total=total, zeros=zeros)
    theta = np.concatenate([_initial(m, start or {}, total).ravel() for m in measurements])
    point = objective.at(theta)
    step = 1.0 / float(objective.weight.max())
    moves: list[FloatArray] = []
    turns: list[FloatArray] = []
    losses = [point.loss]
    converged = False
    while len(losses) <= iterations and not converged:
        after = _extrapolated(objective, point, step, moves, turns) if moves else None
        if after is None:
            moves, turns = [], []
            after, step = _descended(objective, point, step)
            if after is None:
                converged = True
                break
        moves = [*moves[1 - MEMORY :], after.theta - point.theta]
        turns = [*turns[1 - MEMORY :], after.gradient - point.gradient]
        point = after
        losses.append(point.loss)
        if len(losses) > PATIENCE:
            converged = losses[-1 - PATIENCE] - point.loss <= tolerance * point.loss + 1e-9
    potentials = {m.variables: piece for m, piece in zip(measurements, objective.split(point.theta), strict=True)}
    return Estimate(potentials, point.model, point.loss, len(losses) - 1, converged)


def _initial(measurement: Measurement, start: Mapping[Variables, FloatArray], total: float) -> FloatArray:
    if measurement.variables in start:
        return start[measurement.variables]
    if start or len(measurement.variables) > 1:
        return np.zeros(measurement.counts.shape)
    floor = 1 / np.sqrt(np.asarray(measurement.weight))
    result: FloatArray = np.log(np.maximum(measurement.counts, floor) / total)
    return result


def _extrapolated(
    objective: _Objective, point: _Point, step: float, moves: Sequence[FloatArray], turns: Sequence[FloatArray]
) -> _Point | None:
    """Anderson's step: the combination of past moves that would cancel the gradient best, then a mirror step."""
    moved, turned = np.array(moves), np.array(turns)
    gram = turned @ turned.T
    gram[np.diag_indices_from(gram)] += 1e-10 * np.trace(gram) + np.finfo(float).tiny
    mix = np.linalg.solve(gram, turned @ point.gradient)
    if not np.isfinite(mix).all():
        return None
    after = objective.at(point.theta - mix @ moved - step * (point.gradient - mix @ turned))
    return after if after.loss < point.loss else None


def _descended(objective: _Objective, point: _Point, step: float) -> tuple[_Point | None, float]:
    """A mirror step, halved until it lowers the loss by half of what the gradient promises."""
    while step > 1e-300:
        after = objective.at(point.theta - step * point.gradient)
        promised = 0.5 * float(point.gradient @ (point.marginals - after.marginals))
        if promised <= 0 or not np.isfinite(after.loss):
            if not np.isfinite(after.loss):
                step /= 2
                continue
            return None, step
        if point.loss - after.loss >= promised:
            return after, 1.2 * step
        step /= 2
    return None, step
