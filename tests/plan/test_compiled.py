"""What a plan means for its tables, keys and relations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from dpweave.cli.demo import make_shop, shop_plan

if TYPE_CHECKING:
    from dpweave.plan.plan import Plan


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    path = tmp_path_factory.mktemp("shop") / "shop.duckdb"
    make_shop(path, rows=1000)
    return shop_plan(path)


def test_a_plan_is_compiled_once_and_a_changed_one_anew(shop: Plan) -> None:
    assert shop.compile() is shop.compile()
    other = shop.replace_degree_edges("orders", "customer_id", (0, 1, 7))
    assert other.compile().table["customers"].degree_codecs != shop.compile().table["customers"].degree_codecs
    assert replace(shop, k=2).compile().k == 2


def test_values_of_tables_keys_and_relations(shop: Plan) -> None:
    compiled = shop.compile()
    customers, products, orders = (compiled.table[t] for t in ("customers", "products", "orders"))
    assert [(k.table, k.name) for k in customers.counted_keys] == [
        ("orders", "customer_id"),
        ("wishlist", "customer_id"),
    ]
    assert customers.model_columns[-2:] == tuple(customers.derived_codecs) == tuple(customers.degree_codecs)
    assert products.derived_codecs == {}
    assert orders.is_centred
    assert not customers.is_centred
    assert all(k.is_counted == (k.planned.role == "owning") for k in orders.key.values())
    assert compiled.order.index("customers") < compiled.order.index("orders") < compiled.order.index("order_items")
    assert set(compiled.relation) == {(r.table, r.key) for r in compiled.relations}
    popular = {r.key for r in compiled.relations if r.has_popular_targets}
    assert popular == {r.key for r in compiled.relations if r.target == "products"}
