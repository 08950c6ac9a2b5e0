"""Every figure against a slow and obvious way to get it."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpweave.evaluation import distances


def loops_l1(a: list[tuple[int, ...]], b: list[tuple[int, ...]]) -> float:
    left, right = Counter(a), Counter(b)
    return sum(abs(left[c] / len(a) - right[c] / len(b)) for c in {*left, *right})


@pytest.mark.parametrize("dense", [1, 8, 210, 1 << 21])
def test_l1_by_loops(dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distances, "DENSE_CELLS", dense)
    rng = np.random.default_rng(dense)
    sizes = (3, 5, 2, 7)
    databases = [[rng.integers(0, s, n) for s in sizes] for n in (40, 70, 1)]
    shares = list(distances.shares(databases, sizes))
    rows = [list(zip(*(c.tolist() for c in d), strict=True)) for d in databases]
    for i, j in combinations(range(3), 2):
        assert distances.l1_distance(shares[i], shares[j]) == pytest.approx(loops_l1(rows[i], rows[j]), abs=1e-12)


def test_l1_of_nothing() -> None:
    none, some = np.zeros(3), np.array([0.5, 0.5, 0.0])
    assert distances.l1_distance(none, none) == 0.0
    assert distances.l1_distance(none, some) == 2.0
    assert distances.l1_distance(some, np.array([0.0, 0.0, 1.0])) == 2.0


def test_codes_of_huge_domains_do_not_overflow() -> None:
    rng = np.random.default_rng(0)
    codes = [rng.integers(0, 2**31, 50) for _ in range(4)]
    (a, b), _ = distances.cell_numbers([codes, codes], [2**31] * 4)
    assert np.array_equal(a, b)
    assert len(np.unique(a)) == 50


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30), st.lists(st.integers(0, 6), min_size=1, max_size=30))
@settings(max_examples=80, deadline=None)
def test_ks_by_loops(a: list[int], b: list[int]) -> None:
    ours = distances.ks_distance(np.array(a), np.array(b))
    by_loops = max(abs(sum(x <= t for x in a) / len(a) - sum(x <= t for x in b) / len(b)) for t in range(7))
    assert ours == pytest.approx(by_loops, abs=1e-12)


def test_ks_of_nothing() -> None:
    none = np.zeros(0, dtype=np.int64)
    assert distances.ks_distance(none, none) == 0.0
    assert distances.ks_distance(none, np.array([1])) == 1.0


def test_cramers_v_is_scipys() -> None:
    rng = np.random.default_rng(1)
    for shape in ((2, 2), (3, 5), (6, 2)):
        counts = rng.integers(1, 50, shape)
        assert distances.cramers_v(counts.astype(float)) == pytest.approx(
            stats.contingency.association(counts, method="cramer"), abs=1e-12
        )
    assert distances.cramers_v(np.diag([3.0, 4.0, 5.0])) == pytest.approx(1.0)
    assert distances.cramers_v(np.array([[3.0, 0.0], [4.0, 0.0]])) == 0.0
    assert distances.cramers_v(np.zeros((2, 2))) == 0.0
    assert distances.cramers_v(np.zeros((0, 2))) == 0.0


def test_a_copy_that_lacks_a_rare_value_is_not_stronger_for_it() -> None:
    real = np.array([[400.0, 100, 1], [100, 400, 0], [200, 200, 1]])
    copy = real * [1, 1, 0]
    assert distances.cramers_v(copy) > 1.3 * distances.cramers_v(real)
    assert distances.cramers_v(copy, like=real) == pytest.approx(distances.cramers_v(real), rel=0.01)
    assert distances.cramers_v(np.zeros((3, 3)), like=real) == 0.0


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_retention_of_a_mixture_is_its_share(share: float) -> None:
    rng = np.random.default_rng(2)
    real = rng.random((4, 6))
    real /= real.sum()
    independent = np.outer(real.sum(axis=1), real.sum(axis=0))
    mixed = share * real + (1 - share) * independent
    assert distances.retention([1000 * real], [7 * mixed]) == pytest.approx(share, abs=1e-12)


def test_retention_tells_strength_from_direction() -> None:
    same = np.array([[40.0, 10.0], [10.0, 40.0]])
    assert distances.retention([same], [same]) == pytest.approx(1.0)
    assert distances.retention([same], [same[::-1]]) == pytest.approx(-1.0)
    # As strong by Cramér's V, but between other values.
    three = np.array([[30.0, 5, 5], [5, 30.0, 5], [5, 5, 30.0]])
    other = np.roll(three, 1, axis=1)
    assert distances.cramers_v(other) == pytest.approx(distances.cramers_v(three))
    assert distances.retention([three], [other]) < 0
    assert np.isnan(distances.retention([], []))


def test_independent_columns_are_rarely_called_associated_and_dependent_ones_are() -> None:
    rng = np.random.default_rng(3)
    called = sum(
        distances.is_associated(rng.multinomial(500, np.full(12, 1 / 12)).reshape(3, 4).astype(float))
        for _ in range(500)
    )
    assert called < 15
    tilted = np.full((3, 4), 1 / 12) + np.array([[0.03, -0.03, 0, 0], [-0.03, 0.03, 0, 0], [0, 0, 0, 0]])
    found = sum(
        distances.is_associated(rng.multinomial(2000, tilted.ravel()).reshape(3, 4).astype(float)) for _ in range(100)
    )
    assert found > 90
    assert not distances.is_associated(np.zeros((2, 2)))


def test_combinations_are_all_or_a_sample_without_repeats() -> None:
    rng = np.random.default_rng(4)
    assert distances.sampled_combinations("abcd", 2, most=10, rng=rng) == list(combinations("abcd", 2))
    some = distances.sampled_combinations(range(30), 3, most=50, rng=rng)
    assert len(some) == len(set(some)) == 50
    assert all(len(set(c)) == 3 for c in some)
