"""What the page shows of a plan: plain values of tables, keys, units and rules. Nothing here comes from a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpweave.explain.draft_notes import could_be_public, said_of_key
from dpweave.plan.entries import ROLES, table_to_dict
from dpweave.plan.rules import constraint_to_dict
from dpweave.privacy.sensitivity import belonging
from dpweave.schema.domain import Bins, Categories, Learn, Opaque, even_range

if TYPE_CHECKING:
    from dpweave.plan.entries import ColumnPlan, KeyPlan, TablePlan
    from dpweave.plan.plan import Plan
    from dpweave.schema.domain import Declared


def plan_view(plan: Plan) -> dict[str, Any]:
    """Return everything about a plan that the page draws."""
    levels = _levels(plan)
    return {
        "protect": list(plan.protect),
        "public": list(plan.public),
        "neighbours": plan.neighbours,
        "tables": [_table(plan, t, levels[t.name]) for t in plan.tables],
        "units": units(plan),
        "could_be_public": could_be_public(plan) if len(plan.protect) > 1 else [],
        "constraints": [
            {"said": str(c).removeprefix("the rule "), **plain(constraint_to_dict(c))} for c in plan.constraints
        ],
        "workloads": [{"columns": list(w.columns), "weight": w.weight} for w in plan.workloads],
    }


def units(plan: Plan) -> dict[str, dict[str, int]]:
    """Per protected table: how many rows of each table go with one of its rows, at most."""
    promise = plan.promise
    return {
        unit: {t: rows for t in promise.private if (rows := belonging(promise, unit, t))} for unit in promise.protected
    }


def role_of(plan: Plan, table: str) -> str:
    """Return a table's part in the promise."""
    return "public" if table in plan.public else "protected" if table in plan.protect else "owned"


def _levels(plan: Plan) -> dict[str, int]:
    """How far below the tables that lead nowhere each table is drawn."""
    level: dict[str, int] = {}
    for name in plan.promise.graph.order():
        above = [level[k.target] for k in plan.database[name].foreign_keys if k.target in level]
        level[name] = max(above, default=-1) + 1
    return level


def _table(plan: Plan, table: TablePlan, level: int) -> dict[str, Any]:
    written = table_to_dict(table)["columns"]
    public = table.name in plan.public
    return {
        "name": table.name,
        "role": role_of(plan, table.name),
        "level": level,
        "rows": table.rows,
        "rows_public": table.rows_public,
        "has_key": bool(table.primary_key),
        "columns": [_column(table, c, plain(written[c.name]["domain"])) for c in table.columns],
        "keys": [_key(plan, table, k, public=public) for k in table.keys],
    }


def _column(table: TablePlan, column: ColumnPlan, written: Any) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": str(column.column.type),
        "kind": column.column.type.kind,
        "ordered": column.column.type.ordered,
        "nullable": column.column.nullable,
        "in_key": column.name in table.table.key_columns,
        "leads": column.name not in table.primary_key and any(column.name in k.key.columns for k in table.keys),
        "placeholder": column.placeholder,
        "domain": _domain(column, column.domain, written),
    }


def _domain(column: ColumnPlan, domain: Declared | None, written: Any) -> dict[str, Any]:
    match domain:
        case None:
            return {"form": "key"}
        case Opaque():
            return {"form": "opaque"}
        case Learn():
            return {"form": "learn", "low": plain(domain.low), "high": plain(domain.high), "bins": domain.bins}
        case Categories():
            shown = written["values"] if isinstance(written, dict) else written
            return {"form": "list", "values": shown, "other": domain.other}
        case Bins():
            even = even_range(column.column.type, domain)
            edges = {"form": "edges", "edges": [plain(e) for e in domain.edges], "learned": domain.learned}
            return edges if even is None else {"form": "range", "step": None, **plain(even)}
    raise TypeError(domain)


def plain(value: Any) -> Any:
    """Return what JSON can hold: dates and times as text."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _key(plan: Plan, table: TablePlan, key: KeyPlan, *, public: bool) -> dict[str, Any]:
    said: tuple[str, ...] = () if public else said_of_key(plan, table.name, key)
    nullable = table.table.is_nullable(key.key)
    return {
        "name": key.key.name,
        "columns": list(key.key.columns),
        "target": key.key.target,
        "role": "public" if public else key.role,
        "roles": _possible_roles(plan, key, public=public),
        "max_degree": key.max_degree,
        "order_by": key.order_by,
        "orders": _possible_orders(plan, table, key),
        "nullable": nullable,
        "single": table.table.is_unique(key.key.columns),
        "said": list(said),
    }


def _possible_orders(plan: Plan, table: TablePlan, key: KeyPlan) -> list[str]:
    """Columns by which rows of one owner may come one after the other, as the plan itself judges."""
    if key.role != "owning" or key.key.target == table.name:
        return []
    return [c.name for c in table.columns if plan.can_order(table, key, c)]


def _possible_roles(plan: Plan, key: KeyPlan, *, public: bool) -> list[str]:
    if public:
        return []
    return ["attribute"] if key.key.target in plan.public else [r for r in ROLES if r != "attribute"]
