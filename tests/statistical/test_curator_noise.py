"""Noise and choices as they come out of the Curator have the law that was charged for;
two thirds and three halves of it do not.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpweave.privacy.window import Candidate
from dpweave.schema.domain import View
from tests.privacy.test_curator import LINKED, _curator

RUNS = 6000
LEVEL = 1e-6
"""Noise cannot be seeded here. With so many runs a right law is refused, and a wrong
one passes, less than once in 100,000 times.
"""


def _discrete_gaussian(sigma: float, reach: int) -> np.ndarray:
    x = np.arange(-reach, reach + 1)
    p = np.exp(-(x**2) / (2 * sigma**2))
    return p / p.sum()


def _fits(noise: np.ndarray, sigma: float) -> bool:
    reach = int(4 * sigma) + 1
    p = _discrete_gaussian(sigma, 20 * reach)
    middle = len(p) // 2
    edges = np.unique(np.round(stats.norm.ppf(np.linspace(0.05, 0.95, 15)) * sigma)).astype(int)
    cells = np.split(p, middle + edges)
    expected = np.array([c.sum() for c in cells]) * noise.size
    observed = np.bincount(np.searchsorted(edges, noise, side="right"), minlength=len(expected))
    return stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > LEVEL


def test_measured_noise_has_the_scale_that_was_charged():
    curator = _curator()
    view = View.of_table("users", ("x",))
    exact = np.array([10, 10])
    rho = 0.02
    sigma = 1 / math.sqrt(2 * rho)
    noise = np.concatenate([curator.measure(view, [("x",)], what="n", rho=rho)[0].counts - exact for _ in range(RUNS)])
    assert _fits(noise, sigma)
    assert not _fits(noise, sigma * 2 / 3)
    assert not _fits(noise, sigma * 3 / 2)


@pytest.mark.parametrize("rho", [0.25, 0.5])
def test_choices_have_the_odds_that_were_charged(rho):
    curator = _curator()
    exact = curator.measure(LINKED, [("u", "m")], what="exact", rho=1e8)[0].counts
    step = 8.0  # one unit's worth of L1
    candidates = [Candidate(("u", "m"), exact + np.array([[i * step, 0], [0, 0]])) for i in range(3)]
    chosen = [curator.select(LINKED, candidates, what="s", rho=rho)[0] for _ in range(RUNS)]
    seen = np.bincount(chosen, minlength=3)

    def fits(scale: float) -> bool:
        odds = np.exp(np.array([0, step, 2 * step]) / scale)
        return stats.chisquare(seen, odds / odds.sum() * RUNS).pvalue > LEVEL

    scale = 8.0 / math.sqrt(2 * rho)
    assert fits(scale)
    assert not fits(scale * 2 / 3)
    assert not fits(scale * 3 / 2)
