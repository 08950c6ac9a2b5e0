"""Rows that belong to units of two tables: from the catalogue to a copy, and what people are told about it."""

from __future__ import annotations

import math
from dataclasses import replace

import duckdb
import numpy as np
import pytest

import dpweave as dw
from dpweave.cli.screen import after_draft
from dpweave.errors import PlanError
from dpweave.explain.draft_notes import draft_text
from dpweave.plan.plan import Plan
from dpweave.privacy.accounting import together
from dpweave.privacy.certificate import Guarantee, said_together, statement
from dpweave.schema.domain import Categories

SHOP = """
CREATE TABLE employees (id INTEGER PRIMARY KEY, grade INTEGER NOT NULL);
CREATE TABLE customers (id INTEGER PRIMARY KEY, kind INTEGER NOT NULL);
CREATE TABLE orders (
  id INTEGER PRIMARY KEY, employee INTEGER NOT NULL REFERENCES employees,
  customer INTEGER NOT NULL REFERENCES customers, size INTEGER NOT NULL);
"""


@pytest.fixture
def shop(tmp_path):
    path = tmp_path / "shop.duckdb"
    rng = np.random.default_rng(5)
    with duckdb.connect(str(path)) as connection:
        connection.execute(SHOP)
        connection.executemany("INSERT INTO employees VALUES (?, ?)", [(i, i % 2) for i in range(60)])
        connection.executemany("INSERT INTO customers VALUES (?, ?)", [(i, i % 3) for i in range(600)])
        sold = [(i, int(rng.integers(60)), i % 600, 0) for i in range(1500)]
        sold = [(i, e, c, int((e % 2) if rng.random() < 0.9 else rng.integers(2))) for i, e, c, _ in sold]
        connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", sold)
    return path


@pytest.fixture
def plan(shop) -> Plan:
    return dw.Plan.draft(shop, protect=["customers", "employees"], max_degree=50)


def _roles(plan: Plan) -> dict[str, str]:
    return {k.key.name: k.role for k in plan.table["orders"].keys}


def test_a_draft_shares_rows_that_must_lead_to_two_protected_tables(plan, shop, tmp_path):
    """The customer owns them, whatever key comes first, and the employee shares them."""
    assert _roles(plan) == {"customer": "owning", "employee": "shared"}
    assert plan.promise.is_shared("orders", "employee")
    assert _roles(dw.Plan.draft(shop, protect=["employees"], public=["customers"]))["employee"] == "owning"
    plan.save(tmp_path / "plan.toml")
    assert Plan.load(tmp_path / "plan.toml") == plan


def test_a_key_that_may_be_null_only_links(tmp_path):
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(SHOP.replace("employee INTEGER NOT NULL", "employee INTEGER"))
    assert _roles(dw.Plan.draft(path, protect=["customers", "employees"])) == {
        "customer": "owning",
        "employee": "linking",
    }


def test_a_draft_says_so_in_the_plan_and_on_the_screen(shop, tmp_path):
    plan, text = draft_text(shop, protect=("customers", "employees"))
    screen = after_draft(plan, tmp_path / "plan.toml")
    for said in (text, screen):
        plain = " ".join(said.replace("#", " ").split())
        assert "Rows of orders belong to a row of customers, which owns them" in plain
        assert "a row of employees is hidden with all that is counted of these rows" in plain
        assert "Linking would hide only" in plain
        assert "epsilon counts up to 2 times" in plain


def test_under_record_a_draft_does_not_promise_what_shared_keys_do(shop, tmp_path):
    plan, text = draft_text(shop, protect=("customers", "employees"), neighbours="record")
    for said in (text, after_draft(plan, tmp_path / "plan.toml")):
        assert "is hidden with all" not in " ".join(said.replace("#", " ").split())


def test_what_cannot_be_shared_is_refused(plan):
    with pytest.raises(PlanError, match="cannot be shared"):
        _ = replace(plan.promise, shared=frozenset({("orders", "customer")}))
    keys = tuple(replace(k, role="owning") for k in plan.table["orders"].keys)
    tables = tuple(replace(t, keys=keys) if t.name == "orders" else t for t in plan.tables)
    with pytest.raises(PlanError, match="two owning keys"):
        _ = replace(plan, tables=tables).promise


def _declared(plan: Plan) -> Plan:
    domains = {"grade": 2, "kind": 3, "size": 2}
    return replace(
        plan,
        tables=tuple(
            replace(
                t,
                columns=tuple(
                    replace(c, domain=Categories(tuple(range(domains[c.name])))) if c.name in domains else c
                    for c in t.columns
                ),
            )
            for t in plan.tables
        ),
    )


