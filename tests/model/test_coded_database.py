"""Codes and links of Arrow tables, against the codec that counts in the engine and against loops."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING

import ibis
import numpy as np
import pyarrow as pa
import pytest

from dpweave.errors import UsageError
from dpweave.model.coded_database import encode, labels
from dpweave.schema.arrow_codes import encode_table
from dpweave.schema.arrow_types import arrow_type
from dpweave.schema.codec import Codec
from dpweave.schema.database import Column, Database, ForeignKey, Table, Type
from dpweave.schema.domain import Bins, Categories, Learn, Opaque
from dpweave.schema.key_lookup import follow
from tests.report.worlds import shop, shop_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

UTC = dt.UTC
CASES = {
    "integers": ("int64", Bins((0, 10, 20, 30)), [-5, 0, 9, 10, 29, 30, 99, None]),
    "small integers": ("int8", Bins((0, 10, 20)), [-128, 127, 10, None]),
    "integers beyond the bins' type": ("int8", Bins((-1000, -5, 5, 1000, 2000)), [-128, -5, 4, 5, 127, None]),
    "large integers": ("uint64", Bins((0, 2**62, 2**63 + 1)), [0, 2**62 - 1, 2**62, 2**63, 2**64 - 1, None]),
    "many bins": ("int32", Bins(tuple(range(0, 900, 3))), [-1, 0, 2, 3, 450, 896, 897, 5000, None]),
    "floats": (
        "float64",
        Bins((0.0, 0.5, 1.0)),
        [-1.0, 0.49, 0.5, 7.0, float("nan"), float("inf"), float("-inf"), None],
    ),
    "short floats": ("float32", Bins((0.0, 0.1, 1.0)), [0.09, 0.1, 0.11, float("nan"), None]),
    "decimals": (
        "decimal(6,2)",
        Bins((Decimal("0.00"), Decimal("9.99"), Decimal("20.00"))),
        [Decimal("9.98"), Decimal("9.99"), Decimal("-3.00"), Decimal("99.00"), None],
    ),
    "dates": (
        "date",
        Bins((dt.date(2000, 1, 1), dt.date(2010, 1, 1), dt.date(2020, 1, 1))),
        [dt.date(1500, 1, 1), dt.date(2009, 12, 31), dt.date(2010, 1, 1), dt.date(2999, 1, 1), None],
    ),
    "moments": (
        "timestamp",
        Bins((dt.datetime(2000, 1, 1), dt.datetime(2010, 1, 1), dt.datetime(2020, 1, 1))),
        [dt.datetime(2009, 12, 31, 23, 59, 59, 999999), dt.datetime(2010, 1, 1), dt.datetime(1, 1, 1), None],
    ),
    "moments with a zone": (
        "timestamptz",
        Bins(
            (
                dt.datetime(2000, 1, 1, tzinfo=UTC),
                dt.datetime(2010, 1, 1, tzinfo=UTC),
                dt.datetime(2020, 1, 1, tzinfo=UTC),
            )
        ),
        [dt.datetime(2009, 12, 31, 23, 59, 59, tzinfo=UTC), dt.datetime(2010, 1, 1, tzinfo=UTC), None],
    ),
    "times": ("time", Bins((dt.time(0), dt.time(12), dt.time(23, 59, 59))), [dt.time(11, 59, 59), dt.time(12), None]),
    "words": ("text", Categories(("a", "b")), ["a", "b", "z", "", None]),
    "words with other": ("text", Categories(("a", "b"), other=True), ["a", "b", "z", None]),
    "many words": ("text", Categories(tuple(f"w{i}" for i in range(200)), other=True), ["w0", "w199", "x", None]),
    "truth": ("boolean", Categories((False, True)), [True, False, None]),
    "numbers as categories": ("int64", Categories((3, 1)), [1, 3, 2, None]),
    "opaque": ("text", Opaque(), ["x", None]),
}


def engine_codes(codec: Codec, array: pa.Array) -> list[int]:
    """Code values by the very expression that codes private rows, in DuckDB."""
    connection = ibis.duckdb.connect()
    rows = ibis.memtable(pa.table({"rid": np.arange(len(array)), "c": array}))
    here, code = codec.coded(rows, rows.c, has_nan=True)
    found = connection.to_pyarrow(here.select(here.rid, code=code).order_by("rid"))["code"].to_pylist()
    connection.disconnect()
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("nullable", [True, False])
def test_codes_are_those_of_the_engine(case: str, nullable: bool) -> None:
    kind, domain, values = CASES[case]
    column = Column("c", Type.parse(kind), nullable)
    array = pa.array(values, arrow_type(column.type))
    codec = Codec(column, domain)
    ours = encode_table(pa.table({"c": array}), {"c": codec})["c"]
    assert ours.tolist() == engine_codes(codec, array)
    assert len(labels(column, domain)) == Codec(column, domain).size


def test_links_by_loops() -> None:
    tables = shop(3)
    # a dangling customer, half of a composite key, a key that is there twice
    orders = tables["orders"].to_pylist()
    orders[0]["customer"], orders[1]["sku"], orders[2]["shelf"] = 99_999, None, 7
    tables["orders"] = pa.Table.from_pylist(orders, schema=tables["orders"].schema)
    products = tables["products"].to_pylist()
    tables["products"] = pa.Table.from_pylist([*products, products[4]], schema=tables["products"].schema)
    coded = encode(shop_plan(), tables)
    ids = {v: i for i, v in reversed(list(enumerate(tables["customers"]["id"].to_pylist())))}
    assert coded.links["orders", "customer"].tolist() == [ids.get(o["customer"], -1) for o in orders]
    places: dict[tuple[int, int], int] = {}
    for i, p in enumerate(tables["products"].to_pylist()):
        places.setdefault((p["sku"], p["shelf"]), i)
    assert coded.links["orders", "product"].tolist() == [places.get((o["sku"], o["shelf"]), -1) for o in orders]
    expected = [sum(o["customer"] == c for o in orders) for c in ids]
    assert coded.degrees("orders", "customer").tolist() == expected[::-1]


def test_paths_and_derived_columns_by_loops() -> None:
    plan, tables = shop_plan(), shop(4)
    coded = encode(plan, tables)
    boss = {r["id"]: r["boss"] for r in tables["staff"].to_pylist()}
    grand = coded.position("staff", ("boss", "boss"))
    for i, own in enumerate(tables["staff"]["id"].to_pylist()):
        second = boss.get(boss[own]) if boss[own] is not None else None
        assert (grand[i] + 1 if grand[i] >= 0 else None) == second
    assert coded.codes["staff", "?boss"].tolist() == [int(b is not None) for b in boss.values()]
    assert "#orders.customer" in {c for t, c in coded.codes if t == "customers"}


def test_empty_tables_have_no_links() -> None:
    tables = {n: t.slice(0, 0) for n, t in shop(0).items()}
    coded = encode(shop_plan(), tables)
    assert all(len(v) == 0 for v in coded.links.values())
    assert coded.degrees("orders", "customer").tolist() == []


def test_nothing_to_lead_to() -> None:
    schema = Database(
        (
            Table("p", (Column("id", Type("integer"), False),), ("id",)),
            Table("c", (Column("p", Type("integer")),), foreign_keys=(ForeignKey(("p",), "p", ("id",)),)),
        )
    )
    tables = {"p": pa.table({"id": pa.array([], pa.int64())}), "c": pa.table({"p": pa.array([1, None], pa.int64())})}
    assert follow(tables, schema, "c", schema["c"].key["p"]).tolist() == [-1, -1]


def test_what_is_missing_is_named() -> None:
    plan, tables = shop_plan(), shop(0)
    with pytest.raises(UsageError, match="no table 'staff'"):
        encode(plan, {n: t for n, t in tables.items() if n != "staff"})
    with pytest.raises(UsageError, match="no column 'age'"):
        encode(plan, {**tables, "customers": tables["customers"].drop_columns(["age"])})
    with pytest.raises(UsageError, match=r"customers\.age is not known yet"):
        encode(plan.replace_domain("customers", "age", Learn()), tables)


def test_rows_of_another_type_are_cast() -> None:
    tables = shop(1)
    small = tables["orders"].set_column(1, "customer", tables["orders"]["customer"].cast(pa.int32()))
    a, b = encode(shop_plan(), tables), encode(shop_plan(), {**tables, "orders": small})
    assert np.array_equal(a.links["orders", "customer"], b.links["orders", "customer"])


class OnlyBatches(dict[str, pa.Table]):
    """Tables that may be read in batches of seven rows and in no other way."""

    def __getitem__(self, name: str) -> pa.Table:
        raise AssertionError(name)

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        return iter(self.get(name).to_batches(max_chunksize=7))


def test_batches_give_the_same_codes_and_nothing_is_held_wide() -> None:
    plan, tables = shop_plan(), shop(2)
    a, b = encode(plan, tables), encode(plan, OnlyBatches(tables))
    assert a.rows == b.rows
    for at, codes in a.codes.items():
        assert np.array_equal(codes, b.codes[at])
        assert codes.dtype == np.uint8
    for key, links in a.links.items():
        assert np.array_equal(links, b.links[key])
        assert links.dtype == np.int32
