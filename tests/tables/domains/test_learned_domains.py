"""Learned domains: where rows are, how they are cut, and that noise alone never makes a range or a degree."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from dpweave.plan.relations import ANY_DEGREE
from dpweave.privacy.window import NoisyMarginal
from dpweave.schema.codec import Codec
from dpweave.schema.database import Column, Type
from dpweave.schema.domain import Bins, Learn, bins_at, to_axis
from dpweave.tables.domains.learned_domains import categories_from, public_bins
from dpweave.tables.domains.learned_ranges import Look, body, far_points, known_points, learn_bins

CELLS = len(ANY_DEGREE) - 1


def noisy(counts: np.ndarray, sigma: float, rng: np.random.Generator) -> NoisyMarginal:
    return NoisyMarginal(("x",), np.rint(counts + rng.normal(0, sigma, counts.shape)).astype(np.int64), sigma)


def counter(kind: Type, values: np.ndarray, sigma_at_one: float, rng: np.random.Generator):
    def measure(bins: Bins, rho: float) -> NoisyMarginal:
        axis = np.array([to_axis(kind, e) for e in bins.edges])
        cell = np.clip(np.searchsorted(axis, values, side="right") - 1, 0, bins.cells - 1)
        return noisy(np.bincount(cell, minlength=bins.cells), sigma_at_one / np.sqrt(rho), rng)

    return measure


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Type("integer"), np.random.default_rng(0).integers(18, 91, 20_000)),
        (Type("float"), np.random.default_rng(0).normal(100.0, 15.0, 20_000)),
        (Type("integer", bits=8), np.random.default_rng(0).integers(1, 6, 20_000)),
    ],
)
def test_learned_bins_hold_about_equal_shares(kind: Type, values: np.ndarray) -> None:
    bins = learn_bins(kind, Learn(bins=8), counter(kind, values, 1.0, np.random.default_rng(1)), rho=0.05)
    axis = np.array([to_axis(kind, e) for e in bins.edges])
    shares = np.histogram(np.clip(values, axis[0], np.nextafter(axis[-1], axis[0])), axis)[0] / len(values)
    assert 4 <= bins.cells <= 8
    assert shares.max() < 0.35
    assert axis[0] > np.quantile(values, 0.02) - 3 * np.ptp(values) / 8
    assert axis[-1] < np.quantile(values, 0.98) + 3 * np.ptp(values) / 8


CODES, ROWS = np.array([1, 18, 25, 35, 45, 50, 56]), np.array([222, 1103, 2096, 1193, 550, 496, 380])


@pytest.mark.parametrize("seed", range(5))
def test_codes_that_look_like_numbers_come_back_as_themselves(seed: int) -> None:
    """Ages of MovieLens: seven values of which the numbers between never occur."""
    kind, values = Type("integer"), np.repeat(CODES, ROWS)
    bins = learn_bins(kind, Learn(), counter(kind, values, 1.0, np.random.default_rng(seed)), rho=0.002)
    codec = Codec(Column("age", kind, nullable=False), bins)
    codes = np.clip(np.searchsorted(bins.edges, values, side="right") - 1, 0, bins.cells - 1)
    made = codec.decode(codes, np.random.default_rng(seed)).to_numpy()
    assert np.isin(made, CODES).all()
    shares = [np.bincount(x, minlength=57)[CODES] / len(values) for x in (made, values)]
    assert np.abs(shares[0] - shares[1]).sum() < 0.06


def test_smooth_columns_have_no_spots_where_noise_hides_them() -> None:
    kind, values = Type("integer"), np.random.default_rng(0).integers(18, 91, 20_000)
    heavy = learn_bins(kind, Learn(), counter(kind, values, 20.0, np.random.default_rng(1)), rho=0.05)
    assert heavy.cells > 4
    assert not heavy.spots
    light = learn_bins(kind, Learn(), counter(kind, values, 0.5, np.random.default_rng(1)), rho=0.05)
    weight = sum(w for _, _, w in light.spots) + sum(
        np.isin(values, range(a, b)).sum()
        for a, b in pairwise(light.edges)
        if not any(a <= s < b for s, _, _ in light.spots)
    )
    assert weight == pytest.approx(20_000, rel=0.02)


def test_noise_far_away_does_not_stretch_the_range() -> None:
    """Three standard deviations anywhere would stretch it in one column of fifty."""
    kind, rng = Type("integer"), np.random.default_rng(7)
    points = tuple(far_points(kind, Learn()))
    measure = counter(kind, np.repeat(CODES, ROWS), 100.0, rng)
    ends = []
    for _ in range(500):
        seen = measure(bins_at(kind, points), 1.0)
        found = body(Look(points, seen.counts.astype(float), seen.sigma))
        assert found
        ends.append((points[found[0]], points[found[1] + 1]))
    assert sum(high > 4096 or low < -256 for low, high in ends) <= 3
    assert sum(high > 256 for _, high in ends) < 25
    assert all(low <= 16 and high >= 256 for low, high in ends)


def test_a_declared_range_costs_one_histogram() -> None:
    asked = []
    measure = counter(Type("integer"), np.arange(1000) % 50, 1.0, np.random.default_rng(2))

    def counting(bins: Bins, rho: float) -> NoisyMarginal:
        asked.append(rho)
        return measure(bins, rho)

    bins = learn_bins(Type("integer"), Learn(low=0, high=49, bins=5), counting, rho=0.5)
    assert asked == [0.5]
    assert bins.edges[0] >= 0
    assert bins.edges[-1] <= 50


def test_no_rows_give_a_domain_all_the_same() -> None:
    for kind in (Type("integer"), Type("float"), Type("date"), Type("time"), Type("decimal", precision=6, scale=2)):
        bins = learn_bins(kind, Learn(), counter(kind, np.zeros(0), 1.0, np.random.default_rng(3)), rho=0.1)
        assert bins.cells >= 1


@pytest.mark.parametrize("of", [known_points, far_points])
def test_points_rise_and_cover_what_is_declared(of) -> None:
    points = of(Type("integer"), Learn(low=10))
    assert points[0] == 10
    for bits, signed, ends in [(8, True, (-128, 128)), (8, False, (0, 256)), (16, True, (-(2**15), 2**15))]:
        points = of(Type("integer", bits=bits, signed=signed), Learn())
        assert points == sorted(set(points))
        assert (points[0], points[-1]) == ends  # all that the type can hold


def test_categories_come_commonest_first() -> None:
    assert categories_from({"b": 3, "a": 3, "c": 9}).values == ("c", "a", "b")
    assert categories_from({}).cells == 1


def test_public_bins_tell_few_values_apart() -> None:
    bins = public_bins(Type("integer"), [1, 18, 25, None], bins=8)
    assert bins.edges[:3] == (1, 18, 25)
    assert public_bins(Type("integer"), list(range(100)), bins=8).cells == 8
