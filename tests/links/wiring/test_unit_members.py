"""Rows that are chosen for each other, and the place of those that they replace."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpweave.links.link_fit import LinkFit
from dpweave.links.wiring import unit_members as module
from dpweave.links.wiring.unit_members import Members, Seekers, choose_members, draw_partners
from dpweave.measure.cross_workloads import Workload
from dpweave.measure.estimates import Estimate, estimates
from dpweave.measure.per_unit.clipped_counts import Clipped
from dpweave.measure.question import Question
from dpweave.privacy.window import NoisyUnitSum, Units, UnitSum


def fit(log_odds: float = 0.0) -> LinkFit:
    """Rows lead to those of the same colour."""
    return LinkFit({"a": 3, "b": 3}, {Workload(("a",), ("b",)): log_odds * np.eye(3)}, 0, converged=True)


@given(st.data())
def test_no_row_takes_two_places_and_no_unit_gives_two_away(data: st.DataObject) -> None:
    colours = st.integers(0, 2)
    left = data.draw(st.lists(st.tuples(st.integers(0, 5), colours), max_size=12))
    right = data.draw(st.lists(st.tuples(st.integers(0, 7), colours, st.booleans(), st.integers(0, 3)), max_size=20))
    units, a = (np.array([x[i] for x in left], dtype=np.int64) for i in range(2))
    unit_of, b, free, time = (np.array([x[i] for x in right], dtype=np.int64) for i in range(4))
    timed = data.draw(st.booleans())
    seekers = Seekers({"a": a}, units, np.full(len(a), 2) if timed else None)
    members = Members({"b": b}, unit_of, np.flatnonzero(free), time if timed else None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", data.draw(st.sampled_from([1, 9, 1 << 22])))
        found = choose_members(fit(1.0), seekers, members, rng=np.random.default_rng(0))
    assert len(set(found.unit)) == len(found.unit)
    assert len(set(found.comes)) == len(found.comes)
    assert set(found.unit) <= set(units)
    assert free[found.comes].all()
    assert free[found.leaves].all()
    assert (unit_of[found.leaves] == found.unit).all()
    assert not timed or (time[found.comes] < 2).all()


def test_who_suits_takes_the_place_as_often_as_it_is_likelier() -> None:
    """Two siblings of different colours lead to either as much as the mean of both says."""
    count = 4000
    unit, a = np.repeat(np.arange(count), 2), np.tile([0, 1], count)
    unit_of, b = np.arange(3 * count) % count, np.random.default_rng(1).integers(0, 3, 3 * count)
    members = Members({"b": b}, unit_of, np.arange(3 * count))
    found = choose_members(fit(2.0), Seekers({"a": a}, unit), members, rng=np.random.default_rng(0))
    assert len(found.unit) == count
    shares = np.bincount(b[found.comes], minlength=3) / count
    # Rows are taken for good, so that those who suit run out a little.
    assert shares[:2] == pytest.approx([np.e / (2 * np.e + 1)] * 2, abs=0.04)


def test_the_best_row_of_a_unit_gives_up_its_place() -> None:
    members = Members({"b": np.array([2, 1, 0])}, np.zeros(3, dtype=np.int64), np.array([0, 1]))
    found = choose_members(
        fit(3.0), Seekers({"a": np.array([1])}, np.array([0])), members, rng=np.random.default_rng(0)
    )
    assert found.leaves.tolist() == [1]


def test_those_that_must_not_meet_do_not() -> None:
    allowed = np.random.default_rng(0).random((30, 40)) < 0.3
    found = draw_partners(
        30, 40, lambda i, j: np.where(allowed[np.ix_(i, j)], 0.0, -np.inf), rng=np.random.default_rng(0)
    )
    there = np.flatnonzero(found >= 0)
    assert len(there) > 20
    assert allowed[there, found[there]].all()
    assert len(set(found[there])) == len(there)


class Asked:
    """A window that keeps what it is asked for."""

    shape: ClassVar = {"a": 3, "b": 4}

    def l2(self, columns: tuple[str, ...]) -> float:
        return 6.0

    def measure_unit_sums(self, unit_sums, *, rho, weights=None):
        self.unit_sums, self.rho, self.weights = unit_sums, rho, weights
        return tuple(NoisyUnitSum(b, np.zeros((3, 4, 1)), 1.0) for b in unit_sums)


def test_clips_grow_with_the_budget_up_to_all_that_a_unit_can_have() -> None:
    window = Asked()
    counts = Clipped(window, Units(6, frozenset()), links=3000.0)  # type: ignore[arg-type]
    clips = []
    for rho in (1e-4, 0.1, 10.0, 1e6):
        (noisy,) = counts.measure([("a", "b")], rho=rho)
        assert not Question.of(noisy).plain
        clips.append(window.unit_sums[0].clip)
        assert (window.rho, window.unit_sums[0].columns) == (rho, ("a", "b"))
    assert clips[0] == 1.0
    assert clips == sorted(clips)
    assert clips[-1] == pytest.approx(6.0)
    assert counts.l2(("a", "b")) == 2.0


def test_what_clipping_takes_is_made_good_as_far_as_noise_lets_it_be_seen() -> None:
    counts = np.array([[300.0, 100.0], [200.0, 0.0]])
    unit_sum = UnitSum(("a", "b"), ((),), (1.0,), 1.0)

    def read(sigma: float) -> Estimate:
        noisy = NoisyUnitSum(unit_sum, counts[..., None], sigma)
        (found,) = estimates(noisy, {"a": 2, "b": 2}, lambda _: np.array(1000.0))
        assert found.columns == ("a", "b")
        return found

    sure = read(0.1)
    assert sure.counts.sum() == pytest.approx(1000, rel=0.01)
    assert sure.sigma == pytest.approx(0.1 / 0.6, rel=0.01)
    assert read(1e5).counts.sum() == pytest.approx(600, rel=0.01)
