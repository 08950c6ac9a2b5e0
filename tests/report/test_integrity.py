"""Every rule holds on a whole database and catches the fault that breaks it, and that fault alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from dpweave.model.coded_database import encode
from dpweave.plan.rules import Determined, Ordered
from dpweave.report.integrity import check, rows_in_cycles
from tests.report.worlds import shop, shop_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpweave.plan.plan import Plan

Tables = dict[str, pa.Table]


def put(tables: Tables, table: str, column: str, row: int, value: object) -> Tables:
    rows = tables[table].to_pylist()
    rows[row][column] = value
    return {**tables, table: pa.Table.from_pylist(rows, schema=tables[table].schema)}


def broken(plan: Plan, tables: Tables, public: Tables) -> set[str]:
    return {c.rule for c in check(plan, tables, encode(plan, tables), public=public) if not (c.passed or c.advisory)}


FAULTS: dict[str, tuple[str, Callable[[Tables], Tables]]] = {
    "repeated primary key": ("primary key is unique", lambda t: put(t, "staff", "id", 3, 5)),
    "null where none may be": ("not null", lambda t: put(t, "orders", "channel", 0, None)),
    "dangling key": ("foreign key leads to a row", lambda t: put(t, "orders", "customer", 0, 10_000)),
    "dangling composite key": (
        "foreign key leads to a row",
        lambda t: put(put(t, "orders", "sku", 0, 1), "orders", "shelf", 0, 1),
    ),
    "row that leads to itself": ("no row leads to itself", lambda t: put(t, "staff", "boss", 7, 8)),
    "changed public row": ("public rows unchanged", lambda t: put(t, "products", "kind", 0, "toy")),
    "other type": (
        "columns and types as declared",
        lambda t: {**t, "orders": t["orders"].set_column(0, "id", t["orders"]["id"].cast(pa.int32()))},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_rule_catches_its_fault(fault: str) -> None:
    plan, tables = shop_plan(), shop(0)
    public = {"products": tables["products"]}
    assert broken(plan, tables, public) == set()
    rule, breaks = FAULTS[fault]
    found = broken(plan, breaks(tables), public)
    assert rule in found
    # A repeated key also leaves the row it stood for without what leads to it.
    assert found - {rule} <= ({"foreign key leads to a row"} if fault == "repeated primary key" else set())


def test_half_a_composite_key_leads_nowhere_and_is_no_fault() -> None:
    plan, tables = shop_plan(), shop(0)
    assert broken(plan, put(tables, "orders", "sku", 0, None), {"products": tables["products"]}) == set()


def test_bounds_are_told_under_entity_and_kept_under_record() -> None:
    plan, tables = shop_plan(), shop(0)
    crowd = {**tables, "staff": tables["staff"].set_column(2, "boss", pa.array([2] * 60))}
    found = [c for c in check(plan, crowd, encode(plan, crowd), public={}) if "bound" in c.rule and not c.passed]
    assert [c.where for c in found] == ["staff (boss) → staff"]
    assert all(c.advisory for c in found)
    assert "at most 60 rows per staff, bound 6" in found[0].detail
    strict = replace(plan, neighbours="record")
    found = [c for c in check(strict, crowd, encode(strict, crowd), public={}) if "bound" in c.rule and not c.passed]
    assert "staff (boss) → staff" in {c.where for c in found}
    assert not any(c.advisory for c in found)


def test_circles_are_found_where_the_plan_forbids_them() -> None:
    plan = shop_plan()
    staff = plan.table["staff"]
    keys = tuple(replace(k, acyclic=True) for k in staff.keys)
    plan = replace(plan, tables=tuple(replace(t, keys=keys) if t.name == "staff" else t for t in plan.tables))
    tables = shop(0)
    chain = pa.array([None, *range(1, 60)], pa.int64())
    straight = {**tables, "staff": tables["staff"].set_column(2, "boss", chain)}
    assert "no row is its own ancestor" not in broken(plan, straight, {})
    assert "no row is its own ancestor" in broken(plan, put(straight, "staff", "boss", 0, 60), {})


def test_rows_in_cycles_by_loops() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        links = [rng.integers(-1, 9, 9) for _ in range(2)]

        def reaches(row: int, links: list[np.ndarray] = links) -> set[int]:
            seen: set[int] = set()
            todo = [int(k[row]) for k in links if k[row] >= 0]
            while todo:
                here = todo.pop()
                if here not in seen:
                    seen.add(here)
                    todo += [int(k[here]) for k in links if k[here] >= 0]
            return seen

        on_circle = {r for r in range(9) if r in reaches(r)}
        expected = {r for r in range(9) if ({r} | reaches(r)) & on_circle}
        assert rows_in_cycles(links) == len(expected)


def test_declared_rules_are_checked_row_by_row() -> None:
    rules = (Determined("customers", ("name",), "country"), Ordered("staff", "grade", "grade", key="boss"))
    plan = replace(shop_plan(), constraints=rules)
    tables = shop(0)
    staff = tables["staff"]
    tables["staff"] = staff.set_column(1, "grade", pa.array(np.full(staff.num_rows, 2)))

    def found(changed: Tables) -> dict[str, str]:
        checks = check(plan, changed, encode(plan, changed), public={})
        return {c.where: c.detail for c in checks if c.rule == "declared rules" and not c.passed}

    assert found(tables) == {}
    same = put(put(tables, "customers", "name", 1, "n0"), "customers", "country", 1, "XX")
    assert found(same) == {str(rules[0]): "1 rows break it"}
    bosses = [b for b in staff["boss"].to_pylist() if b is not None]
    raised = put(tables, "staff", "grade", bosses[0] - 1, 3)
    assert found(raised) == {str(rules[1]): f"{bosses.count(bosses[0])} rows break it"}
