"""Estimation by mbi, on JAX: the same problem as :mod:`estimation`, for models too large for our own engine.

Ours holds several copies of all factors at once. mbi's mirror descent is compiled and holds fewer. What it returns, one
log-potential per clique, is calibrated once by our engine, so predictions and rows come from there as ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.tables.graphical.estimation import Estimate, Factors, Measurement, Zero

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpweave.tables.graphical.junction_tree import Variables


def estimate_large(
    sizes: Sequence[int],
    measurements: Sequence[Measurement],
    *,
    total: float,
    zeros: Sequence[Zero] = (),
    iterations: int = 1000,
) -> Estimate:
    """Do what :func:`~dpweave.tables.graphical.estimation.estimate` does, by mbi's
    mirror descent in double precision.
    """
    import jax
    import mbi
    from mbi import estimation

    with jax.enable_x64(True):
        domain = mbi.Domain([str(v) for v in range(len(sizes))], tuple(sizes))
        given = [_linear(mbi, m) for m in measurements]
        constraints = tuple(
            mbi.Constraint(domain=domain.project(_names(z.variables)), invalid=np.argwhere(z.mask))
            for z in zeros
            if z.mask.any()
        )
        model = estimation.MirrorDescent().estimate(
            domain, given, known_total=total, iters=iterations, constraints=constraints
        )
        potentials = {
            tuple(int(v) for v in clique): np.array(model.potentials.tables[clique].values, dtype=np.float64)
            for clique in model.potentials.cliques
        }
    factors = Factors(sizes, list(potentials), zeros)
    calibrated = factors.calibrate([array.copy() for array in potentials.values()])
    loss = sum(
        0.5 * float((m.weight * (total * calibrated.marginal(m.variables) - m.counts) ** 2).sum()) for m in measurements
    )
    return Estimate(potentials, calibrated, loss, iterations, converged=True)


def _names(variables: Variables) -> tuple[str, ...]:
    return tuple(str(v) for v in variables)


def _linear(mbi: Any, measurement: Measurement) -> Any:
    """Measurement as mbi writes it, each cell divided by its standard deviation."""
    root = np.sqrt(np.broadcast_to(np.asarray(measurement.weight), measurement.counts.shape)).ravel()

    def scaled(factor: Any) -> Any:
        return factor.datavector() * root

    return mbi.LinearMeasurement(
        measurement.counts.ravel() * root, _names(measurement.variables), stddev=1.0, query=scaled
    )
