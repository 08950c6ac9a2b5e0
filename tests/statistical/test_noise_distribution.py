"""Goodness of fit of both noise sources, each with its power: a scale off by a third, either way, is rejected.

The secure source cannot be seeded, so the level is 1e-6: the whole file fails by chance once in some 20,000 runs.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from dpweave.privacy.noise import InsecureNoise, NoiseSource, SecureNoise, threshold_delta
from dpweave.privacy.selection import select

LEVEL = 1e-6
SOURCES = [pytest.param(SecureNoise(), id="secure"), pytest.param(InsecureNoise(11), id="insecure")]
both = pytest.mark.parametrize("noise", SOURCES)
WRONG = (2 / 3, 3 / 2)


def chi_square(observed: np.ndarray, probability: np.ndarray) -> float:
    """P-value after pooling neighbouring cells until each expects at least 10; missing mass joins the last cell."""
    expected = probability * observed.sum()
    cells: list[list[float]] = []
    seen = hoped = 0.0
    for o, e in zip(observed, expected, strict=True):
        seen, hoped = seen + o, hoped + e
        if hoped >= 10:
            cells.append([seen, hoped])
            seen = hoped = 0.0
    cells[-1][0] += seen
    cells[-1][1] += hoped
    o, e = np.array(cells).T
    return float(stats.chisquare(o, e * o.sum() / e.sum()).pvalue)


def gaussian_fit(draws: np.ndarray, sigma: float) -> float:
    """P-value of the chi-square test joined with an exact test of the zeros, which small scales need."""
    reach = int(max(abs(draws).max(), 12 * sigma)) + 1
    grid = np.arange(-reach, reach + 1)
    mass = np.exp(-(grid**2) / (2 * sigma**2))
    mass /= mass.sum()
    zeros = stats.binomtest(int((draws == 0).sum()), draws.size, mass[reach]).pvalue
    if mass[reach] * draws.size > draws.size - 20:  # everything else would be pooled into one cell
        return float(zeros)
    return min(1.0, 2 * min(zeros, chi_square(np.bincount(draws + reach, minlength=grid.size), mass)))


def choice_fit(picks: list[int], scores: list[float], scale: float) -> float:
    weight = np.exp((np.array(scores) - max(scores)) / scale)
    return chi_square(np.bincount(picks, minlength=len(scores)), weight / weight.sum())


@both
@pytest.mark.parametrize("sigma", [0.3, 0.5, 0.8, 1.0, 2.5, 10.0, 60.5])
def test_discrete_gaussian(noise: NoiseSource, sigma: float) -> None:
    draws = noise.discrete_gaussian(np.zeros(20_000, dtype=np.int64), sigma=sigma)
    assert gaussian_fit(draws, sigma) > LEVEL
    for factor in WRONG:
        assert gaussian_fit(draws, sigma * factor) < LEVEL


@both
@pytest.mark.parametrize("sigma", [1e3, 1e6, 1e11])
def test_discrete_gaussian_with_a_wide_scale(noise: NoiseSource, sigma: float) -> None:
    draws = noise.discrete_gaussian(np.full(10_000, 7, dtype=np.int64), sigma=sigma) - 7
    assert stats.kstest(draws + 0.5, stats.norm(scale=sigma).cdf).pvalue > LEVEL
    for factor in WRONG:
        assert stats.kstest(draws + 0.5, stats.norm(scale=sigma * factor).cdf).pvalue < LEVEL


@both
def test_rounded_normal_is_not_mistaken_for_the_discrete_gaussian(noise: NoiseSource) -> None:
    """The check is sharp enough to tell the exact law from a rounded float normal at a small scale."""
    n, sigma = 40_000, 0.5
    rounded = np.rint(np.random.default_rng(5).normal(scale=sigma, size=n)).astype(np.int64)
    assert gaussian_fit(rounded, sigma) < LEVEL
    assert gaussian_fit(noise.discrete_gaussian(np.zeros(n, dtype=np.int64), sigma=sigma), sigma) > LEVEL


@both
@pytest.mark.parametrize(
    ("scores", "scale"), [([0.0, 1.5, 3.0, 4.0], 2.0), ([5.0, -5.0], 8.0), ([1e6, 1e6 - 0.5, 1e6 - 1, 1e6 + 1], 0.75)]
)
def test_noisy_max(noise: NoiseSource, scores: list[float], scale: float) -> None:
    picks = [noise.noisy_max(scores, scale=scale) for _ in range(5_000)]
    assert choice_fit(picks, scores, scale) > LEVEL
    for factor in WRONG:
        assert choice_fit(picks, scores, scale * factor) < LEVEL


@both
def test_peeling(noise: NoiseSource) -> None:
    scores, scale, n = [0.0, 1.0, 2.0, 3.5], 1.5, 5_000
    pairs = list(itertools.permutations(range(4), 2))
    seen = [pairs.index(select(scores, count=2, scale=scale, noise=noise)) for _ in range(n)]

    def fit(scale: float) -> float:
        weight = np.exp(np.array(scores) / scale)
        p = weight / weight.sum()
        law = np.array([p[i] * p[j] / (1 - p[i]) for i, j in pairs])
        return chi_square(np.bincount(seen, minlength=len(pairs)), law)

    assert fit(scale) > LEVEL
    for factor in WRONG:
        assert fit(scale * factor) < LEVEL


@both
def test_a_lone_category_is_released_as_often_as_delta_says(noise: NoiseSource) -> None:
    sigma, threshold, linf, n = 2.0, 6, 2, 40_000
    released = len(noise.threshold_counts({str(i): linf for i in range(n)}, sigma=sigma, threshold=threshold))
    claims = {factor: threshold_delta(sigma * factor, threshold, l0=1, linf=linf) for factor in (1.0, *WRONG)}
    assert stats.binomtest(released, n, claims[1.0]).pvalue > LEVEL
    for factor in WRONG:
        assert stats.binomtest(released, n, claims[factor]).pvalue < LEVEL


def test_the_law_is_that_of_opendps_own_threshold() -> None:
    """Both release a noisy count that equals the threshold; OpenDP 0.16 leaves that out of its delta."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T="i64"))
    metric = dp.l02inf_distance(dp.absolute_distance(T=float))
    theirs = dp.m.make_gaussian_threshold(domain, metric, scale=2.0, threshold=6)
    n = 20_000
    released = len(theirs({str(i): 2 for i in range(n)}))
    assert stats.binomtest(released, n, threshold_delta(2.0, 6, l0=1, linf=2)).pvalue > LEVEL
    assert stats.binomtest(released, n, threshold_delta(2.0, 7, l0=1, linf=2)).pvalue < LEVEL
