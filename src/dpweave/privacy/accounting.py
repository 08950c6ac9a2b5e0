r"""Zero-concentrated differential privacy: what a mechanism costs, how costs add, what they mean as (ε, δ).

Every function here rounds against us: a cost up, a limit down, a noise scale up. Sums are exact rationals
(a float is one), so adding a thousand charges loses nothing and a limit can be spent to its last digit.

Formal guarantees:
  - ``epsilon_of_rho`` returns a true ε for every ρ and δ it accepts, and ``rho_of_epsilon`` a ρ whose ε it confirms.
  - ``Budget.allows`` compares exact sums.
  - Nothing here sees a row.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from numbers import Real
from types import MappingProxyType
from typing import TYPE_CHECKING

from dpweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FLOAT_ERROR = 2.0**-48
"""Allowance for the rounding of a handful of float operations: 16 units in the last place of each term."""


def require_number(name: str, value: object, *, low: float, high: float = math.inf, closed: bool = False) -> float:
    """Return ``value`` if it is a finite number in ``(low, high)``, or in ``[low, high)`` if ``closed``."""
    number = math.nan
    if isinstance(value, Real) and not isinstance(value, bool | Fraction):
        with suppress(OverflowError):
            number = float(value)
    if not (low < number < high or (closed and number == low)):
        bounds = f"{'at least' if closed else 'greater than'} {low:g}"
        bounds += " and finite" if high == math.inf else f" and less than {high:g}"
        raise UsageError(f"{name} is {value!r}, but must be {bounds}; give such a number")
    return number


def round_up(value: Fraction) -> float:
    """Smallest float that is at least ``value``."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf
    return nearest if nearest >= value else math.nextafter(nearest, math.inf)


def round_down(value: Fraction) -> float:
    """Largest float that is at most ``value``."""
    return -round_up(-value)


def subtract(total: float, spent: float) -> float:
    """Return ``total - spent`` rounded down, and 0 where nothing is left."""
    return max(0.0, round_down(Fraction(total) - Fraction(spent)))


def epsilon_of_rho(rho: float, *, delta: float) -> float:
    r"""Smallest ε such that ρ-zCDP implies (ε, δ)-DP by the optimal conversion, rounded up.

    Canonne, Kamath and Steinke (2020, Corollary 13): for every :math:`\alpha > 1`, ρ-zCDP implies (ε, δ)-DP with

    .. math:: \delta = \frac{e^{(\alpha-1)(\alpha\rho-\varepsilon)}}{\alpha-1}\Bigl(1-\frac1\alpha\Bigr)^{\alpha}.

    Solved for ε with :math:`b = \alpha - 1` and :math:`L = \log(1/\delta)`:

    .. math:: \varepsilon(b) = (1+b)\rho + \frac{L - \log(1+b)}{b} - \log(1 + 1/b).

    Its derivative has the sign of :math:`G(b) = \rho b^2 + \log(1+b) - L`, which increases, so the minimum is the root
    of G. In :math:`x = \log b` G is convex and increasing, so Newton's method from a point with :math:`G \ge 0` falls
    to the root without overshooting. Every b is valid: an inexact root costs accuracy, never truth.

    >>> round(epsilon_of_rho(0.1, delta=1e-6), 4)
    2.1419
    """
    rho = require_number("rho", rho, low=0, high=1e300, closed=True)
    delta = require_number("delta", delta, low=0, high=1)
    if rho == 0:
        return 0.0
    log_delta = -math.log(delta)
    x = min(log_delta, 0.5 * (math.log(log_delta) - math.log(rho)))  # either choice alone makes G >= 0
    for _ in range(40):
        b = math.exp(x)
        step = (rho * b * b + math.log1p(b) - log_delta) / (2 * rho * b * b + b / (1 + b))
        x -= step
        if step < 1e-9:
            break
    b = math.exp(x)
    terms = ((1 + b) * rho, log_delta / b, -math.log1p(b) / b, -math.log1p(1 / b))
    return max(0.0, sum(terms) + FLOAT_ERROR * sum(map(abs, terms)))


