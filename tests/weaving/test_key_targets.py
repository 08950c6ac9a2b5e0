"""Targets of keys that share columns with others: bounds hold, and no row leads to itself."""

from __future__ import annotations

import numpy as np
import pytest

from dpweave.plan.entries import ColumnPlan, KeyPlan, TablePlan
from dpweave.plan.plan import Plan
from dpweave.schema.database import Column, ForeignKey, Type
from dpweave.weaving.key_targets import lead_away_from_itself, random_targets
from dpweave.weaving.state import WeavingState


def number(name: str, *, nullable: bool = False) -> ColumnPlan:
    return ColumnPlan(Column(name, Type("integer"), nullable=nullable), None)


def firm() -> Plan:
    """Staff of sites, each with a desk of its site and a boss of its site, as far as it has a site."""
    site = TablePlan("site", (number("id"),), ("id",))
    at = KeyPlan(ForeignKey(("site",), "site", ("id",), name="at"), "owning", 50)
    desk = TablePlan("desk", (number("site"), number("id")), ("site", "id"), keys=(at,))
    staff = TablePlan(
        "staff",
        (number("id"), number("site", nullable=True), number("desk", nullable=True), number("boss", nullable=True)),
        ("id",),
        (("site", "id"),),
        keys=(
            at,
            KeyPlan(ForeignKey(("site", "desk"), "desk", ("site", "id"), name="sits"), "linking", 2),
            KeyPlan(ForeignKey(("site", "boss"), "staff", ("site", "id"), name="led"), "linking", 9),
        ),
    )
    return Plan((site, desk, staff), protect=("site",))


def state(rng: np.random.Generator, rows: int) -> WeavingState:
    """Of the staff, some have no site."""
    made = WeavingState(firm(), {}, seed=0)
    for name, size in (("site", 4), ("desk", 12), ("staff", rows)):
        made.lay(name, size, {c: np.ones(size, dtype=np.int64) for c in made.plan.compile().table[name].model_columns})
    made.links["desk", "at"] = np.arange(12) % 4
    made.links["staff", "at"] = rng.integers(-1, 4, rows)
    return made


@pytest.mark.parametrize("seed", range(5))
def test_a_bound_holds_for_rows_with_and_without_shared_columns_together(seed: int) -> None:
    rng = np.random.default_rng(seed)
    made = state(rng, 60)
    target = random_targets(made, "staff", "sits", degrees=None, rng=rng)
    degree = np.bincount(target[target >= 0], minlength=12)
    assert degree.max() == 2
    assert degree.sum() == 24  # there are more rows than places
    site = made.links["staff", "at"]
    shared = (target >= 0) & (site >= 0)
    assert shared.any()
    assert (made.links["desk", "at"][target[shared]] == site[shared]).all()


@pytest.mark.parametrize("seed", range(5))
def test_rows_that_lead_to_themselves_exchange_targets_within_what_keys_share(seed: int) -> None:
    rng = np.random.default_rng(seed)
    made = state(rng, 60)
    site, key = made.links["staff", "at"], made.plan.database["staff"].key["led"]
    site[:] = np.arange(60) % 4
    boss = np.arange(60)
    boss[rng.permutation(60)[:30]] = -1
    made.links["staff", "led"] = boss.copy()
    lead_away_from_itself(made, "staff", key)
    led = made.links["staff", "led"]
    there = np.flatnonzero(led >= 0)
    assert (led[there] != there).all()
    assert (site[led[there]] == site[there]).all()
    assert np.array_equal(np.sort(led), np.sort(boss))


def test_a_single_row_that_leads_to_itself_leads_nowhere() -> None:
    made = state(np.random.default_rng(0), 1)
    made.links["staff", "led"] = np.array([0])
    lead_away_from_itself(made, "staff", made.plan.database["staff"].key["led"])
    assert made.links["staff", "led"].tolist() == [-1]
