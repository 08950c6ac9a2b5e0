"""Another plan for answers that are there: what may change without a new question, and what may not."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from dpweave.errors import PlanError
from dpweave.schema.domain import Learn

if TYPE_CHECKING:
    from dpweave.plan.entries import ColumnPlan, KeyPlan, TablePlan
    from dpweave.plan.plan import Plan

FREE_OF_PLAN = ("tables", "k", "shares", "constraints", "workloads", "locale")
FREE_OF_TABLE = ("columns", "keys", "mechanism", "rows", "weight", "namespace", "model_cells")
FREE_OF_COLUMN = ("placeholder", "locale")
FREE_OF_KEY = ("method", "weight", "degree_edges", "acyclic", "min_degree")
"""What decides how answers are used and not what was asked: fields of a plan, and of its entries."""


def replanned(measured: Plan, wanted: Plan) -> Plan:
    """Return ``wanted`` with every domain and every group of degrees that was learned under the plan ``measured``.

    What would make other questions of those that were answered is refused by name.
    """
    wrong = [
        *_fixed(measured, wanted, FREE_OF_PLAN, ""),
        *_named("tables", [t.name for t in measured.tables], [t.name for t in wanted.tables]),
    ]
    tables = []
    for new in wanted.tables:
        if (old := measured.table.get(new.name)) is not None:
            table, differs = _table(old, new)
            tables.append(table)
            wrong += differs
    if wrong:
        raise PlanError(
            f"the answers were given under another plan: {', '.join(wrong)} cannot change without asking the rows"
            " again; take that back, or make a new fit"
        )
    return replace(wanted, tables=tuple(tables))


def _table(old: TablePlan, new: TablePlan) -> tuple[TablePlan, list[str]]:
    at = f"tables.{old.name}."
    columns, keys = {c.name: c for c in old.columns}, {k.key.name: k for k in old.keys}
    wrong = [
        *_fixed(old, new, FREE_OF_TABLE, at),
        *_named(f"{at}columns", list(columns), [c.name for c in new.columns]),
        *_named(f"{at}keys", list(keys), [k.key.name for k in new.keys]),
    ]
    found: list[ColumnPlan] = []
    for column in new.columns:
        if (before := columns.get(column.name)) is not None:
            learned = replace(column, domain=before.domain) if isinstance(column.domain, Learn) else column
            wrong += _fixed(before, learned, FREE_OF_COLUMN, f"{at}columns.{column.name}.")
            found.append(learned)
    led: list[KeyPlan] = []
    for key in new.keys:
        if (had := keys.get(key.key.name)) is not None:
            wrong += _fixed(had, key, FREE_OF_KEY, f"{at}keys.{key.key.name}.")
            led.append(replace(key, degree_edges=had.degree_edges))
    if "external" in (old.mechanism, new.mechanism) and old.mechanism != new.mechanism:
        wrong.append(f"{at}mechanism")
    return replace(new, columns=tuple(found), keys=tuple(led)), wrong


def _fixed(old: Any, new: Any, free: tuple[str, ...], at: str) -> list[str]:
    names = [f.name for f in fields(old) if f.name not in free]
    return [f"{at}{name}" for name in names if getattr(old, name) != getattr(new, name)]


def _named(what: str, old: list[str], new: list[str]) -> list[str]:
    return [f"{what}.{name}" for name in sorted({*old} ^ {*new})]
