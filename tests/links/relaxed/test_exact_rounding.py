from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import chi2

from dpweave.errors import UsageError
from dpweave.links.relaxed.exact_rounding import categorical_round, cell_counts, recursive_sample, unbiased_sample
from dpweave.links.relaxed.projections import project_capped_simplex

Sampler = Callable[[np.ndarray, np.random.Generator], np.ndarray]
SAMPLERS = [unbiased_sample, recursive_sample]
CASES = {
    "the paper's figure": np.array([6, 13, 32, 45, 38, 58]) / 64,
    "halves": np.full(6, 0.5),
    "certain and impossible": np.array([64, 0, 20, 19, 25, 64, 0]) / 64,
    "heavy": np.array([60, 61, 62, 9]) / 64,
    "light": np.array([8, 1, 3, 20, 16, 16, 30, 34]) / 64,
    "overlapping": np.array([38, 38, 39, 38, 39]) / 64,
}


def draw(sampler: Sampler, b: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """Indicators of ``draws`` independent samples.

    Copies of ``b`` one after the other are sampled independently by the pivotal scheme:
    each ends at a border, where nothing is handed on (all sums are exact here). The
    recursive scheme merges across copies, so it is called each time.
    """
    rng = np.random.default_rng(seed)
    chosen = np.zeros(draws * len(b), dtype=bool)
    if sampler is unbiased_sample:
        chosen[sampler(np.tile(b, draws), rng)] = True
    else:
        for start in range(0, len(chosen), len(b)):
            chosen[start + sampler(b, rng)] = True
    return chosen.reshape(draws, len(b))


def rejection_sample(b: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The paper's example of a biased scheme: draw by b/m, reject repetitions."""
    return rng.choice(len(b), size=round(b.sum()), replace=False, p=b / b.sum())


def inclusion_p_value(indicators: np.ndarray, b: np.ndarray) -> float:
    """Hotelling's test of the inclusion frequencies, on the directions in which they vary at all."""
    values, vectors = np.linalg.eigh(np.cov(indicators, rowvar=False))
    vary = values > 1e-6
    along = vectors[:, vary].T @ (indicators.mean(axis=0) - b)
    return float(chi2.sf(len(indicators) * (along**2 / values[vary]).sum(), vary.sum()))


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("case", CASES)
def test_inclusion_covariance_and_total(sampler: Sampler, case: str) -> None:
    b = CASES[case]
    draws = 1_000_000 if sampler is unbiased_sample else 8_000
    x = draw(sampler, b, draws, seed=1)
    assert (x.sum(axis=1) == round(b.sum())).all()
    assert inclusion_p_value(x, b) > 1e-4
    covariance = np.cov(x, rowvar=False)
    np.fill_diagonal(covariance, 0.0)
    assert covariance.max() <= 5 / np.sqrt(draws) * 0.25


def test_the_test_of_inclusion_has_power() -> None:
    b = CASES["the paper's figure"]
    x = draw(unbiased_sample, b, 1_000_000, seed=2)
    off = b + np.array([0.002, -0.002, 0, 0, 0, 0])
    assert inclusion_p_value(x, off) < 1e-4
    assert inclusion_p_value(x, b) > 1e-4
    biased = draw(rejection_sample, b, 8_000, seed=3)
    assert inclusion_p_value(biased, b) < 1e-4


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_concentration(sampler: Sampler) -> None:
    """`thm::concentration`, and the sharper fact behind it: linear queries vary no more than independent coins."""
    rng = np.random.default_rng(4)
    raw = rng.integers(1, 40, size=64)
    b = project_capped_simplex(raw / 64, total=16.0)
    b = np.round(b * 1024) / 1024
    b[np.argmax(b)] += 16.0 - b.sum()
    queries = rng.random((200, 64)) < 0.3
    draws = 4_000
    x = draw(sampler, b, draws, seed=5)
    deviation = np.abs((x - b) @ queries.T) / 16.0
    beta = 0.05
    bound = np.sqrt(64 / 2 * np.log(2 * len(queries) / beta)) / 16.0
    assert (deviation.max(axis=1) > bound).mean() <= beta
    variance = ((x @ queries.T.astype(float)).var(axis=0)) / (queries @ (b * (1 - b)))
    assert variance.max() <= 1 + 5 * np.sqrt(2 / draws)


@pytest.mark.parametrize("sampler", SAMPLERS)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 60), scale=st.sampled_from([0.01, 0.3, 1.0, 30.0]))
@example(seed=0, n=1, scale=1.0)
def test_always_the_exact_number_of_distinct_picks(sampler: Sampler, seed: int, n: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    m = int(rng.integers(0, n + 1))
    b = project_capped_simplex(rng.normal(size=n) * scale, total=float(m))
    b = np.clip(b + rng.choice([0.0, 1e-12, -1e-12, 1e-10], size=n), 0.0, 1.0)
    picks = sampler(b, rng)
    assert len(np.unique(picks)) == len(picks) == m
    assert (b[picks] > 0.0).all()


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("b", [np.full(10, 0.1), np.full(30, 0.1), np.full(7, 3 / 7), np.repeat([0.7, 0.2, 0.1], 9)])
def test_dust_at_group_borders(sampler: Sampler, b: np.ndarray) -> None:
    rng = np.random.default_rng(6)
    for _ in range(300):
        picks = sampler(rng.permutation(b), rng)
        assert len(np.unique(picks)) == len(picks) == round(b.sum())


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_bad_probabilities_are_refused(sampler: Sampler) -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(UsageError, match="whole number"):
        sampler(np.array([0.5, 0.2]), rng)
    with pytest.raises(UsageError, match="0 … 1"):
        sampler(np.array([1.5, 0.5]), rng)


def test_the_overflowing_entry_is_not_dropped() -> None:
    """As printed, the pseudo-code never chooses the entry that starts a new group."""
    b = np.array([0.75, 0.75, 0.5])
    x = draw(recursive_sample, b, 4000, seed=7)
    assert abs(x[:, 1].mean() - 0.75) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("m", [4000, 1_000_000])
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_ten_million_entries(m: int, spread: float) -> None:
    rng = np.random.default_rng(8)
    b = 1.0 + spread * rng.random(10_000_000)
    b *= m / b.sum()
    ratios = []
    for _ in range(3):
        start = time.process_time()
        np.cumsum(b)
        one_pass = time.process_time() - start
        start = time.process_time()
        picks = unbiased_sample(b, rng)
        ratios.append((time.process_time() - start) / one_pass)
    assert len(np.unique(picks)) == m
    assert min(ratios) <= 15


def test_cell_counts_are_unbiased_with_an_exact_total() -> None:
    rng = np.random.default_rng(9)
    multiplicity = rng.integers(0, 9, size=(4, 5)).astype(float)
    b = project_capped_simplex(rng.random((4, 5)), total=13.0, weights=multiplicity)
    counts = np.array([cell_counts(b, multiplicity, rng) for _ in range(4000)])
    assert (counts.sum(axis=(1, 2)) == 13).all()
    assert (np.abs(counts - b * multiplicity) < 1 + 1e-9).all()
    np.testing.assert_allclose(counts.mean(axis=0), b * multiplicity, atol=5 * 0.5 / np.sqrt(4000))


def test_categorical_round_follows_its_rows() -> None:
    rng = np.random.default_rng(10)
    b = rng.random((3, 5))
    b[0, 0] = 0.0
    b[1, 4] = 0.0
    b /= b.sum(axis=1, keepdims=True)
    picks = categorical_round(np.repeat(b, 20_000, axis=0), rng).reshape(3, 20_000)
    for row, chosen in zip(b, picks, strict=True):
        counts = np.bincount(chosen, minlength=5)
        assert counts[row == 0.0].sum() == 0
        positive = row > 0
        statistic = ((counts - 20_000 * row)[positive] ** 2 / (20_000 * row[positive])).sum()
        assert chi2.sf(statistic, positive.sum() - 1) > 1e-4
        wrong = np.roll(row[positive], 1)
        assert chi2.sf(((counts[positive] - 20_000 * wrong) ** 2 / (20_000 * wrong)).sum(), positive.sum() - 1) < 1e-6
    with pytest.raises(UsageError, match="distribution"):
        categorical_round(np.array([[0.5, 0.4]]), rng)
