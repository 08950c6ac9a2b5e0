"""Noisy counts next to the copy, with their error. What they say is read by :mod:`dpweave.measure.estimates`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen

if TYPE_CHECKING:
    from dpweave.arrays import BoolArray, FloatArray, IntArray
    from dpweave.measure.estimates import Estimate

    Margins = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class Distribution:
    """One column, or the degrees of a relation: how often each code occurs in the copy, and in the noisy counts."""

    name: str
    kind: str
    labels: tuple[str, ...]
    ordered: bool
    synthetic: IntArray
    measured: Estimate | None
    total: float | None
    """Noisy number of rows, where it was measured on its own."""
    total_sigma: float = math.inf
    open_ended: bool = False
    """Whether codes at the upper end may all be empty, as those of large degrees are."""

    @cached_property
    def synthetic_shares(self) -> FloatArray:
        """Share of the copy's rows in each code."""
        return np.asarray(self.synthetic / max(int(self.synthetic.sum()), 1), dtype=np.float64)

    @cached_property
    def _whole(self) -> tuple[float, float, float]:
        """Number of rows from the size that was measured and from the cells' own sum:
        value, variance, weight of the sum.
        """
        assert self.measured is not None
        own = 1 / self.measured.whole_variance
        size = (
            0.0 if self.total is None or not math.isfinite(self.total_sigma) else 1 / max(self.total_sigma, 1e-9) ** 2
        )
        value = (own * float(self.measured.counts.sum()) + size * (self.total or 0.0)) / (own + size)
        return value, 1 / (own + size), own / (own + size)

    @cached_property
    def measured_shares(self) -> FloatArray | None:
        """Noisy share of rows in each code; noise may make it negative."""
        if self.measured is None or self._whole[0] <= 0:
            return None
        return np.asarray(self.measured.counts / self._whole[0], dtype=np.float64)

    @cached_property
    def band(self) -> FloatArray:
        r"""Two standard deviations of each measured share :math:`x_i / T`, to first order.

        :math:`\operatorname{var} = (\sigma_i^2 - 2 p_i w c_i + p_i^2 \operatorname{var} T) / T^2`, where w is the
        weight that the sum of the cells has in the total T, and :math:`c_i` the covariance of a cell with that sum.
        """
        shares = self.measured_shares
        if self.measured is None or shares is None:
            return np.zeros(len(self.labels))
        whole, variance, weight = self._whole
        p = np.clip(shares, 0.0, 1.0)
        noise = self.measured.covariance
        squares = noise.diagonal() - 2 * p * weight * noise.sum(axis=1) + p**2 * variance
        return np.asarray(2 * np.sqrt(np.maximum(squares, 0.0)) / whole, dtype=np.float64)

    @cached_property
    def clear(self) -> BoolArray:
        """Codes of which the measurement says something: the band is no wider than the share it is about."""
        shares = self.measured_shares
        if shares is None:
            return np.zeros(len(self.labels), dtype=np.bool_)
        return np.asarray(self.band <= np.maximum(np.abs(shares), self.synthetic_shares), dtype=np.bool_)

    @property
    def agreeing(self) -> int:
        """Number of codes on which copy and measurement agree."""
        return int(self.agree.sum())

    @cached_property
    def agree(self) -> BoolArray:
        r"""Codes on which copy and measurement agree as well as chance lets them.

        A gap may be twice :math:`\sqrt{\sigma^2/N^2 + p(1-p)/n}`: the noise of
        measuring over N rows, and that of drawing the n rows of the copy.
        """
        shares = self.measured_shares
        if shares is None:
            return np.zeros(len(self.labels), dtype=np.bool_)
        drawn = self.synthetic_shares * (1 - self.synthetic_shares) / max(int(self.synthetic.sum()), 1)
        allowed = np.sqrt(self.band**2 + 4 * drawn)
        return np.asarray(np.abs(shares - self.synthetic_shares) <= allowed, dtype=np.bool_)

    @property
    def last(self) -> int:
        """Number of codes up to the last that holds rows, where the domain is open-ended; else all."""
        if not self.open_ended:
            return len(self.labels)
        holds = self.synthetic > 0
        if self.measured is not None:
            holds = holds | (self.measured.counts > 3 * self.measured.sigma)
        return min(int(np.flatnonzero(holds).max(initial=0)) + 2, len(self.labels))


