"""Rows are paired in order as soon as they are drawn, and both columns stay as they are."""

from __future__ import annotations

import numpy as np
import pytest

from dpweave.plan.entries import ColumnPlan, TablePlan
from dpweave.plan.plan import Plan
from dpweave.plan.rules import Ordered
from dpweave.schema.database import Column, Type
from dpweave.schema.domain import Bins
from dpweave.weaving.kept_rules.order_in_rows import exchanged_for_order


def plan(**edges: tuple[int, ...]) -> Plan:
    columns = [ColumnPlan(Column("id", Type("integer"), nullable=False), None)]
    columns += [ColumnPlan(Column(name, Type("integer")), Bins(ends)) for name, ends in edges.items()]
    rules = tuple(Ordered("stay", a, b) for a, b in zip(list(edges), list(edges)[1:], strict=False))
    return Plan((TablePlan("stay", tuple(columns), ("id",)),), protect=("stay",), constraints=rules)


def wrong(lower: np.ndarray, upper: np.ndarray, null: int) -> int:
    return int(((lower > upper) & (lower < null) & (upper < null)).sum())


@pytest.mark.parametrize("seed", range(3))
def test_both_columns_stay_and_next_to_nothing_is_left_that_could_not_hold(seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = {"came": rng.integers(0, 6, 4000), "left": np.minimum(rng.integers(0, 9, 4000), 5)}
    found = exchanged_for_order(plan(came=(0, 1, 2, 3, 4, 5), left=(0, 1, 2, 3, 4, 5)), "stay", codes, rng)
    assert wrong(codes["came"], codes["left"], 5) > 300
    assert wrong(found["came"], found["left"], 5) < 0.01 * wrong(codes["came"], codes["left"], 5)
    assert (found["came"] == codes["came"]).all()
    assert (np.bincount(found["left"]) == np.bincount(codes["left"])).all()


def test_a_rule_on_the_same_column_is_not_broken_for_another() -> None:
    rng = np.random.default_rng(0)
    ends = (0, 10, 20, 30, 40)
    codes = {name: rng.integers(0, 4, 3000) for name in ("asked", "came", "left")}
    before = [wrong(codes[a], codes[b], 4) for a, b in (("asked", "came"), ("came", "left"))]
    found = exchanged_for_order(plan(asked=ends, came=ends, left=ends), "stay", codes, rng)
    after = [wrong(found[a], found[b], 4) for a, b in (("asked", "came"), ("came", "left"))]
    assert sum(after) < 0.4 * sum(before)  # all could only hold if the three were equal


def test_bins_that_overlap_may_hold_the_rule_and_are_left_alone() -> None:
    codes = {"came": np.array([1, 1, 0]), "left": np.array([0, 0, 1])}
    found = exchanged_for_order(plan(came=(0, 10, 20), left=(0, 15, 20)), "stay", codes, np.random.default_rng(0))
    assert (found["left"] == codes["left"]).all()


def test_rows_of_which_none_can_be_mended_are_left_to_values() -> None:
    codes = {"came": np.full(5, 2), "left": np.zeros(5, dtype=np.int64)}
    found = exchanged_for_order(plan(came=(0, 1, 2, 3), left=(0, 1, 2, 3)), "stay", codes, np.random.default_rng(0))
    assert (found["left"] == 0).all()
