r"""How far off counts are that carry noise: the same figure before a fit, after it, and for what is true.

The error of a column, or of a set of columns, is the total variation between its shares of values in the original and
in the copy: the part of all rows that would have to change their value. Noise of standard deviation σ in each of n
counts over N rows makes it about

.. math:: \tfrac{1}{2} \, n \sqrt{2/\pi} \, \sigma / N

as long as noise is small. Where it is not, counts below zero are taken for zero and the others give way, and the error
ends where the copy has nothing to do with the original. So it is worked out by trying: noise is added to the shares,
what comes out is turned back into shares, and the distance is the error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave import chosen

if TYPE_CHECKING:
    from dpweave.arrays import FloatArray

TRIES = 24
"""Draws of noise. Their mean is within a few percent for any column; from 10 on no word changes."""


def noise_error(shares: FloatArray, *, sigma: float, rows: float) -> float:
    """Total variation to expect between ``shares`` of ``rows`` and what noise of ``sigma`` in each count makes of them.

    >>> round(noise_error(np.full(4, 0.25), sigma=10.0, rows=1000.0), 3)
    0.014
    >>> round(noise_error(np.full(20, 0.05), sigma=1e6, rows=1000.0), 2)
    0.95
    """
    if len(shares) < 2 or sigma <= 0:
        return 0.0
    rng = np.random.default_rng(0)
    noisy = shares + rng.normal(0.0, sigma / max(rows, 1.0), (TRIES, len(shares)))
    return float(np.abs(to_shares(noisy) - shares).sum(axis=1).mean() / 2)


def to_shares(noisy: FloatArray) -> FloatArray:
    """Nearest shares, none below zero and one together, for each line of noisy ones."""
    ordered = -np.sort(-noisy, axis=1)
    above = np.cumsum(ordered, axis=1) - 1
    places = np.arange(1, noisy.shape[1] + 1)
    last = (ordered - above / places > 0).sum(axis=1)
    return np.asarray(np.maximum(noisy - (above[np.arange(len(noisy)), last - 1] / last)[:, None], 0.0))


def word(error: float) -> str:
    """What a table or relation with this error is called.

    >>> word(0.04), word(0.2), word(0.7)
    ('useful', 'coarse', 'noise only')
    """
    return "useful" if error <= chosen.USEFUL else "coarse" if error <= chosen.COARSE else "noise only"


def doubt(cells: Any) -> Any:
    """Standard deviations that the largest of so many noises hardly ever reaches."""
    return 1.0 + np.sqrt(2 * np.log(np.maximum(cells, 2)))