@dataclass(frozen=True)
class Pair:
    """Two columns on different sides of a relation, counted over its links."""

    left: str
    right: str
    left_labels: tuple[str, ...]
    right_labels: tuple[str, ...]
    measured: Estimate
    synthetic: FloatArray
    evidence: float = 0.0
    """Standard deviations by which the measured dependence passes what noise alone gives, as the certificate has it."""
    stands_out: bool = False
    """Whether the certificate says that the noisy counts show a dependence at all."""

    @cached_property
    def margins(self) -> Margins:
        """Shares of links by either column: as measured where that is far above its noise, else the copy's."""
        known = chosen.USEFUL * float(self.measured.counts.sum()) > math.sqrt(self.measured.whole_variance)
        return margins(self.measured.counts if known else self.synthetic)

    @cached_property
    def measured_excess(self) -> FloatArray:
        """Share of links beyond independence, from the noisy counts."""
        return excess(self.measured.counts, self.margins) / max(float(self.measured.counts.sum()), 1.0)

    @cached_property
    def synthetic_excess(self) -> FloatArray:
        """Share of links beyond independence, in the copy."""
        return excess(self.synthetic, margins(self.synthetic)) / max(float(self.synthetic.sum()), 1.0)

    @property
    def noise(self) -> float:
        """One standard deviation of a measured share of links."""
        return self.measured.sigma / max(float(self.measured.counts.sum()), 1.0)

    @property
    def kept(self) -> float:
        r"""Slope of the copy's excess on the measured one, :math:`\langle s, x \rangle / \langle x, x \rangle`.

        Noise makes :math:`\langle x, x \rangle` larger by its own expected square, which is taken off.
        """
        x, s = self.measured_excess, self.synthetic_excess
        own = (
            float((x * x).sum())
            - noise_moments(self.measured, self.margins)[0] / max(self.measured.counts.sum(), 1.0) ** 2
        )
        return float((x * s).sum()) / own if own > 0 else float("nan")


def margins(counts: FloatArray) -> Margins:
    """Shares by row and by column; even ones where there is nothing."""
    total = float(counts.sum())
    rows, columns = counts.shape
    if total <= 0:
        return np.full(rows, 1 / rows), np.full(columns, 1 / columns)
    return np.asarray(counts.sum(axis=1) / total), np.asarray(counts.sum(axis=0) / total)


def excess(counts: FloatArray, of: Margins) -> FloatArray:
    r"""Return :math:`D = A_p C A_q^T` with :math:`A_p = I - p \mathbf{1}^T`: what of the counts no margins explain.

    Of counts with total N and shares p, q of their own that is :math:`C_{ij} - N p_i q_j`.
    """
    a, b = (_centring(share) for share in of)
    return np.asarray(a @ counts @ b.T, dtype=np.float64)


def noise_moments(measured: Estimate, of: Margins) -> tuple[float, float]:
    r"""Mean and standard deviation of :math:`\sum_{ij} D_{ij}^2` under independence, D being the excess count.

    D is then the noise E seen through :math:`D = A_p E A_q^T` (to first order, where p and q are those of the noisy
    counts). Rows of E are independent with covariance :math:`\Sigma`, so the sum is a quadratic form in normals: mean
    :math:`\operatorname{tr} A_p A_p^T \operatorname{tr} A_q \Sigma A_q^T`, variance :math:`2 \|A_p A_p^T\|_F^2 \|A_q
    \Sigma A_q^T\|_F^2`.
    """
    a, b = (_centring(share) for share in of)
    mean, variance = 1.0, 2.0
    for gram in (a @ a.T, b @ measured.covariance @ b.T):
        mean *= float(np.trace(gram))
        variance *= float((gram * gram).sum())
    return mean, math.sqrt(variance)


def _centring(share: FloatArray) -> FloatArray:
    return np.asarray(np.eye(len(share)) - share[:, None])
