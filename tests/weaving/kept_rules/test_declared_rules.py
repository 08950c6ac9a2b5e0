"""Rows whose values may not go together: found, and mended where a mechanism knows no zeros."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpweave as dw
from dpweave.errors import PlanError
from dpweave.model.coded_database import encode
from dpweave.plan.entries import ColumnPlan, KeyPlan, TablePlan
from dpweave.plan.plan import Plan
from dpweave.plan.rules import Allowed, Equal, Exactly
from dpweave.report.integrity import check
from dpweave.schema.database import Column, ForeignKey, Type
from dpweave.schema.domain import Categories
from dpweave.weaving import parts
from dpweave.weaving.kept_rules.declared_rules import breaking, mend, off_rows, shared_out

RULE = Allowed("t", ("a", "b"), (("x", 1), ("y", None)))
OTHER = Allowed("t", ("b", "c"), "known", ("p", "q"))
KNOWN = pa.table({"p": [1, None, 1], "q": [True, False, True]})


def table(a: list[str], b: list[int | None], c: list[bool]) -> dict[str, pa.Table]:
    return {"t": pa.table({"a": a, "b": pa.array(b, pa.int32()), "c": c, "d": list(range(len(a)))}), "known": KNOWN}


def test_rows_that_break_a_rule_are_found_nulls_too() -> None:
    tables = table(["x", "x", "y", "y"], [1, None, None, 1], [True, True, False, True])
    assert breaking(RULE, tables).tolist() == [False, True, False, True]
    assert breaking(OTHER, tables).tolist() == [False, True, False, False]
    assert breaking(RULE, table([], [], [])).tolist() == []


def test_mended_rows_take_values_of_rows_that_keep_all_rules() -> None:
    tables = table(["x", "x", "y", "y"], [1, None, None, 1], [True, True, False, True])
    assert mend([RULE, OTHER], tables) == {str(RULE): 2, str(OTHER): 1}
    assert not breaking(RULE, tables).any()
    assert not breaking(OTHER, tables).any()
    assert tables["t"].slice(0, 1).to_pylist() == [{"a": "x", "b": 1, "c": True, "d": 0}]
    assert tables["t"]["d"].to_pylist() == [0, 1, 2, 3]
    assert tables["t"].schema.field("b").type == pa.int32()


def test_where_no_row_keeps_them_a_combination_that_does_is_taken() -> None:
    tables = table(["x", "y"], [None, 1], [True, False])
    mend([RULE, OTHER], tables)
    assert not breaking(RULE, tables).any()
    assert not breaking(OTHER, tables).any()


def shop_plan(*, numbered: bool, **options: object) -> Plan:
    """Customers own orders, orders own items, items lead to products; ``options`` of the items' owning key."""

    def column(name: str, *, nullable: bool = False) -> ColumnPlan:
        return ColumnPlan(Column(name, Type("integer"), nullable=nullable), None)

    def key(name: str, target: str, role: str, **more: object) -> KeyPlan:
        return KeyPlan(ForeignKey((name,), target, ("id",)), role, 6, **more)  # type: ignore[arg-type]

    kind = ColumnPlan(Column("kind", Type("text"), nullable=False), Categories(("a", "b", "c")))
    own = ("order", "nr") if numbered else ("order", "product")
    item = TablePlan(
        "items",
        (column("order"), column("nr"), column("product"), kind),
        own,
        keys=(key("order", "orders", "owning", **options), key("product", "products", "linking")),
    )
    orders = TablePlan(
        "orders", (column("id"), column("customer"), kind), ("id",), keys=(key("customer", "customers", "owning"),)
    )
    tables = (TablePlan("customers", (column("id"), kind), ("id",)), orders, item)
    return Plan((*tables, TablePlan("products", (column("id"), kind), ("id",))), protect=("customers", "products"))


