r"""The only privacy randomness: integer Gaussian noise, noisy-max selection, and private partition selection.

``SecureNoise`` draws exactly, in rational arithmetic, with OpenDP and the randomness of the operating system.
``InsecureNoise`` draws the same laws from a seeded float generator; it exists so that tests can be repeated.

Formal guarantees (secure source; Δ is the sensitivity of what the caller passes):
  - ``discrete_gaussian``: :math:`\Delta_2^2/(2\sigma^2)`-zCDP (Canonne, Kamath and Steinke 2020, Theorem 4).
  - ``noisy_max``: :math:`\Delta_\infty^2/(2s^2)`-zCDP; scores may move either way, monotonicity is never claimed.
  - ``threshold_counts``: ``threshold_delta``-approximate :math:`\Delta_2^2/(2\sigma^2)`-zCDP.
  - Errors depend on scales, thresholds and lengths alone, never on a count or a score.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from dpweave.errors import DpweaveError, UsageError
from dpweave.privacy.accounting import gaussian_rho, require_number, selection_rho

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.arrays import IntArray

SMALLEST_SCALE, LARGEST_SCALE = 2.0**-50, 2.0**50
"""The largest noise passes 2**62 with a probability below exp(-2**23), so counts and noise never leave int64."""

SERIES = 4096
"""Terms of a Gaussian series that are summed one by one before an integral bounds the rest."""


class NoiseSource(ABC):
    """Where noise comes from. Two final implementations: secure, and seeded for tests."""

    insecure: ClassVar[bool]

    @abstractmethod
    def discrete_gaussian(self, counts: IntArray, *, sigma: float) -> IntArray:
        r"""Add independent noise with :math:`P(x) \propto e^{-x^2/(2\sigma^2)}` on the integers to every cell."""

    @abstractmethod
    def noisy_max(self, scores: Sequence[float], *, scale: float) -> int:
        r"""Draw position i with :math:`P(i) \propto e^{\text{scores}_i/\text{scale}}`."""

    @final
    def threshold_counts(self, counts: Mapping[str, int], *, sigma: float, threshold: int) -> dict[str, int]:
        """Noisy counts of the categories whose noisy count reaches ``threshold``, in alphabetical order.

        A category whose count is not positive is as good as absent, so that the result's law depends on rows alone.
        The threshold is applied here and not by OpenDP's ``make_gaussian_threshold``, whose map leaves the probability
        at the threshold itself out of its delta (opendp/opendp#2922).
        """
        present = sorted(name for name, count in counts.items() if count > 0)
        noisy = self.discrete_gaussian(np.array([counts[name] for name in present], dtype=np.int64), sigma=sigma)
        return {name: int(count) for name, count in zip(present, noisy, strict=True) if count >= threshold}


@final
class SecureNoise(NoiseSource):
    """Exact samplers of OpenDP, seeded by the operating system."""

    insecure = False

    def discrete_gaussian(self, counts: IntArray, *, sigma: float) -> IntArray:
        """See ``NoiseSource``."""
        sampler = _secure_gaussian(require_scale("sigma", sigma))
        return np.array(sampler(counts.ravel().tolist()), dtype=np.int64).reshape(counts.shape)

    def noisy_max(self, scores: Sequence[float], *, scale: float) -> int:
        """See ``NoiseSource``."""
        _require_candidates(scores)
        return int(_secure_noisy_max(require_scale("scale", scale))([float(score) for score in scores]))


@final
class InsecureNoise(NoiseSource):
    """The same laws from a seeded generator of floats: for tests, never for a release."""

    insecure = True

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def discrete_gaussian(self, counts: IntArray, *, sigma: float) -> IntArray:
        r"""See ``NoiseSource``.

        Rejection (Canonne et al. 2020, Algorithm 3): propose y from :math:`P(y) \propto e^{-|y|/t}`, the difference
        of two geometric variables, and keep it with probability :math:`e^{-(|y| - \sigma^2/t)^2/(2\sigma^2)}`.
        """
        sigma = require_scale("sigma", sigma)
        scale = math.floor(sigma) + 1
        noise = np.empty(0, dtype=np.int64)
        while noise.size < counts.size:
            draws = self.rng.geometric(-math.expm1(-1 / scale), size=(2, 2 * counts.size + 16))
            y = draws[0] - draws[1]
            keep = np.exp(-((np.abs(y) - sigma * sigma / scale) ** 2) / (2 * sigma * sigma))
            noise = np.concatenate([noise, y[self.rng.random(y.size) < keep]])
        return np.asarray(counts + noise[: counts.size].reshape(counts.shape), dtype=np.int64)

    def noisy_max(self, scores: Sequence[float], *, scale: float) -> int:
        """See ``NoiseSource``; the maximum of scores with Gumbel noise has this law."""
        _require_candidates(scores)
        noise = self.rng.gumbel(scale=require_scale("scale", scale), size=len(scores))
        return int(np.argmax(np.asarray(scores, dtype=np.float64) + noise))


def threshold_delta(sigma: float, threshold: int, *, l0: int, linf: int) -> float:
    r"""Return δ of ``threshold_counts`` for a unit that moves up to ``l0`` categories by up to ``linf`` rows each.

    Proof. Let x, x' be neighbours and S the categories present in x alone: at most ``l0``, each of count at most
    ``linf``. A category of S is released with probability at most :math:`p = P(N \ge k)`, k = threshold - linf, and
    some category of S with probability at most :math:`\delta = l_0 p` (union bound). Given that none is, the output on
    x is the thresholded noisy counts of the common categories, because noise is independent between categories; the
    same holds with x and x' swapped. Those two differ by a change of the common counts alone, which costs ρ.
    So the mechanism is δ-approximate ρ-zCDP (Bun and Steinke 2016, Definition 8.1). ∎

    With :math:`g(j) = e^{-j^2/(2\sigma^2)}`, :math:`p = \sum_{j\ge k} g(j) / \sum_j g(j)`. For k > 0 the terms past
    ``SERIES`` are bounded by the first of them plus the integral of the decreasing g. The denominator is at least any
    partial sum and, by Poisson summation, at least :math:`\sigma\sqrt{2\pi}`. Result rounded up, never 0.
    """
    sigma = require_scale("sigma", sigma)
    require_number("l0", l0, low=1, closed=True)
    require_number("linf", linf, low=1, closed=True)
    k = threshold - linf
    if k <= 0:
        return 1.0
    rest = (k + SERIES) / sigma
    tail = _gaussian_terms(k, sigma) + math.exp(-rest * rest / 2)
    tail += sigma * math.sqrt(math.pi / 2) * math.erfc(rest / math.sqrt(2))
    whole = max(sigma * math.sqrt(2 * math.pi), 1 + 2 * _gaussian_terms(1, sigma))
    return min(1.0, l0 * (tail / whole * (1 + 1e-9) + 1e-300))


def threshold_for(delta: float, sigma: float, *, l0: int, linf: int) -> int:
    """Smallest threshold above ``linf`` whose ``threshold_delta`` is at most ``delta``.

    >>> threshold_for(1e-6, 2.0, l0=1, linf=1)
    11
    """
    require_number("delta", delta, low=0, high=1)
    if delta < 1e-290:
        raise UsageError(f"delta is {delta:g}, but a threshold needs at least 1e-290; give a larger delta")
    low, high = linf, linf + 1  # at linf delta is 1
    while threshold_delta(sigma, high, l0=l0, linf=linf) > delta:
        low, high = high, linf + 2 * (high - linf)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if threshold_delta(sigma, middle, l0=l0, linf=linf) <= delta else (middle, high)
    return high


def _gaussian_terms(start: int, sigma: float) -> float:
    """Sum of ``SERIES`` terms exp(-j²/2σ²) from ``start`` on."""
    steps = np.arange(start, start + SERIES, dtype=np.float64) / sigma
    return float(np.exp(-steps * steps / 2).sum())


def require_scale(name: str, value: float) -> float:
    """Refuse a scale that no sampler here can draw with; to be asked before a charge."""
    return require_number(name, value, low=SMALLEST_SCALE, high=LARGEST_SCALE)


def _require_candidates(scores: Sequence[float]) -> None:
    if len(scores) == 0:
        raise UsageError("a choice has 0 candidates, but needs at least 1; give some")


@lru_cache(maxsize=256)
def _secure_gaussian(sigma: float) -> Any:
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    return _checked(dp.m.make_gaussian(*space, scale=sigma), claim=gaussian_rho(1.0, sigma))


@lru_cache(maxsize=256)
def _secure_noisy_max(scale: float) -> Any:
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float)
    return _checked(
        dp.m.make_noisy_max(*space, dp.zero_concentrated_divergence(), scale=scale), claim=selection_rho(1.0, scale)
    )


def _checked(measurement: Any, *, claim: float) -> Any:
    """Return ``measurement`` if OpenDP's own map for sensitivity 1 confirms what the ledger will be charged."""
    proven = measurement.map(1.0)
    if not proven <= claim * (1 + 1e-9):
        raise DpweaveError(f"OpenDP proves rho {proven:g} where {claim:g} would be charged; install another version")
    return measurement


def _opendp() -> Any:
    """Return the parts of OpenDP that are used; its prelude would import scikit-learn wherever that is installed."""
    from opendp import domains, measurements, measures, metrics
    from opendp.mod import enable_features

    enable_features("contrib")
    return SimpleNamespace(
        m=measurements,
        atom_domain=domains.atom_domain,
        vector_domain=domains.vector_domain,
        l2_distance=metrics.l2_distance,
        linf_distance=metrics.linf_distance,
        zero_concentrated_divergence=measures.zero_concentrated_divergence,
    )
