r"""Do columns go together beyond chance? One statistic and one threshold, for certificate and report alike.

Let C be noisy counts over some columns, and :math:`p_c` the shares of the values of column c. What of the counts no
fewer columns explain is :math:`D = (\bigotimes_c A_c)\, C` with :math:`A_c = I - p_c 1^T`. Where columns do not go
together, D is the noise seen through the same matrices, so that its covariance K is known. Then :math:`D^T K^+ D` is
chi-squared with :math:`\prod_c (n_c - 1)` degrees of freedom, whether noise is even or shared between values. Along a
column with even noise, :math:`A^T (A A^T)^+ A = I - p p^T / \lVert p \rVert^2`.

**Shares** are those of the counts themselves where their total is far above its noise. Then what is left of the noise
in them is of second order. Else they are taken from elsewhere: the synthetic rows.

**Threshold.** Many sets of columns are looked at for one relation, and the best of many scores is high by chance. So
the level is that of all of them together (Šidák): in a hundred relations without any dependence, one has a set that is
said to stand out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpweave.arrays import FloatArray


@dataclass(frozen=True)
class Dependence:
    """``statistic`` is chi-squared with ``freedom`` degrees of freedom where columns do not go together."""

    statistic: float
    freedom: int

    @property
    def score(self) -> float:
        """The statistic as a standard normal quantity: its cube root is nearly normal (Wilson and Hilferty)."""
        spread = 2 / (9 * self.freedom)
        return (math.cbrt(self.statistic / self.freedom) - (1 - spread)) / math.sqrt(spread)

    @property
    def signal(self) -> float:
        """Variance of the true effect in units of the noise: 0 is noise alone."""
        return max(self.statistic / self.freedom - 1.0, 0.0)


def threshold(sets: int) -> float:
    """Score from which on one of so many sets of columns stands out.

    >>> [round(threshold(n), 2) for n in (1, 10, 100)]
    [2.33, 3.09, 3.72]
    """
    return -NormalDist().inv_cdf(-math.expm1(math.log1p(-chosen.LEVEL) / max(sets, 1)))


def dependence(
    counts: FloatArray, margins: Sequence[FloatArray], *, sigma: float | None = None, cover: FloatArray | None = None
) -> Dependence:
    """How far counts lie from what fewer of their columns would make them. Two values of each column are needed.

    ``margins`` are shares from elsewhere. Noise is even with scale ``sigma``, or has the covariance ``cover`` over the
    last cells, as many as it has rows, and is independent before them.

    >>> found = dependence(np.array([[60.0, 40.0], [40.0, 60.0]]), [np.full(2, 0.5)] * 2, sigma=2.0)
    >>> found.freedom, round(found.statistic, 2)
    (1, 100.0)
    """
    sizes = counts.shape
    cells = 1 if cover is None else len(cover)
    first = _axes_before(sizes, cells)
    noise = (sigma or 0.0) ** 2 if cover is None else float(cover.sum())
    whole = float(counts.sum())
    if chosen.USEFUL * whole > math.sqrt(max(counts.size // cells * noise, 0.0)):
        axes = range(len(sizes))
        margins = [counts.sum(axis=tuple(j for j in axes if j != i)) / whole for i in axes]
    rest = counts
    for axis, p in enumerate(margins[:first]):
        shares = p.reshape([-1 if i == axis else 1 for i in range(len(sizes))])
        rest = rest - shares * (shares * rest).sum(axis=axis, keepdims=True) / (p @ p)
    freedom = math.prod(n - 1 for n in sizes)
    if cover is None:
        return Dependence(float((rest**2).sum()) / noise, freedom)
    seen = _whitened(_kron([np.eye(len(p)) - p[:, None] for p in margins[first:]]), cover)
    rank = math.prod(n - 1 for n in sizes[first:])
    return Dependence(float(((rest.reshape(-1, cells) @ seen[-rank:].T) ** 2).sum()), freedom)


def _axes_before(sizes: Sequence[int], cells: int) -> int:
    """How many axes lie before the last ones that have so many cells together."""
    first = len(sizes)
    while math.prod(sizes[first:]) < cells:
        first -= 1
    return first


def _whitened(centring: FloatArray, cover: FloatArray) -> FloatArray:
    """What makes centred noise independent and of variance 1, in rows; the last ones span where it lies."""
    values, vectors = np.linalg.eigh(centring @ cover @ centring.T)
    return np.asarray(vectors.T @ centring / np.sqrt(np.maximum(values, 1e-300))[:, None])


def _kron(matrices: Sequence[FloatArray]) -> FloatArray:
    whole: FloatArray = np.ones((1, 1))
    for matrix in matrices:
        whole = np.asarray(np.kron(whole, matrix))
    return whole
