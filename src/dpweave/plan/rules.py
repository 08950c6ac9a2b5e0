"""Rules that rows keep exactly, as a plan declares them.

Table models know those about one table's own columns (:mod:`dpweave.fitting.rule_structure`), and
:mod:`dpweave.weaving.kept_rules.rule_repair` mends what a model cannot hold.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from dpweave.errors import PlanError, nearest
from dpweave.plan.value_kinds import require_kind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dpweave.schema.database import Database
    from dpweave.schema.domain import Scalar

NULL = {"null": True}
"""How a plan writes null among values: TOML has no word for it."""


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


@dataclass(frozen=True)
class Allowed:
    """Rows of ``table`` have only these combinations of values in ``columns``; None is null.

    ``allowed`` lists them, or names a public table that holds them, in ``allowed_columns`` or in columns of the same
    names.
    """

    table: str
    columns: tuple[str, ...]
    allowed: tuple[tuple[Scalar | None, ...], ...] | str
    allowed_columns: tuple[str, ...] = ()

    @property
    def source_columns(self) -> tuple[str, ...]:
        """The columns of a public table that hold the combinations."""
        return self.allowed_columns or self.columns

    def check(self, database: Database) -> None:
        """Refuse a rule that names what is not there, or lists what is no combination."""
        table = database[self.table]
        if not self.columns or len(set(self.columns)) != len(self.columns):
            raise PlanError(f"{self} needs columns that differ")
        _require_data_columns(self, self.columns, database)
        if isinstance(self.allowed, str):
            self._check_source(database)
            return
        if self.allowed_columns:
            raise PlanError(f"{self}: allowed_columns are columns of a public table; name that table in allowed")
        if not self.allowed:
            raise PlanError(f"{self} lists no combination, so that no row could be; list at least one")
        for values in self.allowed:
            if len(values) != len(self.columns):
                raise PlanError(f"{self}: {list(values)!r} has {len(values)} values for {len(self.columns)} columns")
            for name, value in zip(self.columns, values, strict=True):
                if value is None and not table.column[name].nullable:
                    raise PlanError(f"{self}: {name!r} is never null; drop the combination {list(values)!r}")
        if len(set(self.allowed)) != len(self.allowed):
            raise PlanError(f"{self} lists a combination twice")

    def _check_source(self, database: Database) -> None:
        assert isinstance(self.allowed, str)
        if self.allowed not in database:
            raise PlanError(f"{self}: there is no table {self.allowed!r}: {nearest(self.allowed, database.names)}")
        if len(self.source_columns) != len(self.columns):
            raise PlanError(f"{self}: allowed_columns needs one column for each of {list(self.columns)}")
        theirs, own = database[self.allowed], database[self.table]
        for name, other in zip(self.columns, self.source_columns, strict=True):
            if other not in theirs.column:
                raise PlanError(f"{self}: {self.allowed!r} has no column {other!r}: {nearest(other, theirs.column)}")
            kinds = own.column[name].type.kind, theirs.column[other].type.kind
            if kinds[0] != kinds[1]:
                raise PlanError(f"{self}: {name!r} is of type {kinds[0]} and {self.allowed}.{other} of type {kinds[1]}")

    def __str__(self) -> str:
        return f"the rule on combinations of {', '.join(self.columns)} of {self.table!r}"


@dataclass(frozen=True)
class Exactly:
    """Of the rows that lead to one target by the key ``per``, exactly so many have this ``value`` in ``column``."""

    table: str
    per: str
    column: str
    value: Scalar
    exactly: int = 1

    def check(self, database: Database) -> None:
        """Refuse a rule that names what is not there."""
        table = database[self.table]
        if self.per not in table.key:
            raise PlanError(f"{self}: {self.table!r} has no foreign key {self.per!r}: {nearest(self.per, table.key)}")
        _require_data_columns(self, (self.column,), database)
        if self.exactly < 1:
            raise PlanError(f"{self}: exactly must be at least 1; leave a value out of the domain that no row has")

    def __str__(self) -> str:
        return f"the rule {self.column} = {self.value!r} exactly {self.exactly} times per {self.per} of {self.table!r}"


@dataclass(frozen=True)
class Equal:
    """Rows of ``table`` that lead somewhere by both paths lead to the same row (the district of an account is its
    client's). Paths are foreign keys joined by dots; the first is one key, which follows the second.
    """

    table: str
    equal: tuple[str, ...]

    @property
    def key(self) -> str:
        """The key that follows."""
        return self.equal[0]

    @property
    def path(self) -> tuple[str, ...]:
        """The keys that lead."""
        return tuple(self.equal[1].split("."))

    def check(self, database: Database) -> None:
        """Refuse paths that are not there, or that lead to different tables."""
        if len(self.equal) != 2:
            raise PlanError(f"{self} needs two paths, such as equal = ['district', 'client.district']")
        ends = []
        for path in ((self.key,), self.path):
            here = database[self.table]
            for step in path:
                if step not in here.key:
                    raise PlanError(f"{self}: {here.name!r} has no foreign key {step!r}: {nearest(step, here.key)}")
                here = database[here.key[step].target]
            ends.append(here.name)
        if ends[0] != ends[1]:
            raise PlanError(f"{self}: one path leads to {ends[0]!r} and the other to {ends[1]!r}")
        if self.path[0] == self.key:
            raise PlanError(f"{self}: the second path must begin with another key")

    def __str__(self) -> str:
        return f"the rule {' = '.join(self.equal)} of {self.table!r}"


@dataclass(frozen=True)
class Symmetric:
    """With each row of ``table`` that leads from x to y by two keys there is one that leads from y to x: friends."""

    table: str
    symmetric: tuple[str, ...]

    def check(self, database: Database) -> None:
        """Refuse keys that are not there, lead to different tables, or whose pairs may repeat."""
        table = database[self.table]
        if len(set(self.symmetric)) != 2 or len(self.symmetric) != 2:
            raise PlanError(f"{self} needs two keys, such as symmetric = ['person_id', 'friend_id']")
        for name in self.symmetric:
            if name not in table.key:
                raise PlanError(f"{self}: {table.name!r} has no foreign key {name!r}: {nearest(name, table.key)}")
        first, second = (table.key[name] for name in self.symmetric)
        if first.target != second.target or first.target == self.table:
            raise PlanError(f"{self}: both keys must lead to one other table")
        pair = (*first.columns, *second.columns)
        if set(first.columns) & set(second.columns) or not table.is_unique(pair):
            raise PlanError(f"{self}: a pair must not repeat; write unique = [{list(pair)}] under the table")

    def __str__(self) -> str:
        return f"the rule that {' and '.join(self.symmetric)} of {self.table!r} lead both ways"


@dataclass(frozen=True)
class NeverBack:
    """Of the rows of one owner, none has an earlier value of a column than a row that comes before it (a status).

    Rows come in the order that ``order_by`` of the owning key declares, values in that of the column's domain.
    """

    table: str
    never_back: str

    def check(self, database: Database) -> None:
        """Refuse a rule that names what is not there, or is a key."""
        _require_data_columns(self, (self.never_back,), database)

    def __str__(self) -> str:
        return f"the rule that {self.never_back} of {self.table!r} never goes back"


def _require_data_columns(rule: Constraint, columns: Sequence[str], database: Database) -> None:
    """Refuse columns that are not there, or that are keys."""
    table = database[rule.table]
    for column in columns:
        if column not in table.column:
            raise PlanError(f"{rule}: {table.name!r} has no column {column!r}: {nearest(column, table.column)}")
        if column in table.key_columns:
            raise PlanError(f"{rule}: {table.name}.{column} is a key; rules are for data")


Constraint = Ordered | Determined | Allowed | Exactly | Equal | Symmetric | NeverBack


def constraint_from_dict(data: Mapping[str, Any], decimals: Collection[tuple[str, str]] = ()) -> Constraint:
    """Read a rule as a plan writes it; values of ``decimals``, as (table, column), are written as text."""
    kinds: dict[str, type[Constraint]] = {
        "allowed": Allowed,
        "dependent": Determined,
        "per": Exactly,
        "equal": Equal,
        "symmetric": Symmetric,
        "never_back": NeverBack,
    }
    kind = next((k for name, k in kinds.items() if name in data), Ordered)
    known = [f.name for f in fields(kind)]
    for name in data:
        if name not in known:
            raise PlanError(f"a constraint has an unknown key {name!r}: {nearest(name, known)}")
    lists = [name for name in data if name in ("columns", "allowed_columns", "equal", "symmetric")]
    for name in lists:
        require_kind(f"{name} of a constraint", data[name], "list")
    for name, value in data.items():
        if name == "exactly":
            require_kind("exactly of a constraint", value, "whole")
        elif name not in ("allowed", "value"):
            for part in value if name in lists else [value]:
                require_kind(f"{name} of a constraint", part, "text")
    need = [f.name for f in fields(kind) if f.default is MISSING]
    if any(name not in data for name in need):
        raise PlanError(f"a constraint needs {', '.join(need[:-1])} and {need[-1]}")
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    if kind is Allowed:
        exact = [(data["table"], column) in decimals for column in given["columns"]]
        given["allowed"] = _combinations(data["allowed"], exact)
    if kind is Exactly:
        given["value"] = _read(data["value"], (data["table"], data["column"]) in decimals)
    return kind(**given)


def _combinations(value: Any, exact: Sequence[bool]) -> str | tuple[tuple[Any, ...], ...]:
    """Read what a plan allows: the name of a table, or a list of lists of values."""
    if isinstance(value, str):
        return value
    require_kind("allowed of a constraint", value, "list")
    found = []
    for row in value:
        require_kind("a combination that a constraint allows", row, "list")
        places = [*exact, *[False] * (len(row) - len(exact))]
        found.append(tuple(_read(v, decimal) for v, decimal in zip(row, places, strict=False)))
    return tuple(found)


def _read(value: Any, decimal: bool) -> Any:
    if value is None or value == NULL:
        return None
    if isinstance(value, dict | list):
        raise PlanError(f"a constraint allows values, and null as {{ null = true }}, but not {value!r}")
    try:
        return Decimal(str(value)) if decimal and isinstance(value, str | float) else value
    except ArithmeticError:
        raise PlanError(f"a constraint allows {value!r}, which is no decimal number") from None


def constraint_to_dict(constraint: Constraint) -> dict[str, Any]:
    """Invert :func:`constraint_from_dict`."""
    made = {f.name: getattr(constraint, f.name) for f in fields(constraint)}
    if isinstance(constraint, Allowed) and not isinstance(constraint.allowed, str):
        made["allowed"] = [[_write(v) for v in values] for values in constraint.allowed]
    if isinstance(constraint, Exactly):
        made["value"] = _write(constraint.value)
    return {k: list(v) if isinstance(v, tuple) else v for k, v in made.items() if v is not None and v != ()}


def _write(value: Any) -> Any:
    """Return what TOML can hold."""
    return dict(NULL) if value is None else str(value) if isinstance(value, Decimal) else value


def settling_order(rules: Sequence[Constraint]) -> list[Determined]:
    """Rules of dependence, such that a value is settled before what depends on it."""
    found = [r for r in rules if isinstance(r, Determined)]
    before = {r: [o for o in found if o.table == r.table and o.dependent in r.columns] for r in found}
    try:
        return list(TopologicalSorter(before).static_order())
    except CycleError:
        raise PlanError(f"{' and '.join(map(str, found))} depend on each other in a circle; drop one of them") from None


def ordered_columns(rule: Ordered) -> tuple[str, ...]:
    """Columns of the rule's own table."""
    return (rule.upper, rule.lower) if rule.key is None else (rule.upper,)


def check_together(rules: Sequence[Constraint]) -> None:
    """Refuse rules that would undo each other.

    A value that is determined cannot also be raised or swapped, nor can one that
    determines others, and only one rule may determine it.
    """
    if len(set(rules)) != len(rules):
        raise PlanError("a constraint is declared twice")
    decided: dict[tuple[str, str], Determined] = {}
    for own in settling_order(rules):
        first = decided.setdefault((own.table, own.dependent), own)
        if first != own:
            raise PlanError(f"{own} and {first} both decide {own.dependent!r}; drop one of them")
        decided |= {(own.table, c): own for c in own.columns if (own.table, c) not in decided}
    held: dict[tuple[str, str], Constraint] = dict(decided)
    held |= {(r.table, c): r for r in rules if isinstance(r, Allowed) for c in r.columns}
    for rule in rules:
        if isinstance(rule, Exactly):
            other = held.setdefault((rule.table, rule.column), rule)
            if other != rule:
                raise PlanError(f"{rule} and {other} both decide {rule.column!r}; drop one of them")
    for rule in rules:
        if isinstance(rule, NeverBack):
            ends = {(r.table, c): r for r in rules if isinstance(r, Ordered) for c in ordered_columns(r)}
            taken = (held | ends).get((rule.table, rule.never_back))
            if taken is not None:
                raise PlanError(f"{rule} and {taken} both decide {rule.never_back!r}; drop one of them")
        if isinstance(rule, Ordered):
            for column in ordered_columns(rule):
                if (rule.table, column) in held:
                    raise PlanError(f"{rule} and {held[rule.table, column]} both decide {column!r}; drop one of them")
