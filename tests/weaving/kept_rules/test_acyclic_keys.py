"""Self-references without circles: lines end, bounds hold, depth stays what families have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpweave.weaving.kept_rules.acyclic_keys import depths, longest, rehang, settle, time_along_links


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 60), st.integers(1, 3), st.integers(1, 4), st.integers(0, 10_000))
def test_no_circles_are_left_and_no_bound_is_passed(rows: int, keys: int, bound: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    links = [rng.permutation(np.repeat(np.arange(-1, rows), bound))[:rows] for _ in range(keys)]
    before = [link.copy() for link in links]
    settle(links, [bound] * keys, rng)
    assert (depths(links, rows) >= 0).all()
    for link, old in zip(links, before, strict=True):
        assert np.bincount(link[link >= 0], minlength=1).max() <= max(bound, 0)
        assert not ((old < 0) & (link >= 0)).any()  # what led nowhere still does


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 60), st.integers(1, 4), st.integers(0, 10_000))
def test_links_against_time_are_hung_on_what_came_before(rows: int, bound: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    time = rng.integers(0, 6, rows)
    link = rng.permutation(np.repeat(np.arange(-1, rows), bound))[:rows]
    wrong = np.flatnonzero((link >= 0) & (time[np.maximum(link, 0)] >= time))
    right = np.setdiff1d(np.flatnonzero(link >= 0), wrong)
    kept = link[right].copy()
    rehang(link, wrong, time, time[wrong], bound=bound, rng=rng)
    at = np.flatnonzero(link >= 0)
    assert (time[link[at]] < time[at]).all()
    assert (link[right] == kept).all()
    assert np.bincount(link[at], minlength=1).max(initial=0) <= bound


def test_time_is_the_column_that_links_run_along() -> None:
    rng = np.random.default_rng(0)
    year = rng.integers(0, 10, 500)
    parent = np.array([rng.choice(np.flatnonzero(year < y)) if y else -1 for y in year])
    noise = rng.integers(0, 10, 500)
    found = time_along_links([noise, year], [parent], rng)
    assert found is not None
    assert (found == year).all()
    falling = time_along_links([9 - year], [parent], rng)  # years before some date
    assert falling is not None
    assert (falling == year).all()
    assert time_along_links([noise], [parent], rng) is None


def test_rows_without_a_time_come_between_what_they_lead_to_and_what_leads_to_them() -> None:
    rng = np.random.default_rng(1)
    year = np.tile(np.arange(5), 20)
    parent = np.where(year > 0, np.arange(100) - 1, -1)
    some = year.copy()
    some[7] = -1
    found = time_along_links([some], [parent], rng)
    assert found is not None
    assert found[7] == 2
    assert (found == year).all()


def test_a_random_family_of_three_thousand_is_no_deeper_than_chance_has_it() -> None:
    rng = np.random.default_rng(2)
    roots = rng.random(3000) < 0.45
    links = [np.where(roots, -1, rng.integers(0, 3000, 3000)) for _ in range(2)]
    settle(links, [None, None], rng)
    deep = depths(links, 100)
    assert longest(links) == 5
    assert (deep >= 0).all()
    assert deep.max() <= 5
    assert (deep == 0).mean() == pytest.approx(roots.mean(), abs=0.03)


def test_a_firm_with_one_head_stays_a_tree() -> None:
    rng = np.random.default_rng(3)
    boss = rng.integers(0, 1000, 1000)
    boss[0] = -1
    settle([boss], [30], rng)
    deep = depths([boss], 1000)
    assert (deep >= 0).all()
    assert (boss < 0).sum() < 30
    assert deep.max() <= 25


def test_a_single_row_and_no_row_at_all() -> None:
    rng = np.random.default_rng(4)
    alone = np.array([0])
    settle([alone], [1], rng)
    assert alone.tolist() == [-1]
    settle([np.zeros(0, dtype=np.int64)], [1], rng)
