r"""How often each row of a public table is led to, from one noisy count per row.

Of n public rows, row j is led to :math:`\lambda_j b_j` times in the view; :math:`b_j` is what its columns say, and
:math:`\lambda_j` what is its own. The noisy count :math:`y_j` has noise of scale σ.

1. **Columns.** :math:`b_j` is a ridge regression of the counts on the columns
   (:func:`dpweave.links.degrees_by_values.tilts`): sums over many rows are precise where single rows are not.
2. **Rows.** λ is log-normal with the variance that counts show beyond noise, and no less than chance
   gives it: one over the mean count. Where rows are many, some steps of expectation maximisation
   (Laird 1978) give its law the shape that counts show. The posterior mean ranks the rows.
3. **Degrees.** Posterior means spread less than the truth. So rows get the quantiles of the law of :math:`\lambda b` in
   the order of their posterior means: the distribution of degrees is the one that the counts show. Few rows tell little
   of a law, so there the posterior means count for as much as they are known. Last, all are raked so that sums per
   value of a column are again those of the posterior means.

4. **Repeats.** What is counted are owners, each once for a row of theirs, whereas pairs may repeat: who has many rows
   leads to the most popular of them more than once. So shares of owners are turned into shares of links
   (:func:`of_links`).

Where counts show nothing beyond noise, rows differ as much as by chance.
Post-processing: it reads noisy counts and public rows alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen
from dpweave.links.degrees_by_values import COEFFICIENTS, tilts
from dpweave.measure.expected_error import doubt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.arrays import BoolArray, FloatArray, IntArray


MOST_TARGETS = 100_000
"""Of more rows none is counted by itself."""

_POINTS = 60
_STEPS = 40
_SPAN = 4.0
"""Standard deviations of log λ that are looked at."""
_RAKES = 10
_GRID = 2000


def share_for(*, rho: float, l2: float, mean: float, targets: int) -> float:
    r"""Part of ``rho`` to spend on one count per target: enough for noise of a tenth of
    the ``mean`` count, at most a quarter; less where only the most popular of ``targets`` would show.

    >>> [round(share_for(rho=0.01, l2=14.0, mean=m, targets=1000), 3) for m in (1.0, 10.0, 200.0, 4000.0)]
    [0.0, 0.033, 0.25, 0.061]
    """
    if not mean > 0:
        return 0.0
    noise = l2 / np.sqrt(2 * rho * chosen.LOOK)
    if noise > chosen.HOPELESS * mean:
        return chosen.LOOK * _shown(noise, mean, targets)
    return float(min(chosen.LOOK, (l2 / (chosen.USEFUL * mean)) ** 2 / (2 * rho)))


def _shown(noise: float, mean: float, targets: int) -> float:
    """Share of links to targets that stand out of noise, if their popularity falls as one over their rank."""
    shares = 1 / np.arange(1, targets + 1)
    shares /= shares.sum()
    return float(shares[mean * targets * shares > doubt(targets) * noise].sum())


def popularity(counts: IntArray, *, sigma: float, columns: Mapping[str, IntArray]) -> FloatArray:
    """Weights of public rows with mean 1: how often each is led to, from noisy ``counts`` and the codes of its columns.

    >>> popularity(np.array([3, -2, 1, 0]), sigma=9.0, columns={})
    array([1., 1., 1., 1.])
    """
    n = len(counts)
    clear = counts > doubt(n) * sigma
    if n < 2 or (counts.sum() < 2 * sigma * np.sqrt(n) and not clear.any()):
        return np.ones(n)
    # Of rows that stand out there are at least as many links as they have beyond doubt.
    mean = max(float(counts.mean()), float(counts[clear].sum()) / n)
    observed = counts / mean
    noise = sigma / mean
    base = _by_columns(observed, columns)
    law, points = _law(observed, base, noise, chance=1 / max(mean, 1.0))
    likelihood = np.exp(-0.5 * ((observed[:, None] - base[:, None] * points) / noise) ** 2) + 1e-300
    for _ in range(_STEPS if n >= chosen.MANY_TARGETS else 0):
        posterior = likelihood * law
        law = (posterior / posterior.sum(axis=1, keepdims=True)).mean(axis=0)
    posterior = likelihood * law
    expected = base * (posterior @ points) / posterior.sum(axis=1)
    dealt = _dealt(expected, base, points, law)
    if n < chosen.MANY_TARGETS:
        known = float(dealt.var() / (dealt.var() + noise**2))
        dealt = known * expected + (1 - known) * dealt
    clear = observed - base > doubt(n) * noise
    return _with_clear(_raked(dealt, expected, columns), observed, clear)


def of_links(
    weights: FloatArray, counts: IntArray, *, sigma: float, owners: float, degrees: IntArray, share: float
) -> FloatArray:
    r"""Turn ``weights`` by owners who lead to a row into weights by links, where an owner may lead to it repeatedly.

    By chance a row with a part :math:`p_j` of all links is led to by a part
    :math:`G(p_j) = E[1 - (1 - s p_j)^d]` of the owners, d being their ``degrees`` and s the ``share`` of their rows
    that lead anywhere. Its inverse is taken in full where the sum of the noisy ``counts`` agrees with that. Where
    owners repeat themselves less, up to not at all, or more, up to always, then so much less of it is taken: at both
    ends owners and links are in proportion.

    >>> owners = np.array([96, 36])
    >>> by_links = of_links(owners / 66, owners, sigma=1.0, owners=100.0, degrees=np.array([2]), share=1.0)
    >>> (owners / 66).round(2), by_links.round(2)
    (array([1.45, 0.55]), array([1.6, 0.4]))
    """
    seen, links = float(counts.sum()), owners * float(degrees.mean()) * share
    if seen <= 0 or owners <= 0 or links <= 0:
        return weights
    found, often = np.unique(degrees, return_counts=True)
    grid = np.geomspace(1e-9, 1.0, _GRID)
    reached = (1 - (1 - grid[:, None]) ** found) @ (often / often.sum())
    parts = np.interp(weights * seen / len(weights) / owners, reached, grid)
    parts /= parts.sum()
    chance = owners * float(np.interp(parts * share, grid, reached).sum())
    fewest = owners * float(np.interp(share, grid, reached))
    end = links if seen > chance else fewest
    agrees = abs(seen - chance) <= 2 * sigma * np.sqrt(len(weights)) or end == chance
    chosen_by_chance = 1.0 if agrees else float(np.clip((end - seen) / (end - chance), 0.0, 1.0))
    return np.asarray(chosen_by_chance * parts * len(weights) + (1 - chosen_by_chance) * weights)


def _with_clear(weights: FloatArray, observed: FloatArray, clear: BoolArray) -> FloatArray:
    """Give rows that stand out of noise what was counted of them; the others share what is left, as before."""
    left, rest = len(weights) - float(observed[clear].sum()), float(weights[~clear].sum())
    if not clear.any() or left <= 0 or rest <= 0:
        return weights
    out = np.asarray(weights * left / rest)
    out[clear] = observed[clear]
    return out


def _by_columns(observed: FloatArray, columns: Mapping[str, IntArray]) -> FloatArray:
    """What columns say of each row, with mean 1."""
    shape = {c: int(codes.max()) + 1 for c, codes in columns.items()}
    varying = {c: codes for c, codes in columns.items() if 1 < shape[c] <= COEFFICIENTS}
    off = observed - 1.0
    effect = float((off**2).mean()) * tilts(off, varying, shape)
    base = np.maximum(1.0 + effect - effect.mean(), chosen.DOUBT)
    return np.asarray(base / base.mean())


def _law(observed: FloatArray, base: FloatArray, noise: float, *, chance: float) -> tuple[FloatArray, FloatArray]:
    """Probabilities of λ at first, and where it may lie: log-normal with mean 1 and
    what counts show beyond noise, or chance.
    """
    beyond = float(((observed - base) ** 2).mean()) - noise**2
    clear = beyond > 2 * noise**2 * np.sqrt(2 / len(observed))
    variance = np.log1p(max(beyond / float((base**2).mean()) if clear else 0.0, chance))
    logs = np.sqrt(variance) * np.linspace(-_SPAN, _SPAN, _POINTS)
    law = np.exp(-(np.linspace(-_SPAN, _SPAN, _POINTS) ** 2) / 2)
    return law / law.sum(), np.exp(logs - variance / 2)


def _dealt(expected: FloatArray, base: FloatArray, points: FloatArray, law: FloatArray) -> FloatArray:
    """Quantiles of the law of λ times ``base``, in the order of ``expected``."""
    values = np.multiply.outer(base, points).ravel()
    order = np.argsort(values)
    reached = np.cumsum(np.tile(law, len(base))[order])
    at = np.searchsorted(reached, (np.arange(len(base)) + 0.5) / len(base) * reached[-1])
    out = np.empty(len(base))
    out[np.argsort(expected, kind="stable")] = values[order][np.minimum(at, len(values) - 1)]
    return out


def _raked(weights: FloatArray, expected: FloatArray, columns: Mapping[str, IntArray]) -> FloatArray:
    """Scale weights until their sums per value of every column are those expected; their mean is 1."""
    for _ in range(_RAKES):
        for codes in columns.values():
            have, wanted = (np.bincount(codes, weights=w) for w in (weights, expected))
            weights = weights * np.where(have > 0, wanted / np.maximum(have, 1e-300), 1.0)[codes]
    return np.asarray(weights / weights.mean()) if weights.sum() > 0 else np.ones(len(weights))
