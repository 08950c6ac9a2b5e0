"""Rules that rows keep exactly: what a plan declares, and how a woven database is made to obey.

Everything here is post-processing. What it had to change is counted, so that the report can say what a rule cost.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.errors import PlanError, nearest
from dpweave.planvalues import require_kind
from dpweave.schema.domain import Bins, Categories, to_axis

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from dpweave.plan import ColumnPlan, Plan
    from dpweave.schema.model import Database
    from dpweave.window import IntArray


@dataclass(frozen=True)
class Ordered:
    """``lower <= upper`` in every row of ``table`` that has both; with ``key``, ``lower`` is a column of its target."""

    table: str
    lower: str
    upper: str
    key: str | None = None

    def check(self, database: Database) -> None:
        """Refuse a rule that names what is not there, or compares what cannot be compared."""
        table = database[self.table]
        below = table
        if self.key is not None:
            if self.key not in table.key:
                raise PlanError(
                    f"{self}: {self.table!r} has no foreign key {self.key!r}: {nearest(self.key, table.key)}"
                )
            below = database[table.key[self.key].target]
        for where, column in ((below, self.lower), (table, self.upper)):
            if column not in where.column:
                raise PlanError(f"{self}: {where.name!r} has no column {column!r}: {nearest(column, where.column)}")
            if column in where.key_columns:
                raise PlanError(f"{self}: {where.name}.{column} is a key; rules are for data")
        kinds = {below.column[self.lower].type.kind, table.column[self.upper].type.kind}
        if len(kinds) > 1 or not table.column[self.upper].type.ordered:
            raise PlanError(f"{self}: columns of type {' and '.join(sorted(kinds))} cannot be compared")

    def __str__(self) -> str:
        low = self.lower if self.key is None else f"{self.key}.{self.lower}"
        return f"the rule {low} <= {self.upper} of {self.table!r}"


@dataclass(frozen=True)
class Determined:
    """Rows of ``table`` that agree on ``columns`` agree on ``dependent`` (city → country)."""

    table: str
    columns: tuple[str, ...]
    dependent: str

    def check(self, database: Database) -> None:
        """Refuse a rule that names what is not there."""
        table = database[self.table]
        for column in (*self.columns, self.dependent):
            if column not in table.column:
                raise PlanError(f"{self}: {self.table!r} has no column {column!r}: {nearest(column, table.column)}")
        if self.dependent in self.columns or not self.columns:
            raise PlanError(f"{self}: a column cannot determine itself, and something must")
        if self.dependent in table.key_columns:
            raise PlanError(f"{self}: {self.dependent!r} is a key; rules are for data")

    def __str__(self) -> str:
        return f"the rule {', '.join(self.columns)} -> {self.dependent} of {self.table!r}"


Constraint = Ordered | Determined


def constraint_from_dict(data: Mapping[str, Any]) -> Constraint:
    """Read a rule as a plan writes it."""
    kind: type[Ordered] | type[Determined] = Determined if "dependent" in data else Ordered
    known = [f.name for f in fields(kind)]
    for name in data:
        if name not in known:
            raise PlanError(f"a constraint has an unknown key {name!r}: {nearest(name, known)}")
    for name, value in data.items():
        if name == "columns":
            require_kind("columns of a constraint", value, "list")
        for part in value if name == "columns" else [value]:
            require_kind(f"{name} of a constraint", part, "text")
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    try:
        return kind(**given)
    except TypeError:
        need = "table, columns and dependent" if kind is Determined else "table, lower and upper"
        raise PlanError(f"a constraint needs {need}") from None


def constraint_to_dict(constraint: Constraint) -> dict[str, Any]:
    """Invert :func:`constraint_from_dict`."""
    made = {f.name: getattr(constraint, f.name) for f in fields(constraint)}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in made.items() if v is not None}


def obey(
    rules: Sequence[Constraint],
    tables: dict[str, pa.Table],
    links: Mapping[tuple[str, str], IntArray],
    database: Database,
    *,
    settled: dict[str, dict[tuple[Any, ...], Any]] | None = None,
) -> dict[str, int]:
    """Make a database keep all rules, in place; return how many rows each of them had to change.

    A dependent value gives way to the commonest one of its group. A row whose two values stand the wrong way round swaps
    them. Then values are only ever raised, up to what must not be above them, until nothing is left to raise: this ends,
    since no value passes the largest one there was. ``settled`` holds, by rule, what dependent values of earlier rows are;
    rows that are new follow it and add to it.
    """
    changed = dict.fromkeys(map(str, rules), 0)
    ordered = [r for r in rules if isinstance(r, Ordered)]
    for dependence in _settling_order(rules):
        known = {} if settled is None else settled.setdefault(str(dependence), {})
        changed[str(dependence)] += _settle(dependence, tables, known)
    for rule in ordered:
        if rule.key is None:
            changed[str(rule)] += _swap(rule, tables)
    busy = True
    while busy:
        raised = {str(r): _raise(r, tables, links, database) for r in ordered}
        for name, rows in raised.items():
            changed[name] += rows
        busy = any(raised.values())
    return changed


def broken(
    rule: Constraint,
    tables: Mapping[str, pa.Table],
    links: Mapping[tuple[str, str], IntArray],
    database: Database,
) -> int:
    """Count the rows that break a rule; nothing is changed."""
    copy = dict(tables)
    return _settle(rule, copy, {}) if isinstance(rule, Determined) else _raise(rule, copy, links, database)


def _swap(rule: Ordered, tables: dict[str, pa.Table]) -> int:
    table = tables[rule.table]
    lower, upper = table[rule.lower].combine_chunks(), table[rule.upper].combine_chunks()
    wrong = _above(lower, upper)
    table = _set(table, rule.lower, _where(wrong, upper, lower))
    tables[rule.table] = _set(table, rule.upper, _where(wrong, lower, upper))
    return int(wrong.sum())


def _raise(
    rule: Ordered, tables: dict[str, pa.Table], links: Mapping[tuple[str, str], IntArray], database: Database
) -> int:
    table = tables[rule.table]
    upper = table[rule.upper].combine_chunks()
    if rule.key is None:
        lower = table[rule.lower].combine_chunks()
    else:
        target = database[rule.table].key[rule.key].target
        lower = _take(tables[target][rule.lower].combine_chunks(), links[rule.table, rule.key])
    wrong = _above(lower, upper)
    tables[rule.table] = _set(table, rule.upper, _where(wrong, lower, upper))
    return int(wrong.sum())


def _set(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values.cast(table.schema.field(name).type))


def _above(lower: pa.Array, upper: pa.Array) -> np.ndarray[Any, Any]:
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(pc.greater(lower, upper.cast(lower.type)), False).to_numpy(zero_copy_only=False))


def _where(mask: np.ndarray[Any, Any], yes: pa.Array, no: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(pa.array(mask), yes.cast(no.type), no)


def _take(values: pa.Array, at: IntArray) -> pa.Array:
    import pyarrow as pa

    return values.take(pa.array(at, pa.int64(), mask=at < 0))


def _settle(rule: Determined, tables: dict[str, pa.Table], settled: dict[tuple[Any, ...], Any]) -> int:
    import pyarrow as pa

    table = tables[rule.table]
    groups: dict[tuple[Any, ...], dict[Any, int]] = {}
    keys = list(zip(*(table[c].to_pylist() for c in rule.columns), strict=True))
    values = table[rule.dependent].to_pylist()
    for key, value in zip(keys, values, strict=True):
        seen = groups.setdefault(key, {})
        seen[value] = seen.get(value, 0) + 1
    for key, seen in groups.items():
        settled.setdefault(key, max(seen, key=lambda v: (seen[v], str(v))))
    made = [settled[key] for key in keys]
    tables[rule.table] = _set(table, rule.dependent, pa.array(made, table.schema.field(rule.dependent).type))
    return sum(a != b for a, b in zip(made, values, strict=True))


def _settling_order(rules: Sequence[Constraint]) -> list[Determined]:
    """Rules of dependence, such that a value is settled before what depends on it."""
    found = [r for r in rules if isinstance(r, Determined)]
    before = {r: [o for o in found if o.table == r.table and o.dependent in r.columns] for r in found}
    try:
        return list(TopologicalSorter(before).static_order())
    except CycleError:
        raise PlanError(f"{' and '.join(map(str, found))} depend on each other in a circle; drop one of them") from None


def check_together(rules: Sequence[Constraint]) -> None:
    """Refuse rules that would undo each other.

    A value that is determined cannot also be raised or swapped, nor can one that determines others, and only one rule may
    determine it.
    """
    if len(set(rules)) != len(rules):
        raise PlanError("a constraint is declared twice")
    decided: dict[tuple[str, str], Determined] = {}
    for own in _settling_order(rules):
        other = decided.setdefault((own.table, own.dependent), own)
        if other != own:
            raise PlanError(f"{own} and {other} both decide {own.dependent!r}; drop one of them")
        decided |= {(own.table, c): own for c in own.columns if (own.table, c) not in decided}
    for rule in rules:
        if isinstance(rule, Ordered):
            for column in (rule.upper, *([rule.lower] if rule.key is None else [])):
                if (rule.table, column) in decided:
                    raise PlanError(
                        f"{rule} and {decided[rule.table, column]} both decide {column!r}; drop one of them"
                    )


def require_possible(plan: Plan) -> None:
    """Refuse rules that declared domains contradict, or that could not be kept without leaving them."""
    for rule in plan.constraints:
        if not isinstance(rule, Ordered):
            continue
        table = plan.table[rule.table]
        below = table if rule.key is None else plan.table[table.key[rule.key].key.target]
        low, high = declared_range(below.column[rule.lower]), declared_range(table.column[rule.upper])
        if low is None or high is None:
            continue
        if low[0] > high[1]:
            raise PlanError(
                f"{rule} contradicts the declared domains: {rule.lower!r} begins above the end of {rule.upper!r}"
            )
        if low[1] > high[1] or (rule.key is None and low[0] > high[0]):
            raise PlanError(
                f"{rule} could not be kept within the declared domains; let {rule.upper!r} begin no lower and end no earlier "
                f"than {rule.lower!r}"
            )


def declared_range(column: ColumnPlan) -> tuple[float, float] | None:
    """Smallest and largest value that a plan declares for a column, on its number line; None where it does not."""
    kind = column.column.type
    match column.domain:
        case Bins(edges=edges):
            last = to_axis(kind, edges[-1])
            return to_axis(kind, edges[0]), last if kind.kind == "float" else last - 1
        case Categories(values=values, other=False) if kind.ordered:
            points = [to_axis(kind, v) for v in values]
            return min(points), max(points)
    return None