def shop(seed: int, customers: int = 120) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(customers), rng.integers(0, 4, customers))
    order = np.repeat(np.arange(len(owner)), rng.integers(1, 4, len(owner)))

    def kinds(rows: int) -> np.ndarray:
        return rng.choice(["a", "b", "c"], rows, p=[0.6, 0.3, 0.1])

    product = rng.integers(0, 60, len(order))
    items = pd.DataFrame({"order": order, "nr": 0, "product": product, "kind": kinds(len(order))})
    items["nr"] = items.groupby("order").cumcount()
    return {
        "customers": pd.DataFrame({"id": np.arange(customers), "kind": kinds(customers)}),
        "orders": pd.DataFrame({"id": np.arange(len(owner)), "customer": owner, "kind": kinds(len(owner))}),
        "items": items.drop_duplicates(["order", "product"]),
        "products": pd.DataFrame({"id": np.arange(60), "kind": kinds(60)}),
    }


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("epsilon", [1.0, 5.0])
def test_every_order_has_an_item(numbered: bool, epsilon: float) -> None:
    free, plan = shop_plan(numbered=numbered), shop_plan(numbered=numbered, min_degree=1)
    assert Plan.from_toml(plan.to_toml()) == plan
    bare = 0
    for seed in range(2):
        models = [dw.fit(shop(seed), p, epsilon=epsilon, delta=1e-6, insecure_seed=seed) for p in (free, plan)]
        made = [model.sample(seed=seed) for model in models]
        without, database = (db.to_pandas() for db in made)
        bare += len(set(without["orders"].id) - set(without["items"].order))
        assert len(database["orders"])
        assert set(database["orders"].id) == set(database["items"].order)
        checks = check(plan, dict(made[1]), encode(plan, dict(made[1])), public={})
        assert any(c.rule == "at least 1 rows per target" for c in checks)
        assert all(c.passed or c.advisory for c in checks)
    assert bare > 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"min_degree": -1}, "at least 0, not -1"),
        ({"min_degree": True}, "at least 0, not True"),
        ({"min_degree": 7}, "more than an owner may have"),
        ({"min_degree": 4, "degree_cap": 3}, "more than an owner may have"),
    ],
)
def test_least_degrees_that_cannot_be_are_refused(options: dict[str, int], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        shop_plan(numbered=True, **options)


def test_least_degrees_are_for_owners() -> None:
    plan = shop_plan(numbered=True)
    items = plan.table["items"]
    keys = (items.keys[0], replace(items.keys[1], min_degree=1))
    with pytest.raises(PlanError, match="only a key by which another table owns rows"):
        replace(plan, tables=tuple(replace(t, keys=keys) if t.name == "items" else t for t in plan.tables))
    sized = {"orders": 100, "items": 150}
    tables = (replace(t, rows=sized[t.name], rows_public=True) if t.name in sized else t for t in plan.tables)
    plan = replace(plan, tables=tuple(tables))
    items = plan.table["items"]
    items = replace(items, keys=(replace(items.keys[0], min_degree=2), items.keys[1]))
    with pytest.raises(PlanError, match="150 public rows for 100 owners"):
        replace(plan, tables=tuple(items if t.name == "items" else t for t in plan.tables))


@given(links=st.lists(st.integers(-1, 7), max_size=60), least=st.integers(0, 4))
def test_rows_are_shared_out(links: list[int], least: int) -> None:
    before = np.array(links, dtype=np.int64)
    after = shared_out(before, 8, least)
    assert ((before < 0) == (after < 0)).all()
    degrees, had = (np.bincount(x[x >= 0], minlength=8) for x in (after, before))
    assert (degrees >= np.minimum(had, least)).all()
    assert degrees.min() >= least or degrees.max() <= least
    assert (after != before).sum() == np.maximum(degrees - had, 0).sum()


ONE = Exactly("items", "order", "kind", "b")


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("exactly", [1, 2])
def test_a_value_comes_exactly_as_often_as_declared(numbered: bool, exactly: int) -> None:
    """Also where it is false, or where rows may not change places: keys hold, rows keep the shares of their values."""
    rule = replace(ONE, exactly=exactly)
    plan = replace(shop_plan(numbered=numbered, min_degree=exactly), constraints=(rule,))
    assert Plan.from_toml(plan.to_toml()) == plan
    model = dw.fit(shop(0), plan, epsilon=5.0, delta=1e-6, insecure_seed=2)
    made = model.sample(seed=1)
    tables = made.to_pandas()
    chosen = tables["items"][tables["items"].kind == "b"].groupby("order").size()
    assert len(tables["orders"]) > 50
    assert set(chosen.index) == set(tables["orders"].id)
    assert set(chosen) == {exactly}
    assert made.repairs[str(rule)] > 0
    assert {"a", "b", "c"} >= set(tables["items"].kind)
    checks = check(plan, dict(made), encode(plan, dict(made)), public={})
    assert all(c.passed or c.advisory for c in checks)
    spoilt = dict(made)
    place = spoilt["items"].column_names.index("kind")
    spoilt["items"] = spoilt["items"].set_column(place, "kind", [["b"] * spoilt["items"].num_rows])
    (said,) = [c for c in check(plan, spoilt, encode(plan, spoilt), public={}) if c.where == str(rule)]
    assert said.passed == (len(tables["items"]) == exactly * len(tables["orders"]))


def test_rules_on_owners_hold_in_a_copy_of_many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(shop_plan(numbered=True, min_degree=1), constraints=(ONE,))
    model = dw.fit(shop(0), plan, epsilon=5.0, delta=1e-6, insecure_seed=0)
    monkeypatch.setattr(parts, "PART_VALUES", 1500)
    count, common = parts.divide(plan, {"customers": 700, "orders": 1200, "items": 1200, "products": 300})
    assert count > 3
    assert "orders" not in common
    tables = model.sample(seed=0, scale=6.0).to_pandas()
    chosen = tables["items"][tables["items"].kind == "b"].groupby("order").size()
    assert len(tables["orders"]) > 800
    assert set(chosen.index) == set(tables["orders"].id)
    assert set(chosen) == {1}


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (replace(ONE, per="ordr"), "did you mean 'order'"),
        (replace(ONE, per="product"), "let 'product' be the owning key"),
        (replace(ONE, exactly=2), "say min_degree = 2"),
        (replace(ONE, exactly=0), "at least 1"),
        (replace(ONE, value="z"), "must list all values, 'z' and"),
        (replace(ONE, column="nr"), "items.nr is a key"),
    ],
)
def test_counts_that_cannot_be_are_refused(rule: Exactly, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        replace(shop_plan(numbered=True, min_degree=1), constraints=(rule,))


def test_two_rules_may_not_decide_one_column() -> None:
    plan = shop_plan(numbered=True, min_degree=1)
    for other in (replace(ONE, value="a"), Allowed("items", ("kind",), (("a",), ("b",)))):
        with pytest.raises(PlanError, match="both decide 'kind'"):
            replace(plan, constraints=(ONE, other))


@given(rows=st.lists(st.tuples(st.integers(-1, 5), st.booleans()), max_size=50), exactly=st.integers(1, 3))
def test_rows_that_are_off_make_up_the_difference(rows: list[tuple[int, bool]], exactly: int) -> None:
    links = np.array([o for o, _ in rows], dtype=np.int64)
    has = np.array([h for _, h in rows], dtype=bool)
    many, lacking = off_rows(has, links, 6, exactly)
    assert has[many].all()
    assert not has[lacking].any()
    has[many], has[lacking] = False, True
    counts, degrees = (np.bincount(links[m & (links >= 0)], minlength=6) for m in (has, links >= 0))
    assert (counts == np.minimum(degrees, exactly)).all()


def land_plan(*rules: Equal) -> Plan:
    """Clients live in districts, accounts belong to clients and lie in districts; districts are public."""

    def column(name: str, *, nullable: bool = False) -> ColumnPlan:
        return ColumnPlan(Column(name, Type("integer"), nullable=nullable), None)

    def key(name: str, target: str, role: str) -> KeyPlan:
        return KeyPlan(ForeignKey((name,), target, ("id",)), role, 4 if role == "owning" else None)  # type: ignore[arg-type]

    kind = ColumnPlan(Column("kind", Type("text"), nullable=False), Categories(("a", "b", "c")))
    lives, lies = key("district", "districts", "attribute"), key("district", "districts", "attribute")
    return Plan(
        (
            TablePlan("districts", (column("id"), kind), ("id",)),
            TablePlan("clients", (column("id"), column("district", nullable=True), kind), ("id",), keys=(lives,)),
            TablePlan(
                "accounts",
                (column("id"), column("client"), column("district"), column("branch", nullable=True), kind),
                ("id",),
                keys=(key("client", "clients", "owning"), lies, key("branch", "districts", "attribute")),
            ),
        ),
        protect=("clients",),
        public=("districts",),
        constraints=rules,
    )


SAME = Equal("accounts", ("district", "client.district"))


def test_a_key_leads_where_another_path_leads() -> None:
    plan = land_plan(SAME)
    assert Plan.from_toml(plan.to_toml()) == plan
    rng = np.random.default_rng(0)
    home = rng.integers(0, 20, 200)
    owner = np.repeat(np.arange(200), 2)
    kinds = {n: rng.choice(["a", "b", "c"], n) for n in (20, 200, 400)}
    source = {
        "districts": pd.DataFrame({"id": np.arange(20), "kind": kinds[20]}),
        "clients": pd.DataFrame({"id": np.arange(200), "district": home, "kind": kinds[200]}),
        "accounts": pd.DataFrame(
            {"id": np.arange(400), "client": owner, "district": home[owner], "branch": home[owner], "kind": kinds[400]}
        ),
    }
    source["clients"].loc[:20, "district"] = None
    shares = []
    for p in (land_plan(), plan):
        made = dw.fit(source, p, epsilon=3.0, delta=1e-6, insecure_seed=0).sample(seed=0)
        tables = made.to_pandas()
        both = tables["accounts"].merge(tables["clients"], left_on="client", right_on="id", suffixes=("", "_of"))
        known = both[both.district_of.notna()]
        shares.append(float((known.district == known.district_of).mean()))
        checks = check(plan, dict(made), encode(plan, dict(made)), public={})
        (said,) = [c for c in checks if c.where == str(SAME)]
        assert said.passed == (shares[-1] == 1.0)
    assert shares[0] < 1.0
    assert shares[1] == 1.0
    assert made.repairs[str(SAME)] > 0
    assert len(both) > len(known) > 100


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ((replace(SAME, equal=("district",)),), "needs two paths"),
        ((replace(SAME, equal=("distric", "client.district")),), "did you mean 'district'"),
        ((replace(SAME, equal=("district", "client.home")),), "'clients' has no foreign key 'home'"),
        ((replace(SAME, equal=("district", "client")),), "one path leads to 'districts' and the other to 'clients'"),
        ((replace(SAME, equal=("district", "district")),), "must begin with another key"),
        ((replace(SAME, equal=("client", "client")),), "must begin with another key"),
        ((SAME, replace(SAME, equal=("district", "branch"))), "both decide 'district'"),
        ((replace(SAME, equal=("branch", "district")), SAME), "follow each other"),
    ],
)
def test_paths_that_cannot_be_followed_are_refused(rules: tuple[Equal, ...], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        land_plan(*rules)
