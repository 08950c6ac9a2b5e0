"""Rules as a plan writes them: read, written, refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from dpweave.errors import PlanError
from dpweave.plan.entries import ColumnPlan, KeyPlan, TablePlan
from dpweave.plan.plan import Plan
from dpweave.plan.rules import Allowed, Constraint, Determined, Ordered
from dpweave.schema.database import Column, ForeignKey, Type
from dpweave.schema.domain import Bins, Categories, Declared, Learn

PAIRS = (("credit", "cash"), ("credit", None), ("debit", "card"))


def column(name: str, domain: Declared | None, kind: str = "text", *, nullable: bool = False) -> ColumnPlan:
    return ColumnPlan(Column(name, Type.parse(kind), nullable=nullable), domain)


def bank(*rules: Constraint) -> Plan:
    kinds = TablePlan("kinds", (column("t", Learn()), column("o", Learn(), nullable=True), column("n", Learn())))
    trans = TablePlan(
        "trans",
        (
            column("id", None, "integer"),
            column("type", Categories(("credit", "debit"))),
            column("operation", Categories(("cash", "card")), nullable=True),
            column("price", Categories((Decimal("1.50"), Decimal(2))), "decimal(6,2)"),
            column("day", Categories((date(2020, 1, 1), date(2020, 1, 2))), "date"),
            column("amount", Bins((0, 10, 20)), "integer"),
            column("old", Bins((0, 10, 20)), "integer"),
            column("place", Learn()),
            column("boss", None, "integer", nullable=True),
        ),
        ("id",),
        keys=(KeyPlan(ForeignKey(("boss",), "trans", ("id",)), "linking", 3),),
    )
    return Plan((kinds, trans), protect=("trans",), public=("kinds",), constraints=rules)


def test_allowed_combinations_survive_toml_with_nulls_decimals_and_dates() -> None:
    plan = bank(
        Allowed("trans", ("type", "operation"), PAIRS),
        Allowed("trans", ("price", "day"), ((Decimal("1.50"), date(2020, 1, 1)), (Decimal(2), date(2020, 1, 2)))),
    )
    text = plan.to_toml()
    assert '["credit", { null = true }]' in text
    assert Plan.from_toml(text) == plan
    named = bank(Allowed("trans", ("type", "operation"), "kinds", ("t", "o")))
    assert Plan.from_toml(named.to_toml()) == named


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (Allowed("trans", ("type", "operation"), (("credit", "cheque"),)), "'cheque' is not in the domain of 'operation'"),  # noqa: E501
        (Allowed("trans", ("type", "operation"), ((None, "cash"),)), "'type' is never null"),
        (Allowed("trans", ("type", "operation"), (("credit",),)), "1 values for 2 columns"),
        (Allowed("trans", ("type", "operation"), ()), "lists no combination"),
        (Allowed("trans", ("type", "operation"), (*PAIRS, PAIRS[0])), "lists a combination twice"),
        (Allowed("trans", ("type", "type"), PAIRS), "columns that differ"),
        (Allowed("trans", ("type", "operatoin"), PAIRS), "did you mean 'operation'"),
        (Allowed("trans", ("type", "boss"), PAIRS), "trans.boss is a key"),
        (Allowed("trans", ("type", "amount"), (("credit", 3),)), "the domain of 'amount' must list its values"),
        (Allowed("trans", ("type", "place"), (("credit", "x"),)), "the domain of 'place' must list its values"),
        (Allowed("trans", ("type", "day"), (("credit", 3),)), "the category 3 is no value of type date"),
        (Allowed("trans", ("type", "operation"), "kind"), "did you mean 'kinds'"),
        (Allowed("trans", ("type", "operation"), "trans"), "'trans' is private"),
        (Allowed("trans", ("type", "operation"), "kinds"), "'kinds' has no column 'type'"),
        (Allowed("trans", ("type", "operation"), "kinds", ("t",)), "one column for each"),
        (Allowed("trans", ("type", "day"), "kinds", ("t", "n")), "'day' is of type date and kinds.n of type text"),
        (Allowed("trans", ("type",), (("credit",),), ("t",)), "name that table in allowed"),
        (Allowed("kinds", ("t",), (("x",),)), "public tables are copied"),
    ],
)  # fmt: skip
def test_combinations_that_make_no_sense_are_refused(rule: Allowed, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        bank(rule)


@pytest.mark.parametrize("other", [Ordered("trans", "amount", "old"), Determined("trans", ("amount",), "type")])
def test_rules_that_rows_are_mended_for_do_not_touch_columns_of_combinations(other: Constraint) -> None:
    rule = Allowed("trans", ("type", "operation"), PAIRS)
    plan = bank(rule)
    if isinstance(other, Ordered):
        listed = Categories((1, 2, 3))
        trans = plan.table["trans"]
        columns = tuple(replace(c, domain=listed) if c.name in ("amount", "old") else c for c in trans.columns)
        plan = replace(plan, tables=(plan.table["kinds"], replace(trans, columns=columns)))
        rule = Allowed("trans", ("amount", "old"), ((1, 2),))
    with pytest.raises(PlanError, match="both decide"):
        replace(plan, constraints=(rule, other))


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"columns": ["type"], "allowed": 3}, "allowed of a constraint must be a list, not 3"),
        ({"columns": ["type"], "allowed": ["credit"]}, "a combination .* must be a list, not 'credit'"),
        ({"columns": ["type"], "allowed": [[{"nul": True}]]}, "null as { null = true }"),
        ({"columns": ["price"], "allowed": [["cheap"]]}, "'cheap', which is no decimal number"),
        ({"allowed": [["credit"]]}, "needs table, columns and allowed"),
        ({"columns": ["type"], "alowed": [["credit"]]}, "unknown key"),
    ],
)
def test_combinations_of_another_form_are_refused(rule: dict[str, Any], says: str) -> None:
    data = bank().to_dict() | {"constraints": [{"table": "trans", **rule}]}
    with pytest.raises(PlanError, match=says):
        Plan.from_dict(data)