def test_a_copy_keeps_what_shared_rows_say(plan, shop):
    model = dw.fit(shop, _declared(plan), epsilon=60.0, delta=1e-6, insecure_seed=3)
    copy = model.sample(seed=1)
    orders, employees = copy["orders"], copy["employees"]
    assert 1200 < orders.num_rows < 1800
    assert set(orders["employee"].to_pylist()) <= set(employees["id"].to_pylist())
    assert None not in orders["employee"].to_pylist()
    grade = dict(zip(employees["id"].to_pylist(), employees["grade"].to_pylist(), strict=True))
    agree = [grade[e] == s for e, s in zip(orders["employee"].to_pylist(), orders["size"].to_pylist(), strict=True)]
    assert np.mean(agree) > 0.75  # 0.95 in truth, 0.5 by chance


def test_rows_beyond_the_bound_are_not_lost_from_a_copy(plan, shop):
    """They count for nothing, but their owners' degrees tell that they are there."""
    keys = tuple(replace(k, max_degree=5) for k in plan.table["orders"].keys)
    tables = tuple(replace(t, keys=keys) if t.name == "orders" else t for t in _declared(plan).tables)
    model = dw.fit(shop, replace(plan, tables=tables), epsilon=30.0, delta=1e-6, insecure_seed=3)
    assert 250 < model.sizes["orders"] < 350  # 60 employees with 5 orders each
    assert 1200 < model.sample(seed=1)["orders"].num_rows < 1800


def test_under_record_a_shared_key_links(plan, shop):
    """A changed row takes its relationships with it there, so nothing is blanked."""
    recorded = replace(_declared(plan), neighbours="record", on_excess="truncate")
    assert not recorded.promise.is_shared("orders", "employee")
    assert "shares them" not in statement(recorded.promise)
    assert dw.fit(shop, recorded, epsilon=5.0, delta=1e-6, insecure_seed=3).sample(seed=1)["orders"].num_rows > 500


def test_the_certificate_adds_up_for_who_is_in_both_tables(plan, shop):
    certificate = dw.fit(shop, _declared(plan), epsilon=1.0, delta=1e-6, insecure_seed=1).certificate
    epsilon, delta = together([(g.epsilon, g.delta) for g in certificate.tables])
    assert epsilon == pytest.approx(sum(g.epsilon for g in certificate.tables))
    assert delta > 2e-6
    assert any("a row in each of customers, employees" in c for c in certificate.caveats)
    assert (
        "only while the row of employees that shares them by employee is there, and at most 50 for each"
        in certificate.statement
    )
    assert any("a row in each of customers, employees" in w for w in plan.explain(epsilon=1, delta=1e-6).warnings)


def test_explain_and_certificate_say_what_a_sharing_unit_stands_for(plan, shop):
    explained = _declared(plan).explain(epsilon=1.0, delta=1e-6)
    assert {(h.unit, h.table): h.rows for h in explained.holdings}["employees", "orders"] == 50
    certificate = dw.fit(shop, _declared(plan), epsilon=1.0, delta=1e-6, insecure_seed=1).certificate
    assert certificate.owned_rows["employees"] == {"employees": 1, "orders": 50}
    keys = tuple(replace(k, role="linking") if k.role == "shared" else k for k in plan.table["orders"].keys)
    linked = replace(plan, tables=tuple(replace(t, keys=keys) if t.name == "orders" else t for t in plan.tables))
    assert "lead to employees by employee are not part of that row" in statement(linked.promise)


def test_noise_of_learned_ranges_is_predicted_with_the_shared_bound(plan, shop):
    """Rows that two units share are no unit sums, so that the bound counts in full."""
    (size,) = [x for x in plan.explain(epsilon=1.0, delta=1e-6).learned if x.column == "orders.size"]
    certificate = dw.fit(shop, plan, epsilon=1.0, delta=1e-6, insecure_seed=1).certificate
    done = [e["sigma"] for e in certificate.events if e["what"] == "domains:orders.size"]
    assert 0.2 < size.sigma / max(map(max, done)) < 5


def test_a_shared_bound_that_hides_declared_rows_is_warned_of(plan):
    rows = {"orders": 1500, "employees": 10}
    tables = tuple(replace(t, rows=rows.get(t.name)) for t in plan.tables)
    warnings = replace(plan, tables=tables).explain(epsilon=1.0, delta=1e-6).warnings
    assert any("at most 500 of the 1,500 declared rows of orders are counted" in w for w in warnings)


def test_guarantees_add_up_in_the_best_order_and_are_never_said_too_small():
    epsilon, delta = together([(2.0, 1e-6), (1.0, 1e-6)])
    assert epsilon == 3.0
    assert 1e-6 * (1 + math.e) <= delta < 1e-6 * (1 + math.e) * (1 + 1e-9)
    (said,) = said_together([Guarantee("a", 0.0, 1.00001, 1e-6), Guarantee("b", 0.0, 1.0, 1e-6)])
    assert "epsilon 2.001 and delta 3.719e-06" in said
    assert said_together([Guarantee("a", 0.0, 1.0, 1e-6)]) == ()
    assert together([(math.inf, 1e-6), (900.0, 1e-6)]) == (math.inf, 1.0)
