"""What noise does to shares, held against drawing it and bringing it back one by one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from dpweave.measure.expected_error import noise_error, to_shares


@pytest.mark.parametrize("seed", range(5))
def test_shares_are_the_nearest_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    noisy = rng.normal(0.2, 0.5, (1, 5))
    (found,) = to_shares(noisy)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
    sums = {"type": "eq", "fun": lambda x: x.sum() - 1}
    best = minimize(lambda x: ((x - noisy[0]) ** 2).sum(), np.full(5, 0.2), bounds=[(0, 1)] * 5, constraints=[sums])
    assert found == pytest.approx(best.x, abs=1e-3)


def test_small_noise_follows_the_formula_and_large_noise_ends() -> None:
    even = np.full(10, 0.1)
    small = noise_error(even, sigma=20.0, rows=100_000.0)
    assert small == pytest.approx(0.5 * 10 * np.sqrt(2 / np.pi) * 20 / 100_000, rel=0.15)
    errors = [noise_error(even, sigma=s, rows=1_000.0) for s in (1, 10, 100, 1_000, 1e9)]
    assert errors == sorted(errors)
    assert 0.8 < errors[-1] <= 1
    assert noise_error(np.ones(1), sigma=5.0, rows=10.0) == 0.0
