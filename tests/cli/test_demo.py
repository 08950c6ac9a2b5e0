"""The demonstration: a shop with planted correlations, fitted with real noise."""

from __future__ import annotations

import json

import duckdb
import pytest

from dpweave.cli import demo
from dpweave.errors import TargetError, UsageError


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    return demo.run(tmp_path_factory.mktemp("demo") / "out", rows=12_000, epsilon=2.0)


def test_the_shop_has_about_the_rows_asked_for_and_keeps_its_keys(tmp_path):
    demo.make_shop(tmp_path / "shop.duckdb", rows=50_000)
    with duckdb.connect(str(tmp_path / "shop.duckdb"), read_only=True) as shop:
        names = [n for (n,) in shop.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        total = sum(shop.execute(f'SELECT count(*) FROM "{n}"').fetchone()[0] for n in names)
        assert set(names) == {"customers", "orders", "order_items", "products", "wishlist", "employees"}
        assert 45_000 <= total <= 55_000
        most = {
            ("orders", "customer_id"): demo.ORDERS_PER_CUSTOMER,
            ("order_items", "order_id"): demo.ITEMS_PER_ORDER,
            ("wishlist", "customer_id"): demo.WISHES_PER_CUSTOMER,
            ("employees", "manager_id"): demo.REPORTS_PER_MANAGER,
        }
        for (table, key), bound in most.items():
            query = f"SELECT max(n) FROM (SELECT count(*) n FROM {table} WHERE {key} IS NOT NULL GROUP BY {key})"
            assert shop.execute(query).fetchone()[0] <= bound


def test_what_is_planted_lies_across_tables(tmp_path):
    demo.make_shop(tmp_path / "shop.duckdb", rows=20_000)
    real = {f.question: f.real for f in demo.compare(tmp_path / "shop.duckdb", tmp_path / "shop.duckdb")}
    assert real["orders per premium customer"] > 2 * real["orders per basic customer"]
    assert real["share of app orders, under 30 years"] > 3 * real["share of app orders, from 66 years on"]
    assert real["share of electronics, app items"] > 2 * real["share of electronics, store items"]
    assert real["manager is in the same department"] == 1.0


def test_the_plan_declares_every_private_domain_and_reads_back(tmp_path):
    demo.make_shop(tmp_path / "shop.duckdb", rows=1000)
    plan = demo.shop_plan(tmp_path / "shop.duckdb")
    assert {item.kind for item in plan.explain(epsilon=1, delta=1e-6).learned} == {"degrees"}
    assert plan.promise.owned_rows("customers", "order_items") == 4  # two orders of two items are measured
    assert plan.table["orders"].keys[0].degree_cap == demo.ORDERS_PER_CUSTOMER
    assert type(plan).from_toml(plan.to_toml()) == plan


def test_the_copy_has_keys_that_hold_and_the_public_table_unchanged(shown):
    with duckdb.connect(str(shown.folder / demo.COPY), read_only=True) as copy:
        copy.execute(f"ATTACH '{shown.folder / demo.SHOP}' AS shop (READ_ONLY)")
        assert copy.execute("SELECT count(*) FROM (FROM products EXCEPT FROM shop.products)").fetchone() == (0,)
        orphans = "SELECT count(*) FROM orders ANTI JOIN customers USING (customer_id)"
        assert copy.execute(orphans).fetchone() == (0,)
        assert copy.execute("SELECT count(*) FROM customers").fetchone()[0] == shown.rows["customers"]


def test_what_was_spent_is_what_was_asked_for_and_no_seed_was_known(shown):
    assert shown.certificate.epsilon <= 2.0
    assert shown.certificate.epsilon > 1.9
    assert not shown.certificate.insecure
    assert {g.table for g in shown.certificate.tables} == {"customers", "employees"}


def test_it_says_who_is_protected_what_was_spent_and_that_the_data_is_made_up(shown):
    text = str(shown)
    assert "one row of\ncustomers" in text or "one row of customers" in text
    assert "epsilon" in text
    assert "made up, so its true figures may be shown" in text.replace("\n", " ")
    assert max(len(line) for line in text.splitlines() if "/" not in line) <= 80
    json.dumps(shown.to_dict(), allow_nan=False)


def test_a_second_demonstration_takes_the_place_of_the_first_and_of_nothing_else(tmp_path):
    out = tmp_path / "out"
    demo.run(out, rows=1000)
    demo.run(out, rows=1000)
    (out / "thesis.txt").write_text("mine")
    with pytest.raises(TargetError, match="holds other files"):
        demo.run(out, rows=1000)
    assert (out / "thesis.txt").read_text() == "mine"


def test_too_few_rows_are_refused(tmp_path):
    with pytest.raises(UsageError, match="at least 1000 rows"):
        demo.make_shop(tmp_path / "shop.duckdb", rows=10)
