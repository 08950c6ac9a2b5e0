"""Every kind of query of a fit compiles for engines that we cannot run here: warehouses that Ibis speaks to."""

from __future__ import annotations

from typing import Any

import ibis
import ibis.expr.operations as ops
import pytest

from dpweave.engines.duckdb.source import DuckDBSource
from dpweave.engines.ibis.source import hashed
from dpweave.engines.opening import open_source
from dpweave.privacy.window import UnitSum
from dpweave.schema.codec import Codec
from dpweave.schema.database import Column, Type
from dpweave.schema.domain import Attribute, Bins, Categories, View, newcomer, presence, repetition
from tests.contracts.test_engines import CLIQUES, ROWS, VIEWS, counting, shop_plan

DIALECTS = ("bigquery", "snowflake", "trino", "databricks")


@pytest.fixture(scope="module")
def queries() -> list[Any]:
    """What a fit asks of an engine that holds nothing of ours: the expressions, as they were run in DuckDB."""
    asked: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DuckDBSource, "embedded", False)
        patch.setattr(DuckDBSource, "can_materialise", False)
        compiled = DuckDBSource.compile
        patch.setattr(DuckDBSource, "compile", lambda self, e: (asked.append(e.as_table()), compiled(self, e))[1])
        plan = shop_plan(orders=8, items=4)
        with open_source(ROWS) as source:
            counts, bounding = counting(source, plan)
            bounding.check()
            flag = Categories((False, True))
            for table, key in (("orders", "clerk_id"), ("items", "product_id")):
                for name in (presence(key), repetition(key)):
                    counts.set_codec(table, name, Codec(Column(name, Type("boolean"), nullable=False), flag))
            degree = "#items.order_id"
            counts.set_codec("orders", degree, Codec(Column(degree, Type("integer"), nullable=False), Bins((0, 1, 9))))
            keys = counts.public_keys(plan.database["items"].key["product_id"])
            which = Column(newcomer("product_id"), Type("integer"), nullable=False)
            counts.set_codec("items", which.name, Codec(which, Categories(keys)))
            many = Categories(tuple(f"city {i}" for i in range(100)))  # a long list is looked up by a join
            counts.set_codec("customers", "city", Codec(plan.database["customers"].column["city"], many))
            for view, cliques in zip(VIEWS, CLIQUES, strict=True):
                counts.marginals(view, [(), cliques[-1]])
            counts.marginals(
                View("orders", tuple((n, Attribute(n)) for n in (degree, presence("clerk_id")))), [(degree,)]
            )
            linked = View("items", (("again", Attribute(repetition("product_id"))), ("new", Attribute(which.name))))
            counts.marginals(linked, [("again",), ("new",)])
            codes = ((), (("price", 1),), (("price", 1), ("n", 0)), (("n", 1),))
            counts.unit_sum(VIEWS[2], UnitSum(("city",), codes, (1.0,) * 4, 2.0, (0.0, 0.4, 0.1, 0.3)))
            for length in (1, 1 << 20):
                counts.categories("customers", "city", length=length)
    return asked


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_query_of_a_fit_compiles(queries, dialect) -> None:

    def own_hash(node: Any, changed: Any) -> Any:
        """DuckDB ran the queries with a hash of its own."""
        if isinstance(node, ops.Hash):
            return hashed((changed or {}).get("arg", node.arg).to_expr(), dialect).op()
        return node.__recreate__(changed) if changed else node

    assert len(queries) > 20
    for query in queries:
        assert "SELECT" in ibis.to_sql(query.op().replace(own_hash).to_expr(), dialect=dialect).upper()


def test_no_task_has_to_see_all_rows_of_a_table(queries) -> None:
    """Rows are numbered and ranked within groups alone; a cluster would move all of them to one task otherwise."""
    windows = [node for query in queries for node in query.op().find(ops.WindowFunction)]
    assert len(windows) > 20
    assert all(node.group_by for node in windows)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_construct_that_an_engine_lacks_is_noticed(dialect) -> None:
    """The test above has teeth: what Ibis cannot say in a dialect fails when it is compiled."""
    table = ibis.table({"x": "int64"}, name="t")
    with pytest.raises(Exception, match=r"(?i)rowid|not supported|No translation|unsupported"):
        ibis.to_sql(table.select(x=table.x, y=table.rowid()), dialect=dialect)
