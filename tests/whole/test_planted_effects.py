"""What is planted across tables survives: several keys to one parent, circles of
tables, one-to-one; and links that bounds hide.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpweave as dw
from dpweave.plan.entries import ColumnPlan, TablePlan
from dpweave.plan.plan import Plan
from tests.weaving.test_weaver import ID, KIND, assert_keys_hold, frame, key, number

KINDS = np.array(list("abc"))


def like(kinds: np.ndarray, of_target: np.ndarray, how_often: float, rng: np.random.Generator) -> np.ndarray:
    """Give each row a target of its own kind so often, else any."""
    own = {k: np.flatnonzero(of_target == k) for k in KINDS}
    same = np.array([rng.choice(own[k]) for k in kinds])
    return np.where(rng.random(len(kinds)) < how_often, same, rng.integers(0, len(of_target), len(kinds)))


def alike(tables: dict[str, pd.DataFrame], table: str, column: str, target: str) -> float:
    """Share of links between rows of the same kind."""
    both = (
        tables[table].dropna(subset=[column]).merge(tables[target], left_on=column, right_on="id", suffixes=("", "_to"))
    )
    return float((both.kind == both.kind_to).mean())


def kept(real: float, copy: float) -> float:
    """Part of a planted effect that is left: 1 all, 0 chance."""
    return (copy - 1 / 3) / (real - 1 / 3)


def woven(plan: Plan, source: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    made = dw.fit(source, plan, epsilon=4.0, delta=1e-6, insecure_seed=1).sample(seed=1).to_pandas()
    assert_keys_hold(plan, made)
    return made


def test_two_keys_to_one_parent_each_keep_their_own_effect():
    """Films in a language; the one they are dubbed into leans the other way."""
    rng = np.random.default_rng(0)
    languages, films = 30, 6000
    plan = Plan(
        (
            TablePlan("language", (ColumnPlan(ID, None), KIND), ("id",)),
            TablePlan(
                "film",
                (
                    ColumnPlan(ID, None),
                    KIND,
                    ColumnPlan(number("spoken", nullable=False), None),
                    ColumnPlan(number("dubbed"), None),
                ),
                ("id",),
                keys=(key("spoken", "language", "attribute"), key("dubbed", "language", "attribute")),
                rows=films,
            ),
        ),
        protect=("film",),
        public=("language",),
    )
    of_language = np.tile(KINDS, languages // 3)
    kinds = rng.choice(KINDS, films)
    other = np.roll(KINDS, 1)[np.searchsorted(KINDS, kinds)]
    dubbed = np.where(rng.random(films) < 0.5, like(other, of_language, 0.7, rng).astype(float), np.nan)
    source = {
        "language": frame(languages, kind=of_language),
        "film": frame(films, kind=kinds, spoken=like(kinds, of_language, 0.7, rng), dubbed=dubbed),
    }
    made = woven(plan, source)
    spoken, turned = ([alike(t, "film", c, "language") for t in (source, made)] for c in ("spoken", "dubbed"))
    assert kept(*spoken) > 0.85
    assert kept(*turned) > 0.85
    assert turned[1] < 1 / 3 < spoken[1]
    assert made["film"].dubbed.isna().mean() == pytest.approx(0.5, abs=0.05)


def test_a_circle_of_tables_keeps_effects_both_ways():
    """Staff work in a shop of their kind; a shop is led by one of its kind."""
    rng = np.random.default_rng(1)
    shops, staff = 1500, 4000
    plan = Plan(
        (
            TablePlan(
                "shop",
                (ColumnPlan(ID, None), KIND, ColumnPlan(number("head"), None)),
                ("id",),
                keys=(key("head", "staff", "linking", 2),),
                rows=shops,
            ),
            TablePlan(
                "staff",
                (ColumnPlan(ID, None), KIND, ColumnPlan(number("shop"), None)),
                ("id",),
                keys=(key("shop", "shop", "linking", 12),),
                rows=staff,
            ),
        ),
        protect=("shop", "staff"),
    )
    of_shop, of_staff = rng.choice(KINDS, shops), rng.choice(KINDS, staff)
    source = {
        "shop": frame(shops, kind=of_shop, head=like(of_shop, of_staff, 0.8, rng)),
        "staff": frame(staff, kind=of_staff, shop=like(of_staff, of_shop, 0.8, rng)),
    }
    made = woven(plan, source)
    for table, column, target in (("shop", "head", "staff"), ("staff", "shop", "shop")):
        assert kept(*(alike(t, table, column, target) for t in (source, made))) > 0.8
        assert made[table][column].value_counts().max() <= plan.promise.bounds[table, column]


@pytest.mark.parametrize("shared", [True, False])
def test_one_to_one_keeps_its_effect(shared):
    """A passport for most people, by a unique key or by the person's own."""
    rng = np.random.default_rng(2)
    people = 3000
    by = "id" if shared else "holder"
    own = () if shared else (ColumnPlan(number("holder", nullable=False), None),)
    plan = Plan(
        (
            TablePlan("person", (ColumnPlan(ID, None), KIND), ("id",), rows=people),
            TablePlan(
                "passport",
                (ColumnPlan(ID, None), KIND, *own),
                ("id",),
                unique=() if shared else (("holder",),),
                keys=(key(by, "person", "owning", 1),),
            ),
        ),
        protect=("person",),
    )
    kinds = rng.choice(KINDS, people)
    holders = np.sort(rng.permutation(people)[:2000])
    kind = np.where(rng.random(2000) < 0.7, kinds[holders], rng.choice(KINDS, 2000))
    passport = {"id": holders, "kind": kind} if shared else {"id": np.arange(2000), "kind": kind, "holder": holders}
    source = {"person": frame(people, kind=kinds), "passport": pd.DataFrame(passport)}
    made = woven(plan, source)
    assert made["passport"][by].is_unique
    assert len(made["passport"]) == pytest.approx(2000, rel=0.1)
    assert kept(*(alike(t, "passport", by, "person") for t in (source, made))) > 0.85


