"""Assignments against slow ones: the same targets as pair by pair, no more rows than there is room for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpweave.links.wiring.assign import Candidates, assign, assign_at_random, noisy


def slow_assign(candidates: Candidates, capacity: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Take pairs from the highest score to the lowest; keep each whose row is free and whose target has room."""
    target, room = np.full(candidates.rows, -1), capacity.copy()
    for pair in sorted(range(len(score)), key=lambda p: (-score[p], candidates.row[p], p)):
        i, j = candidates.row[pair], candidates.target[pair]
        if score[pair] > -np.inf and target[i] < 0 and room[j] > 0:
            target[i], room[j] = j, room[j] - 1
    return target


@st.composite
def problems(draw: st.DrawFn) -> tuple[Candidates, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, targets = draw(st.integers(0, 15)), draw(st.integers(1, 12))
    there = np.argwhere(rng.random((rows, targets)) < draw(st.floats(0, 1)))
    there = rng.permutation(there)
    score = rng.normal(size=len(there))
    if draw(st.booleans()):  # scores that tie
        score = np.round(score)
    score[rng.random(len(score)) < 0.1] = -np.inf
    return Candidates(there[:, 0], there[:, 1], rows), rng.integers(0, 4, targets), score


@given(problems())
@settings(max_examples=400, deadline=None)
def test_the_same_targets_as_pair_by_pair(problem: tuple[Candidates, np.ndarray, np.ndarray]) -> None:
    assert assign(*problem).tolist() == slow_assign(*problem).tolist()


@given(problems())
@settings(max_examples=200, deadline=None)
def test_no_row_and_target_would_both_rather_have_each_other(
    problem: tuple[Candidates, np.ndarray, np.ndarray],
) -> None:
    candidates, capacity, score = problem
    target = assign(*problem)
    value = {(i, j): s for i, j, s in zip(candidates.row, candidates.target, score, strict=True)}
    assert (np.bincount(target[target >= 0], minlength=len(capacity)) <= capacity).all()
    for (i, j), s in value.items():
        mine = value[i, target[i]] if target[i] >= 0 else -np.inf
        theirs = sorted((value[k, j] for k in np.flatnonzero(target == j)), reverse=True)
        least = -np.inf if len(theirs) < capacity[j] else theirs[-1] if theirs else np.inf
        assert not (s > mine and s > least)


def test_many_rows_nearly_fill_what_room_there_is() -> None:
    """A hundred thousand rows with twelve candidates each, and hardly more places than rows."""
    rng = np.random.default_rng(0)
    rows, many = 100_000, 12
    candidates = Candidates(np.repeat(np.arange(rows), many), rng.integers(0, rows // 3, rows * many), rows)
    found = assign(candidates, np.full(rows // 3 + 1, 3), rng.normal(size=rows * many))
    assert (found >= 0).mean() > 0.95
    assert np.bincount(found[found >= 0]).max() == 3


def test_noisy_scores_draw_in_proportion() -> None:
    rng = np.random.default_rng(1)
    odds = np.tile(np.log([1.0, 2.0, 5.0]), 20_000)
    candidates = Candidates(np.repeat(np.arange(20_000), 3), np.tile(np.arange(3), 20_000), 20_000)
    found = assign(candidates, np.full(3, 20_000), noisy(odds, len(odds), rng))
    assert np.bincount(found) / 20_000 == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=0.015)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_at_random_rows_stay_in_their_group_and_fill_what_room_there_is(data: st.DataObject) -> None:
    numbers = st.integers(0, 4)
    group, targets = (np.array(data.draw(st.lists(numbers, max_size=30)), dtype=np.int64) for _ in range(2))
    capacity = np.array(data.draw(st.lists(numbers, min_size=len(targets), max_size=len(targets))), dtype=np.int64)
    found = assign_at_random(group, targets, capacity, rng=np.random.default_rng(data.draw(st.integers(0, 9))))
    there = np.flatnonzero(found >= 0)
    assert (targets[found[there]] == group[there]).all()
    assert (np.bincount(found[there], minlength=len(targets)) <= capacity).all()
    for g in range(5):
        assert (group[there] == g).sum() == min((group == g).sum(), capacity[targets == g].sum())
    free = assign_at_random(group, targets, None, rng=np.random.default_rng(0))
    assert np.array_equal(free >= 0, np.isin(group, targets))
    assert (targets[free[free >= 0]] == group[free >= 0]).all()


def test_at_random_targets_are_drawn_in_proportion_to_their_room() -> None:
    rng = np.random.default_rng(2)
    rounds = 20_000
    capacity, groups = np.tile([3, 2, 0], rounds), np.repeat(np.arange(rounds), 3)
    found = assign_at_random(np.arange(rounds), groups, capacity, rng=rng)
    assert np.bincount(found % 3, minlength=3) / rounds == pytest.approx([0.6, 0.4, 0.0], abs=0.015)


def test_at_random_nobody_is_preferred_where_room_is_short() -> None:
    rng = np.random.default_rng(3)
    rounds = 20_000
    found = assign_at_random(np.repeat(np.arange(rounds), 3), np.arange(rounds), np.full(rounds, 2), rng=rng)
    assert (found >= 0).reshape(rounds, 3).mean(axis=0) == pytest.approx([2 / 3] * 3, abs=0.015)
