"""Columns that follow from others: what they follow to, from noisy counts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import erfcx, log_ndtr

from dpweave.links.relaxed.projections import project_capped_simplex
from dpweave.tables.base import Dependency
from dpweave.tables.reduction import forbidden

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpweave.arrays import FloatArray
    from dpweave.privacy.window import NoisyMarginal
    from dpweave.tables.base import StructuralZero


def learned_dependency(
    noisy: NoisyMarginal, single: NoisyMarginal, *, rows: float, zeros: Sequence[StructuralZero] = ()
) -> Dependency:
    r"""Draw what the last column of ``noisy`` is for each combination of the others, by how likely each value is.

    A combination c has :math:`n_c` rows, all of one value, so that of its noisy counts :math:`y_{cj} \sim
    \mathcal{N}(0, \sigma^2)` one has the mean :math:`n_c`. Which one is as likely beforehand as the share
    :math:`\pi_j` of all rows that have value j: by ``single``, counts of this column alone, and by the sums of
    ``noisy``. Let :math:`n_c` be exponential, with mean m, the rows per combination.
    Then value j has the probability

    .. math:: \propto \pi_j \, e^{x^2/2} \, \Phi(x), \qquad x = y_{cj} / \sigma - \sigma / m .

    Where counts stand out of noise this is certain. Where they do not, values are as common as in the whole table: the
    likeliest value for every rare combination would make it too common. Values that ``zeros`` forbid are never drawn.
    """
    *determinants, dependent = noisy.columns
    counts = noisy.counts.reshape(-1, noisy.counts.shape[-1]).astype(np.float64)
    weight = np.array([single.sigma**-2, noisy.sigma**-2 / len(counts)])
    values = weight @ np.stack([single.counts, counts.sum(axis=0)]) / weight.sum()
    share = project_capped_simplex(values / max(float(values.sum()), 1.0), total=1.0)
    mean = max(rows, 1.0) / len(counts)
    score = np.log(np.maximum(share, np.finfo(float).tiny))
    score = score + log_evidence(counts / noisy.sigma - noisy.sigma / mean)
    score[forbidden(noisy.columns, noisy.counts.shape, zeros).reshape(score.shape)] = -np.inf
    drawn = np.random.default_rng(0).gumbel(size=score.shape)  # the noise of the counts is random enough
    table = np.argmax(score + drawn, axis=1).reshape(noisy.counts.shape[:-1])
    return Dependency(tuple(determinants), dependent, table.astype(np.int64))


def log_evidence(x: FloatArray) -> FloatArray:
    r"""Logarithm of :math:`e^{x^2/2} \Phi(x)`, without overflow.

    >>> log_evidence(np.array([-1e9, 0.0, 1e3])).round(3).tolist()
    [-21.642, -0.693, 500000.0]
    """
    below = np.minimum(x, 0.0)
    above = np.maximum(x, 0.0)
    return np.asarray(np.where(x < 0, np.log(erfcx(-below / math.sqrt(2)) / 2), above**2 / 2 + log_ndtr(above)))
