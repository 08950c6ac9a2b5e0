"""Databases with next to nothing in them: everything that fits also samples, and the
copy can be compared and reported.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpweave as dw
from dpweave.plan.entries import ColumnPlan, TablePlan
from dpweave.plan.plan import Plan
from dpweave.schema.domain import degree
from dpweave.weaving.blueprint import Blueprint
from dpweave.weaving.weaver import Weaver
from tests.weaving.test_weaver import ID, KIND, assert_keys_hold, frame, key, number


def shop() -> Plan:
    """Clients with a friend and a boss, orders with items of public products, badges that share their key."""
    return Plan(
        (
            TablePlan("product", (ColumnPlan(ID, None), KIND), ("id",)),
            TablePlan(
                "client",
                (ColumnPlan(ID, None), KIND, ColumnPlan(number("friend"), None), ColumnPlan(number("boss"), None)),
                ("id",),
                keys=(key("friend", "client", "linking"), key("boss", "client", "linking", acyclic=True)),
            ),
            TablePlan("badge", (ColumnPlan(ID, None), KIND), ("id",), keys=(key("id", "client", "owning", 1),)),
            TablePlan(
                "orders",
                (ColumnPlan(ID, None), KIND, ColumnPlan(number("client", nullable=False), None)),
                ("id",),
                keys=(key("client", "client", "owning"),),
            ),
            TablePlan(
                "item",
                (
                    ColumnPlan(number("orders", nullable=False), None),
                    ColumnPlan(number("nr", nullable=False), None),
                    ColumnPlan(number("product", nullable=False), None),
                    KIND,
                ),
                ("orders", "nr"),
                keys=(key("orders", "orders", "owning"), key("product", "product", "attribute")),
            ),
        ),
        protect=("client",),
        public=("product",),
    )


def world(*, clients: int, orders: int, items: int, products: int) -> dict[str, pd.DataFrame]:
    def text(rows: int) -> pd.Series:
        return pd.Series(["a"] * rows, dtype="string")

    def to(rows: int, targets: int) -> pd.Series:
        return pd.Series(np.arange(rows) % max(targets, 1), dtype="Int64")

    return {
        "product": frame(products, kind=text(products)),
        "client": frame(clients, kind=text(clients), friend=to(clients, clients), boss=to(clients, clients)),
        "badge": frame(clients, kind=text(clients)),
        "orders": frame(orders, kind=text(orders), client=to(orders, clients)),
        "item": pd.DataFrame(
            {"orders": to(items, orders), "nr": np.arange(items), "product": to(items, products), "kind": text(items)}
        ),
    }


@pytest.mark.parametrize(
    "size",
    [
        {"clients": 0, "orders": 0, "items": 0, "products": 0},
        {"clients": 0, "orders": 0, "items": 0, "products": 3},
        {"clients": 1, "orders": 0, "items": 0, "products": 0},
        {"clients": 1, "orders": 1, "items": 1, "products": 1},
        {"clients": 0, "orders": 5, "items": 9, "products": 2},  # orders whose clients are gone
        {"clients": 40, "orders": 60, "items": 90, "products": 0},  # items of products that are not there
    ],
    ids=str,
)
@pytest.mark.parametrize("epsilon", [50.0, 0.3])
def test_what_fits_also_samples_and_compares(size: dict[str, int], epsilon: float, tmp_path) -> None:
    plan, source = shop(), world(**size)
    model = dw.fit(source, plan, epsilon=epsilon, delta=1e-5, insecure_seed=1)
    for seed, scale in ((0, 1.0), (1, 3.0), (2, 0.01)):
        database = model.sample(scale, seed=seed)
        assert_keys_hold(plan, database.to_pandas())
    if epsilon > 1:
        dw.report(model, database, tmp_path / "report.html")
        dw.evaluate(source, database, model.plan, k=2)


def test_owners_that_vanish_take_their_rows_along() -> None:
    """Noise says that there are no clients, and orders that must have one."""
    from dataclasses import replace

    plan, source = shop(), world(clients=30, orders=60, items=90, products=3)
    model = dw.fit(source, plan, epsilon=50.0, delta=1e-5, insecure_seed=1)
    for gone in (("client",), ("client", "orders"), ("item",), ("badge", "orders")):
        sizes = {t: 0.0 if t in gone else n for t, n in model.sizes.items()}
        made = replace(model, blueprint=replace(model.blueprint, sizes=sizes)).sample(seed=1).to_pandas()
        assert_keys_hold(plan, made)
        assert len(made[gone[0]]) <= 1 or gone[0] != "client"


@pytest.mark.parametrize("acyclic", [True, False])
def test_a_single_row_that_names_itself(acyclic: bool) -> None:
    plan = Plan(
        (
            TablePlan(
                "people",
                (ColumnPlan(ID, None), KIND, ColumnPlan(number("boss"), None)),
                ("id",),
                keys=(key("boss", "people", "linking", acyclic=acyclic),),
            ),
        ),
        protect=("people",),
    )
    source = {"people": frame(1, kind=["a"], boss=pd.Series([0], dtype="Int64"))}
    for seed in range(5):
        model = dw.fit(source, plan, epsilon=5.0, delta=1e-5, insecure_seed=seed)
        made = model.sample(seed=seed).to_pandas()
        assert_keys_hold(plan, made)
        assert not (made["people"].boss == made["people"].id).any()


def test_declared_rows_keep_a_table_from_drowning() -> None:
    """At a budget whose noise is many times the tables, about how many rows there are is all that is known."""
    declared = {"client": 400, "orders": 1200, "item": 2400, "badge": 400}
    plan = shop()
    plan = replace(plan, tables=tuple(replace(t, rows=declared.get(t.name)) for t in plan.tables))
    source = world(clients=400, orders=1200, items=2400, products=3)
    for seed in range(3):
        copy = dw.fit(source, plan, epsilon=0.02, delta=1e-6, insecure_seed=seed).sample()
        for name, rows in declared.items():
            assert rows / 4 < copy[name].num_rows < 4 * rows, (name, copy[name].num_rows)


class Childless:
    """A table whose rows own nothing, as far as noise lets that show."""

    def sample(self, rows: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {degree("middle", "top"): np.zeros(rows, dtype=np.int64)}


@pytest.mark.parametrize("tables", [{}, {"top": Childless()}])
def test_rows_that_must_lead_somewhere_bring_the_whole_way_there(tables: dict[str, Childless]) -> None:
    """A table that noise leaves empty gets a row where others must lead to it, and so do those that it leads to."""
    top = TablePlan("top", (ColumnPlan(ID, None),), ("id",))
    middle = TablePlan(
        "middle",
        (ColumnPlan(ID, None), ColumnPlan(number("top", nullable=False), None)),
        ("id",),
        keys=(key("top", "top", "owning"),),
    )
    low = TablePlan(
        "low",
        (ColumnPlan(ID, None), ColumnPlan(number("middle", nullable=False), None)),
        ("id",),
        keys=(key("middle", "middle", "linking"),),
    )
    plan = Plan((top, middle, low), protect=("top", "low"))
    blueprint = Blueprint(plan, {"top": 0.0, "middle": 0.0, "low": 50.0}, tables, {})  # type: ignore[arg-type]
    weaver = Weaver(blueprint, scale=1.0, seed=0)
    for _ in weaver.wire():
        pass  # links are made at random
    assert {name: table.num_rows for name, table in weaver.tables().items()} == {"top": 1, "middle": 1, "low": 50}
