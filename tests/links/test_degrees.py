from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpweave.errors import UsageError
from dpweave.links.degrees import Degrees, bucketed, decode, fill, match_total, seen, telling_cuts, whole
from dpweave.schema.degree_buckets import buckets


def distance(a, b):
    """Kolmogorov–Smirnov distance."""
    grid = np.union1d(a, b)
    return np.abs(
        np.searchsorted(np.sort(a), grid, side="right") / len(a)
        - np.searchsorted(np.sort(b), grid, side="right") / len(b)
    ).max()


LAWS = {
    "geometric": lambda rng: rng.geometric(0.02, 5000),
    "lognormal": lambda rng: np.exp(rng.normal(4.5, 1.0, 5000)).astype(np.int64),
    "starts at 20": lambda rng: 20 + np.exp(rng.normal(4.2, 1.1, 5000)).astype(np.int64),
    "zipf": lambda rng: np.minimum(rng.zipf(2.0, 5000), 2000),
    "poisson": lambda rng: rng.poisson(3.0, 5000),
}


@pytest.mark.parametrize("growth", [1.25, 2.0])
@pytest.mark.parametrize("law", LAWS)
def test_decoding_keeps_distribution_mean_and_tail(law, growth):
    rng = np.random.default_rng(0)
    degrees = LAWS[law](rng)
    edges = buckets(4000, growth=growth)
    back = decode(bucketed(degrees, edges), edges, rng)
    assert (bucketed(back, edges) == bucketed(degrees, edges)).all()
    assert distance(degrees, back) < 0.03
    assert back.mean() == pytest.approx(degrees.mean(), rel=0.05)
    assert np.quantile(back, 0.99) == pytest.approx(np.quantile(degrees, 0.99), rel=0.2)


def test_a_few_stray_rows_below_do_not_bend_the_start():
    rng = np.random.default_rng(3)
    degrees = np.append(LAWS["starts at 20"](rng), np.full(15, 12))
    edges = buckets(4000, growth=2.0)
    assert distance(degrees, decode(bucketed(degrees, edges), edges, rng)) < 0.03


def test_a_flat_draw_within_buckets_would_be_noticed():
    rng = np.random.default_rng(1)
    degrees = LAWS["starts at 20"](rng)
    edges = np.array(buckets(4000, growth=2.0))
    codes = bucketed(degrees, edges)
    flat = rng.integers(edges[codes], edges[codes + 1])
    assert abs(flat.mean() / degrees.mean() - 1) > 0.05 or distance(degrees, flat) > 0.03


@given(st.integers(1, 5000), st.floats(1.05, 4.0))
def test_buckets_cover_every_degree_once(cap, growth):
    edges = buckets(cap, growth=growth)
    assert edges[0] == 0
    assert edges[-1] == cap + 1
    assert (np.diff(edges) >= 1).all()


@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
@settings(max_examples=100, deadline=None)
def test_rounding_and_filling_meet_totals(seed, rows):
    rng = np.random.default_rng(seed)
    cap = int(rng.integers(1, 8))
    total = int(rng.integers(0, rows * cap + 1))
    degrees = match_total(rng.integers(0, cap + 1, rows), total, cap=cap, rng=rng)
    assert degrees.sum() == total
    assert degrees.max(initial=0) <= cap
    capacity = rng.integers(0, 10, rows).astype(float)
    room = float(rng.random() * capacity.sum())
    filled = fill(rng.random(rows) * (rng.random(rows) < 0.7), capacity, room)
    assert filled.sum() == pytest.approx(room)
    assert (filled <= capacity + 1e-9).all()


def test_whole_numbers_are_unbiased():
    rng = np.random.default_rng(2)
    expected = rng.random(12) * 3
    expected *= 20 / expected.sum()
    for shuffle in (False, True):
        draws = np.array([whole(expected, 20, rng, shuffle=shuffle) for _ in range(8000)])
        assert (draws.sum(axis=1) == 20).all()
        assert np.abs(draws - expected).max() < 1 + 1e-9
        assert np.abs(draws.mean(axis=0) - expected).max() < 0.03


def test_share_seen():
    np.testing.assert_allclose(seen(np.array([0, 1, 10, 11, 1000]), 10), [1, 1, 1, 10 / 11, 0.01])


def test_guards_fire():
    with pytest.raises(UsageError, match="left"):
        Degrees(left=np.array([-1]))
    with pytest.raises(UsageError, match="right_seen"):
        Degrees(right_seen=np.ones((2, 2)))
    with pytest.raises(UsageError, match="right_bound = 0"):
        Degrees(right_bound=0)
    with pytest.raises(UsageError, match="make no sense"):
        buckets(0)
    with pytest.raises(UsageError, match="cannot have 5"):
        match_total(np.ones(2, dtype=np.int64), 5, cap=2, rng=np.random.default_rng(0))


def told(degrees, cuts, rows, noise, rng):
    """Share of the variance of sums of degrees that the best linear prediction from
    noisy group counts explains, drawn.
    """
    draws = rng.choice(degrees, (4000, rows))
    codes = np.searchsorted(cuts, draws, side="right")
    counts = np.stack([(codes == g).sum(axis=1) for g in range(len(cuts) + 1)], axis=1) + rng.normal(
        0, noise, (4000, len(cuts) + 1)
    )
    sums = draws.sum(axis=1)
    off = counts - counts.mean(axis=0)
    fitted = off @ np.linalg.lstsq(off, sums - sums.mean(), rcond=None)[0]
    return fitted.var() / sums.var()


@pytest.mark.parametrize("noise", [2.0, 12.0])
def test_cuts_tell_more_of_sums_than_others_do(noise):
    rng = np.random.default_rng(3)
    degrees = LAWS["lognormal"](rng)
    edges = buckets(2000, growth=1.4)
    shares = np.bincount(bucketed(degrees, edges), minlength=len(edges) - 1) / len(degrees)
    cuts = telling_cuts(edges, shares, rows=300.0, noise=noise, most=5)
    best = told(degrees, cuts, 300, noise, rng)
    for other in ([int(np.median(degrees))], [int(np.quantile(degrees, 0.97))]):
        assert best > told(degrees, other, 300, noise, rng) + 0.03


def test_more_noise_makes_fewer_groups_and_never_none():
    edges = buckets(2000, growth=1.4)
    degrees = LAWS["lognormal"](np.random.default_rng(3))
    shares = np.bincount(bucketed(degrees, edges), minlength=len(edges) - 1) / len(degrees)
    found = [len(telling_cuts(edges, shares, rows=300.0, noise=s, most=5)) for s in (0.1, 3.0, 10.0, 1e6)]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1] == 1
    assert len(telling_cuts(edges, shares, rows=300.0, noise=0.1, most=2)) == 2
