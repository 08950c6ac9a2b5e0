"""Rules that rows keep exactly, as a plan declares them. :mod:`dpweave.weaving.rule_repair` makes rows obey."""

from __future__ import annotations

from dataclasses import dataclass, fields
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from dpweave.errors import PlanError, nearest
from dpweave.plan.value_kinds import require_kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.schema.database import Database


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

    A value that is determined cannot also be raised or swapped, nor can one that
    determines others, and only one rule may determine it.
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
