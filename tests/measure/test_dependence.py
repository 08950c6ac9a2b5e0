"""The statistic of dependence is calibrated and has power; the threshold holds for all sets of columns together."""

from __future__ import annotations

import numpy as np
import pytest

from dpweave import chosen
from dpweave.measure.dependence import dependence, threshold
from dpweave.measure.estimates import SharedNoise

P, Q, R = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.7, 0.3])


def oracle(counts, margins, covariance):
    """The definition: all cells at once, with the pseudo-inverse of the covariance of all of them."""
    centring = np.ones((1, 1))
    for p in margins:
        centring = np.kron(centring, np.eye(len(p)) - p[:, None])
    d = centring @ counts.ravel()
    return float(d @ np.linalg.pinv(centring @ covariance @ centring.T, rcond=1e-9, hermitian=True) @ d)


@pytest.mark.parametrize("margins", [(P, Q), (P, Q, R)])
def test_it_is_what_the_definition_says(margins):
    rng = np.random.default_rng(0)
    shape = tuple(map(len, margins))
    counts = rng.normal(0, 30.0, shape)  # of rows that noise hides: shares come from elsewhere
    found = dependence(counts, margins, sigma=30.0)
    assert found.statistic == pytest.approx(oracle(counts, margins, 900.0 * np.eye(counts.size)))
    assert found.freedom == np.prod([n - 1 for n in shape])
    shared = SharedNoise(rng.uniform(400, 1600, shape[1:]), tuple(0 for _ in shape[1:]))
    found = dependence(counts, margins, cover=shared.covariance)
    assert found.statistic == pytest.approx(oracle(counts, margins, np.kron(np.eye(3), shared.covariance)))
    assert found.freedom == np.prod([n - 1 for n in shape])


@pytest.mark.parametrize("sigma", [20.0, 60.0, 250.0, 4000.0])
@pytest.mark.parametrize("margins", [(P, Q), (P, Q, R)])
def test_noise_alone_gives_standard_normal_scores(margins, sigma):
    """From counts that stand far above their noise to counts that it hides."""
    rng = np.random.default_rng(1)
    flat = 5000 * (np.outer(P, Q) if len(margins) == 2 else np.einsum("i,j,k->ijk", *margins))

    def scores(off):
        drawn = (flat + rng.normal(0, sigma * off, flat.shape) for _ in range(1500))
        return np.array([dependence(x, margins, sigma=sigma).score for x in drawn])

    right = scores(1.0)
    assert abs(right.mean()) < 0.12
    assert 0.9 < right.std() < 1.1
    assert (right > threshold(1)).mean() < 2.5 * chosen.LEVEL
    # Noise of two thirds or three halves the stated size is noticed.
    assert scores(2 / 3).mean() < -0.5
    assert scores(3 / 2).mean() > 0.5


@pytest.mark.parametrize("known", [True, False], ids=["rows known", "rows counted"])
def test_noise_that_values_share_gives_standard_normal_scores(known):
    """The absent value is what the others leave of the rows, which were counted too or not."""
    rng = np.random.default_rng(2)
    truth = 20_000 * np.outer(P, Q)
    scales = np.array([0.0 if known else 2.0, 1.5, 1.0, 0.5]) * 40.0
    noise = SharedNoise(scales**2, (0,))
    scores = []
    for _ in range(1500):
        counted = np.column_stack([truth.sum(axis=1), truth[:, 1:]]) + rng.normal(size=truth.shape) * scales
        counts = np.column_stack([counted[:, 0] - counted[:, 1:].sum(axis=1), counted[:, 1:]])
        scores.append(dependence(counts, (P, Q), cover=noise.covariance).score)
    assert abs(np.mean(scores)) < 0.12
    assert 0.9 < np.std(scores) < 1.1


def test_shares_that_were_wrong_before_do_not_pass_for_dependence():
    """Rows of some kinds are led to more often than anybody knew, and the other side's shares are off as well."""
    rng = np.random.default_rng(3)
    truth = 50_000 * np.outer(P, Q)
    wrong = (np.array([0.45, 0.3, 0.25]), np.full(4, 0.25))
    scores = [dependence(truth + rng.normal(0, 60.0, truth.shape), wrong, sigma=60.0).score for _ in range(300)]
    assert np.mean(np.array(scores) > threshold(1)) < 0.05


def test_a_dependence_is_found():
    rng = np.random.default_rng(4)
    bond = 5000 * np.outer(P, Q) + 300 * np.outer([1, -1, 0], [1, -1, 0, 0])
    found = [dependence(bond + rng.normal(0, 60, bond.shape), (P, Q), sigma=60.0).score for _ in range(200)]
    assert np.mean(np.array(found) > threshold(20)) > 0.95


@pytest.mark.parametrize("sets", [1, 20, 300])
def test_the_level_is_that_of_all_sets_together(sets):
    best = np.random.default_rng(5).normal(size=(20_000, sets)).max(axis=1)
    assert (best > threshold(sets)).mean() == pytest.approx(chosen.LEVEL, abs=0.004)