def rho_of_epsilon(epsilon: float, *, delta: float) -> float:
    """Largest ρ, up to 1e-12 of itself, whose ``epsilon_of_rho`` is at most ``epsilon``.

    Bisection on the very function that will certify the result, so the two can never disagree. 0 if no float fits.

    >>> epsilon_of_rho(rho_of_epsilon(1.0, delta=1e-6), delta=1e-6) <= 1.0
    True
    """
    epsilon = require_number("epsilon", epsilon, low=0, high=1e6)
    delta = require_number("delta", delta, low=0, high=1)
    high = 1.0
    while epsilon_of_rho(high, delta=delta) <= epsilon:
        high *= 2
    low = high / 2
    while epsilon_of_rho(low, delta=delta) > epsilon:
        high, low = low, low / 2
    while low > 0 and high - low > 1e-13 * high:
        middle = (low + high) / 2
        if epsilon_of_rho(middle, delta=delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low


def gaussian_rho(sensitivity: float, sigma: float) -> float:
    r"""Cost :math:`\Delta_2^2 / (2\sigma^2)` of discrete Gaussian noise, rounded up (CKS 2020, Theorem 4)."""
    delta_2 = Fraction(require_number("sensitivity", sensitivity, low=0, closed=True))
    scale = Fraction(require_number("scale", sigma, low=0))
    return round_up((delta_2 / scale) ** 2 / 2)


def gaussian_sigma(sensitivity: float, rho: float) -> float:
    """Smallest noise scale, up to rounding, with ``gaussian_rho(sensitivity, sigma) <= rho``.

    >>> gaussian_sigma(3.0, 0.5)
    3.0
    """
    require_number("sensitivity", sensitivity, low=0)
    require_number("rho", rho, low=0)
    sigma = sensitivity / math.sqrt(rho) / math.sqrt(2) * (1 - FLOAT_ERROR)
    if not 0 < sigma < math.inf:
        raise UsageError(f"no float is a noise scale for sensitivity {sensitivity:g} and rho {rho:g}; raise rho")
    while gaussian_rho(sensitivity, sigma) > rho:
        sigma = math.nextafter(sigma, math.inf)
    return sigma


def declared_rho(epsilon: float) -> float:
    r"""Cost :math:`\varepsilon^2/2`, beside δ, of a mechanism of which (ε, δ)-DP is all that is known, rounded up.

    Its outputs on neighbours are those of a mechanism that tells all with probability δ and is ε-DP otherwise (Kairouz,
    Oh and Viswanath 2015), and ε-DP is :math:`\varepsilon^2/2`-zCDP: it is δ-approximately :math:`\varepsilon^2/2`-zCDP
    (Bun and Steinke 2016, section 8). Such costs compose as ours do: ρ adds up, and so does δ.
    """
    return round_up(Fraction(require_number("epsilon", epsilon, low=0, high=1e100, closed=True)) ** 2 / 2)


def selection_rho(sensitivity: float, scale: float) -> float:
    r"""Cost of one choice with :math:`P \propto e^{\text{score}/s}`, rounded up.

    Scores that move by at most D each, up or down, change the log odds of any two candidates by at most
    :math:`\varepsilon = 2D/s`, which is :math:`\varepsilon^2/8 = D^2/(2s^2)` zCDP (Cesar and Rogers 2021: a range
    bounded by ε costs ε²/8).
    """
    return gaussian_rho(sensitivity, scale)


def selection_scale(sensitivity: float, rho: float) -> float:
    """Smallest scale, up to rounding, with ``selection_rho(sensitivity, scale) <= rho``."""
    return gaussian_sigma(sensitivity, rho)


def split(total: float, weights: Sequence[float]) -> tuple[float, ...]:
    """Shares of ``total`` in proportion to ``weights``; their exact sum is at most ``total``.

    >>> split(1.0, [1, 1, 2])
    (0.25, 0.25, 0.5)
    """
    whole = Fraction(require_number("total", total, low=0, closed=True))
    parts = [Fraction(require_number("weight", w, low=0, closed=True)) for w in weights]
    if not sum(parts):
        raise UsageError(f"{len(parts)} weights add up to 0, but a split needs a positive sum; give a positive weight")
    return tuple(round_down(whole * part / sum(parts)) for part in parts)


Exact = tuple["Mapping[str, Fraction]", "Mapping[str, Fraction]"]


@dataclass(frozen=True)
class Cost:
    """What an event costs each protected table: ρ of zCDP and δ. A table that is not named pays nothing.

    ``rho`` and ``delta`` are floats, rounded up; ``exact`` holds the rationals they round, and addition is exact.

    >>> (Cost({"users": 0.1}, {}) + Cost({"users": 0.2}, {"users": 1e-7})).rho["users"]
    0.30000000000000004
    """

    rho: Mapping[str, float]
    delta: Mapping[str, float]
    exact: Exact = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for kind, amounts in (("rho", self.rho), ("delta", self.delta)):
            clean = {t: require_number(f"{kind} of table {t!r}", x, low=0, closed=True) for t, x in amounts.items()}
            object.__setattr__(self, kind, MappingProxyType(clean))
        exact = tuple({t: Fraction(x) for t, x in amounts.items()} for amounts in (self.rho, self.delta))
        object.__setattr__(self, "exact", exact)

    @classmethod
    def zero(cls) -> Cost:
        """Cost of doing nothing."""
        return cls({}, {})

    @property
    def tables(self) -> tuple[str, ...]:
        """Tables that pay something, sorted."""
        return tuple(sorted({t for amounts in (self.rho, self.delta) for t, x in amounts.items() if x > 0}))

    def __add__(self, other: Cost) -> Cost:
        sums = tuple(
            {t: a.get(t, Fraction()) + b.get(t, Fraction()) for t in a.keys() | b.keys()}
            for a, b in zip(self.exact, other.exact, strict=True)
        )
        result = Cost(*({t: round_up(x) for t, x in amounts.items()} for amounts in sums))
        object.__setattr__(result, "exact", sums)
        return result


@dataclass(frozen=True)
class Budget:
    """The limit for every protected table: its ρ and its δ, each spent separately."""

    rho: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        require_number("rho of the budget", self.rho, low=0, closed=True)
        require_number("delta of the budget", self.delta, low=0, high=1, closed=True)

    def exceeded(self, spent: Cost) -> tuple[str, ...]:
        """Tables that have spent more than the limit, sorted; exact."""
        pairs = zip(spent.exact, (self.rho, self.delta), strict=True)
        return tuple(sorted({table for amounts, limit in pairs for table, x in amounts.items() if x > limit}))

    def allows(self, spent: Cost) -> bool:
        """Whether no table has spent more than the limit; exact."""
        return not self.exceeded(spent)

    def left(self, table: str, *, spent: Cost) -> Budget:
        """What ``table`` may still spend, rounded down."""
        return Budget(subtract(self.rho, spent.rho.get(table, 0.0)), subtract(self.delta, spent.delta.get(table, 0.0)))


def together(guarantees: Sequence[tuple[float, float]]) -> tuple[float, float]:
    r"""(ε, δ) for whoever has a row in each of several protected tables: they may be taken out one after the other.

    Each step multiplies what is left by :math:`e^{\varepsilon_i}` and adds :math:`\delta_i`,
    so :math:`\varepsilon = \sum_i \varepsilon_i` and :math:`\delta = \sum_i \delta_i
    e^{\varepsilon_1 + \dots + \varepsilon_{i-1}}`, the smallest ε first. Rounded up.
    """
    if not all(math.isfinite(e) for e, _ in guarantees):
        return math.inf, 1.0
    epsilon, delta = Fraction(0), 0.0
    for e, d in sorted(guarantees):
        delta += d * math.exp(min(round_up(epsilon), 700.0))
        epsilon += Fraction(e)
    return round_up(epsilon), min(delta * (1 + FLOAT_ERROR), 1.0)
