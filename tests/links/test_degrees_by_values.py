from __future__ import annotations

import numpy as np
import pytest

from dpweave.links.degrees_by_values import deal, tilts


def people(rng, rows=20_000, effect=0.3):
    """Heavy-tailed degrees whose logarithm depends on ``a``, not on ``b``; ``a`` has small groups too."""
    a = rng.choice(6, rows, p=[0.4, 0.3, 0.2, 0.05, 0.03, 0.02])
    b = rng.integers(0, 3, rows)
    shift = effect * np.array([0.0, 1.0, -1.0, 1.0, -1.0, 0.0])
    degrees = np.exp(3 + shift[a] + rng.normal(size=rows)).astype(np.int64)
    return {"a": a, "b": b}, degrees, (degrees > degrees.mean()).astype(np.int64)


def blind(degrees, groups, rng):
    out = degrees.copy()
    for group in np.unique(groups):
        at = np.flatnonzero(groups == group)
        out[at] = rng.permutation(degrees[at])
    return out


def means(degrees, values):
    return np.bincount(values, weights=degrees) / np.bincount(values)


def test_dealing_keeps_every_degree_in_its_group():
    rng = np.random.default_rng(0)
    rows, degrees, groups = people(rng, rows=500)
    dealt = deal(degrees, groups, rows, rng)
    for group in (0, 1):
        assert sorted(dealt[groups == group]) == sorted(degrees[groups == group])


@pytest.mark.parametrize("seed", range(5))
def test_means_per_value_follow_from_two_groups(seed):
    rng = np.random.default_rng(seed)
    rows, degrees, groups = people(rng)
    true = means(degrees, rows["a"])
    drawn = blind(degrees, groups, rng)
    off = [np.abs(means(d, rows["a"]) / true - 1) for d in (drawn, deal(drawn, groups, rows, rng))]
    assert off[1][:3].max() < 0.05 < off[0][:3].max()


def test_a_column_without_effect_gets_none_and_even_sums():
    rng = np.random.default_rng(1)
    rows, degrees, groups = people(rng)
    drawn = blind(degrees, groups, rng)
    spread = [np.ptp(means(d, rows["b"])) / degrees.mean() for d in (drawn, deal(drawn, groups, rows, rng))]
    assert spread[1] < 0.04


def test_tilts_are_those_of_the_groups():
    rng = np.random.default_rng(2)
    rows, degrees, groups = people(rng, rows=100_000, effect=0.2)
    size = np.log1p(degrees)
    size = (size - size.mean()) / size.std()
    score = means(size, groups)[groups]
    found = tilts(score, rows, {"a": 6, "b": 3})
    by_value = means(found, rows["a"])
    assert by_value[1] - by_value[2] == pytest.approx(0.4 / np.log1p(degrees).std(), rel=0.2)
    assert abs(means(found, rows["b"])).max() < 0.05


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows_and_no_columns_are_left_alone(rows):
    nobody = np.zeros(rows, dtype=np.int64)
    assert len(deal(nobody, nobody, {"a": nobody}, np.random.default_rng(0))) == rows
    assert deal(np.array([3, 4]), np.array([0, 0]), {}, np.random.default_rng(0)).tolist() == [3, 4]