def rented(customers: int, each: int) -> tuple[Plan, dict[str, pd.DataFrame]]:
    """Customers rent ``each`` films and pay for every one; bounds show two of each."""
    films = ColumnPlan(number("customer", nullable=False), None)
    plan = Plan(
        (
            TablePlan("customer", (ColumnPlan(ID, None), KIND), ("id",), rows=customers),
            TablePlan(
                "rental",
                (ColumnPlan(ID, None), KIND, films),
                ("id",),
                keys=(key("customer", "customer", "owning", 2, degree_cap=12),),
            ),
            TablePlan(
                "payment",
                (ColumnPlan(ID, None), KIND, films, ColumnPlan(number("rental"), None)),
                ("id",),
                keys=(
                    key("customer", "customer", "owning", 2, degree_cap=12),
                    key("rental", "rental", "linking", 1),
                ),
            ),
        ),
        protect=("customer",),
    )
    rng = np.random.default_rng(3)
    owner = np.repeat(np.arange(customers), each)
    rentals = frame(len(owner), kind=rng.choice(KINDS, len(owner)), customer=owner)
    source = {
        "customer": frame(customers, kind=rng.choice(KINDS, customers)),
        "rental": rentals,
        "payment": rentals.assign(rental=np.arange(len(owner))),
    }
    return plan, source


def test_links_to_rows_that_bounds_cut_off_are_not_taken_for_nulls():
    """Of eight rentals two are counted, so that three links of four are not seen; none
    of the payments is without one, and that shows in what they say themselves.
    """
    plan, source = rented(1500, 8)
    model = dw.fit(source, plan, epsilon=4.0, delta=1e-6, insecure_seed=2)
    assert model.blueprint.share("payment", "rental") > 0.9
    made = model.sample(seed=2).to_pandas()
    assert_keys_hold(plan, made)
    assert made["payment"].rental.isna().mean() < 0.15
    assert made["payment"].rental.value_counts().max() == 1


@pytest.mark.parametrize("nullable", [False, True])
def test_rows_that_bounds_hide_count_as_much_as_those_they_show(nullable):
    """One customer in five has 40 orders, mostly a; the others have 4, mostly b. Four of each are counted."""
    rng = np.random.default_rng(4)
    heavy = rng.random(4000) < 0.2
    customer = np.repeat(np.arange(4000), np.where(heavy, 40, 4)).astype(float)
    common = np.where(heavy[customer.astype(int)], "a", "b")
    kinds = np.where(rng.random(len(customer)) < 0.8, common, "c")
    if nullable:  # orders of nobody are of the kind that is rare elsewhere
        customer, kinds = np.append(customer, np.full(4000, np.nan)), np.append(kinds, np.full(4000, "c"))
    plan = Plan(
        (
            TablePlan("customer", (ColumnPlan(ID, None),), ("id",), rows=4000),
            TablePlan(
                "orders",
                (ColumnPlan(ID, None), KIND, ColumnPlan(number("customer", nullable=nullable), None)),
                ("id",),
                keys=(key("customer", "customer", "owning", 4),),
            ),
        ),
        protect=("customer",),
    )
    source = {"customer": frame(4000), "orders": frame(len(kinds), kind=kinds, customer=customer)}
    made = woven(plan, source)["orders"]
    assert len(made) == pytest.approx(len(kinds), rel=0.15)
    for orders in (made[made.customer.notna()], made):
        real = source["orders"][source["orders"].customer.notna()] if orders is not made else source["orders"]
        for kind in KINDS:  # as counted, a has 0.16 instead of 0.57
            assert (orders.kind == kind).mean() == pytest.approx((real.kind == kind).mean(), abs=0.06)
    per = made.groupby("customer").kind.agg(["size", lambda k: (k == "a").mean()])
    assert per[per["size"] > 20].iloc[:, 1].mean() > 0.7
    assert per[per["size"] < 10].iloc[:, 1].mean() < 0.1


def test_a_table_whose_noisy_size_is_nothing_hides_no_links():
    plan, source = rented(200, 4)
    model = dw.fit(source, plan, epsilon=4.0, delta=1e-6, insecure_seed=3)
    assert 0 < model.blueprint.share("payment", "rental") < 1
    nothing = replace(model.blueprint, sizes={**model.blueprint.sizes, "rental": 0.0}, degrees={})
    assert nothing.kept["rental"] == 1.0
    replace(model, blueprint=nothing).sample(seed=0)
