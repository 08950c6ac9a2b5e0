"""Pairs that repeat: as many as measured, with every degree and every count over kinds kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpweave.links.wiring.repeated_pairs import Pairs, repeat


def pairs(
    rng: np.random.Generator, *, rows: int = 2000, owners: int = 300, targets: int = 400, kinds: int = 3, **more: object
) -> Pairs:
    given_ = {
        "owner": rng.integers(0, owners, rows),
        "target": rng.integers(0, targets, rows),
        "place": np.zeros(rows, dtype=np.int64),
        "kind": rng.integers(0, kinds, rows),
        "target_kind": rng.integers(0, 4, targets),
        "seen": np.ones(rows, dtype=bool),
    }
    return Pairs(**(given_ | more))  # type: ignore[arg-type]


def share_of(owner: np.ndarray, target: np.ndarray) -> float:
    found = set(zip(owner.tolist(), target.tolist(), strict=True))
    return 1 - len(found) / len(owner)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_the_measured_share_is_met_and_what_was_learned_stays(share: float) -> None:
    rng = np.random.default_rng(0)
    given_ = pairs(rng)
    found = repeat(given_, share=share, error=0.0, rng=rng)
    assert share_of(given_.owner, found.target) == pytest.approx(share, abs=0.001)
    assert found.reached == pytest.approx(found.wanted)
    assert np.array_equal(np.bincount(found.target, minlength=400), np.bincount(given_.target, minlength=400))
    for targets in (given_.target, found.target):
        cells = given_.kind * 4 + given_.target_kind[targets]
        before = np.bincount(given_.kind * 4 + given_.target_kind[given_.target], minlength=12)
        assert np.array_equal(np.bincount(cells, minlength=12), before)


@pytest.mark.parametrize(("owners", "targets"), [(300, 400), (300, 30)])
def test_high_shares_are_met_as_far_as_edges_without_circles_go(owners: int, targets: int) -> None:
    """With three rows of four repeating, pairs of two have to gather into larger ones."""
    rng = np.random.default_rng(5)
    given_ = pairs(rng, owners=owners, targets=targets)
    always = 1 - (owners + targets - 1) / 2000
    found = repeat(given_, share=0.95 * always, error=0.0, rng=rng)
    assert found.reached == pytest.approx(0.95 * always, abs=0.001)
    assert np.array_equal(np.bincount(found.target), np.bincount(given_.target))


def test_what_chance_gives_is_left_alone_within_the_error_of_the_measurement() -> None:
    rng = np.random.default_rng(1)
    given_ = pairs(rng, targets=20)
    chance = share_of(given_.owner, given_.target)
    found = repeat(given_, share=chance + 0.05, error=0.06, rng=rng)
    assert np.array_equal(found.target, given_.target)
    found = repeat(given_, share=chance + 0.2, error=0.05, rng=rng)
    assert found.reached == pytest.approx(chance + 0.15, abs=0.002)


def test_only_what_a_bounded_view_shows_is_compared() -> None:
    rng = np.random.default_rng(2)
    given_ = pairs(rng, owners=100, targets=40)
    seen = np.zeros(2000, dtype=bool)
    seen[np.unique(given_.owner, return_index=True)[1]] = True
    seen[rng.integers(0, 2000, 500)] = True
    found = repeat(pairs(rng, **{**vars(given_), "seen": seen}), share=0.2, error=0.0, rng=rng)
    assert share_of(given_.owner[seen], found.target[seen]) == pytest.approx(0.2, abs=0.005)


def test_where_owners_have_one_row_each_nothing_can_repeat() -> None:
    rng = np.random.default_rng(3)
    found = repeat(pairs(rng, owner=np.arange(2000)), share=0.5, error=0.0, rng=rng)
    assert (found.before, found.wanted, found.reached) == (0.0, 0.5, 0.0)


def test_targets_that_are_led_to_once_cannot_be_shared_and_it_is_said() -> None:
    rng = np.random.default_rng(4)
    single = pairs(rng, target=np.arange(2000), target_kind=np.zeros(2000, dtype=np.int64))
    found = repeat(single, share=0.5, error=0.0, rng=rng)
    assert found.reached == 0.0 < found.wanted
    assert np.array_equal(np.sort(found.target), np.arange(2000))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(1, 8), st.integers(1, 8), st.floats(0, 1), st.integers(0, 10_000))
def test_any_rows_keep_their_degrees_and_places(rows: int, owners: int, targets: int, share: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    place = rng.integers(0, 2, rows)
    given_ = pairs(rng, rows=rows, owners=owners, targets=targets, place=place)
    found = repeat(given_, share=share, error=0.0, rng=rng)
    assert share_of(given_.owner, found.target) == pytest.approx(found.reached)
    before, after = (np.bincount(place * targets + t, minlength=2 * targets) for t in (given_.target, found.target))
    assert np.array_equal(before, after)
    assert abs(found.reached - found.wanted) <= abs(found.before - found.wanted) + 1e-12
