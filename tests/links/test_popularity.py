"""How often each public row is led to, from noisy counts: ranks, distribution, sums per
value, and nothing out of noise.
"""

from __future__ import annotations

import numpy as np
import pytest

from dpweave import chosen
from dpweave.errors import UsageError
from dpweave.links.degrees import Degrees
from dpweave.links.link_method import LinkProblem
from dpweave.links.map_learner import MAP
from dpweave.links.popularity import of_links, popularity, share_for
from dpweave.privacy.window import NoisyMarginal


def _world(rng: np.random.Generator, rows: int = 1500) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Heavy-tailed counts that lean with a column."""
    kinds = rng.integers(0, 4, rows)
    return rng.lognormal(0.0, 1.0, rows) * np.array([0.5, 1.0, 1.0, 2.0])[kinds] * 60, {"kind": kinds}


def _noisy(true: np.ndarray, sigma: float, rng: np.random.Generator) -> np.ndarray:
    return np.rint(true + rng.normal(0, sigma, len(true))).astype(np.int64)


def _distance(one: np.ndarray, two: np.ndarray) -> float:
    return float(np.abs(one / one.sum() - two / two.sum()).sum())


@pytest.mark.parametrize("part", [0.25, 1.0, 2.0])
def test_popularity_is_much_nearer_than_even_or_raw_counts(part):
    rng = np.random.default_rng(1)
    true, columns = _world(rng)
    sigma = part * true.mean()
    counts = _noisy(true, sigma, rng)
    found = popularity(counts, sigma=sigma, columns=columns)
    assert found.mean() == pytest.approx(1.0)
    assert found.min() >= 0
    even, raw = _distance(np.ones_like(true), true), _distance(np.maximum(counts, 0), true)
    assert _distance(found, true) < {0.25: 0.4, 1.0: 0.7, 2.0: 0.85}[part] * even
    assert _distance(found, true) < (1.1 if part < 1 else 0.9) * raw  # where noise is small, counts are as good


def test_the_distribution_of_degrees_is_that_of_the_truth_and_not_of_shrunk_means():
    rng = np.random.default_rng(2)
    true, columns = _world(rng)
    sigma = float(true.mean())
    found = popularity(_noisy(true, sigma, rng), sigma=sigma, columns=columns) * true.mean()
    for q in (0.1, 0.5, 0.9, 0.99):
        assert np.quantile(found, q) == pytest.approx(np.quantile(true, q), rel=0.35)
    assert found.std() == pytest.approx(true.std(), rel=0.25)


def test_sums_per_value_are_as_good_as_their_noise():
    rng = np.random.default_rng(3)
    true, columns = _world(rng)
    sigma = 2 * float(true.mean())
    found = popularity(_noisy(true, sigma, rng), sigma=sigma, columns=columns)
    have, real = (np.bincount(columns["kind"], weights=w) / w.sum() for w in (found, true))
    noise = sigma * np.sqrt(np.bincount(columns["kind"]).max()) / true.sum()
    assert np.abs(have - real).max() < 4 * noise


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_makes_nobody_popular(seed):
    rng = np.random.default_rng(seed)
    columns = {"kind": rng.integers(0, 4, 1500)}
    true = rng.poisson(50.0, 1500).astype(float)
    found = popularity(_noisy(true, 40.0, rng), sigma=40.0, columns=columns)
    assert found.std() == pytest.approx(true.std() / 50, rel=0.5)  # no more than by chance, and no less
    assert found.max() < 1.9
    assert found.min() > 0.4


@pytest.mark.parametrize("seed", range(5))
def test_of_few_rows_none_is_made_an_outcast_by_noise(seed):
    rng = np.random.default_rng(seed)
    true = rng.poisson(300.0, 120).astype(float)
    found = popularity(_noisy(true, 150.0, rng), sigma=150.0, columns={"kind": rng.integers(0, 4, 120)})
    assert 0.5 < found.min() < found.max() < 1.8


def test_empty_hopeless_and_single_rows():
    assert len(popularity(np.zeros(0, dtype=np.int64), sigma=1.0, columns={})) == 0
    assert popularity(np.array([7]), sigma=1.0, columns={"a": np.array([0])}).tolist() == [1.0]
    assert popularity(np.array([-5, 4, 0]), sigma=10.0, columns={}).tolist() == [1.0, 1.0, 1.0]


def test_no_more_is_spent_than_helps():
    def noise(share: float) -> float:
        return 10.0 / np.sqrt(2 * 0.01 * share)

    assert share_for(rho=0.01, l2=10.0, mean=0.0, targets=100) == 0.0
    assert share_for(rho=0.01, l2=10.0, mean=noise(chosen.LOOK) / chosen.HOPELESS * 0.99, targets=5) == 0.0
    assert share_for(rho=0.01, l2=10.0, mean=noise(chosen.LOOK), targets=100) == chosen.LOOK
    little = share_for(rho=0.01, l2=10.0, mean=10_000.0, targets=100)
    assert noise(little) == pytest.approx(10_000.0 * chosen.USEFUL)


def test_weights_of_rows_are_where_links_start_and_counts_of_columns_come_on_top():
    """A kind that the weights make too rare has the links that were counted for it,
    spread over its rows as the weights say.
    """
    rng = np.random.default_rng(0)
    kinds = np.repeat([0, 1], 100)
    weights = rng.lognormal(0.0, 1.0, 200)
    weights[kinds == 1] *= 0.2 * weights[kinds == 0].sum() / weights[kinds == 1].sum()
    problem = LinkProblem(
        {"a": np.arange(5000) % 2}, {"kind": kinds}, shape={"a": 2, "kind": 2}, links=5000, links_measured=5000.0
    )
    degrees = Degrees(left=np.ones(5000, dtype=np.int64), right_weights=weights)
    for measured, wanted in (
        ((), weights[kinds == 1].sum() / weights.sum()),
        ((NoisyMarginal(("kind",), np.array([2500, 2500]), 5.0),), 0.5),
    ):
        pairs = MAP(2).wire(problem, measured, rng=np.random.default_rng(1), degrees=degrees)
        led = np.bincount(pairs[:, 1], minlength=200)
        assert led[kinds == 1].sum() / 5000 == pytest.approx(wanted, abs=0.02)
        for kind in (0, 1):
            own, expected = led[kinds == kind], weights[kinds == kind]
            assert np.abs(own - expected / expected.sum() * own.sum()).max() <= 1.0 + 1e-9
    with pytest.raises(UsageError, match="right_weights"):
        Degrees(right_weights=np.array([1.0, -1.0]))


def _gini(counts: np.ndarray) -> float:
    n = len(counts)
    return float((2 * np.arange(1, n + 1) - n - 1) @ np.sort(counts) / (n * counts.sum()))


@pytest.mark.parametrize(("targets", "sigma"), [(800, 60.0), (4_000, 60.0), (20_000, 60.0)])
def test_the_most_popular_of_a_long_tail_keep_their_links(targets: int, sigma: float) -> None:
    """Noise of up to twelve times the mean count: the few that stand far above it are known all the same."""
    shares = 1 / np.arange(1, targets + 1) ** 1.1
    true = np.random.default_rng(0).multinomial(100_000, shares / shares.sum())
    for seed in range(3):
        found = popularity(_noisy(true, sigma, np.random.default_rng(seed)), sigma=sigma, columns={})
        links = found / found.sum() * true.sum()
        assert links[:10] == pytest.approx(true[:10], rel=0.2)
        assert _gini(links) == pytest.approx(_gini(true), abs=0.055)


def test_a_long_tail_is_worth_counting_for_the_few_that_show() -> None:
    assert share_for(rho=0.01, l2=3.0, mean=1.0, targets=10) == 0.0
    few = share_for(rho=0.01, l2=3.0, mean=10.0, targets=10_000)
    assert 0 < few < chosen.LOOK
    assert few < share_for(rho=0.01, l2=3.0, mean=12.0, targets=10_000) <= chosen.LOOK


@pytest.mark.parametrize(("repeats", "degree"), [("by chance", 1), ("by chance", 6), ("never", 6), ("always", 6)])
def test_owners_are_turned_into_links_however_they_repeat_themselves(repeats, degree):
    rng = np.random.default_rng(0)
    owners, parts = 40_000, np.array([0.5, 0.25, 0.1, 0.05, 0.05, 0.02, 0.01, 0.01, 0.005, 0.005])
    if repeats == "always":
        led = np.repeat(rng.choice(10, (owners, 1), p=parts), degree, axis=1)
    elif repeats == "never":
        led = np.argsort(rng.exponential(size=(owners, 10)) / parts, axis=1)[:, :degree]
    else:
        led = rng.choice(10, (owners, degree), p=parts)
    counts = np.array([(led == j).any(axis=1).sum() for j in range(10)])
    made = of_links(counts / counts.mean(), counts, sigma=10.0, owners=owners, degrees=np.full(100, degree), share=1.0)
    links = np.bincount(led.ravel(), minlength=10)
    np.testing.assert_allclose(made, links / links.mean(), rtol=0.1)
