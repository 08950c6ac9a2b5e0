"""Plan: every public choice, frozen, validated at birth, TOML in and out without loss.

A plan is written before a row is read and holds nothing private, so it may be published with the result.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dpweave import chosen
from dpweave.engines.staging import staged
from dpweave.errors import PlanError, nearest
from dpweave.plan import value_kinds
from dpweave.plan.compiled import CompiledPlan, compile_plan, weaving_order
from dpweave.plan.declared import VERSION, DeclaredPlan
from dpweave.plan.drafting import looks_opaque, propose_owning, proposed_order
from dpweave.plan.entries import (
    METHODS,
    NUMBERS,
    ROLES,
    ColumnPlan,
    External,
    KeyPlan,
    Role,
    Shares,
    TablePlan,
    mapping,
    names,
    refuse_unknown,
    require_weight,
    table_from_dict,
    workload_from_dict,
)
from dpweave.plan.rule_checks import (
    require_free_key,
    require_listed,
    require_order,
    require_possible_counts,
    require_two_ways,
)
from dpweave.plan.rules import Allowed, Equal, Exactly, NeverBack, Symmetric, check_together, constraint_from_dict
from dpweave.plan.value_kinds import require_kinds, require_locale, require_plain
from dpweave.plan.workloads import joined
from dpweave.schema.database import Database, Type
from dpweave.schema.domain import STEPS, Bins, Declared, Learn, Opaque, default_domain
from dpweave.schema.fake_values import DEFAULT_LOCALE
from dpweave.schema.gathered import require_gathered
from dpweave.schema.key_graph import KeyGraph

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.plan.explanation import Explanation
    from dpweave.schema.database import Column, Database, Table
    from dpweave.schema.domain import Declared


def draft_plan(
    database: Database,
    *,
    protect: tuple[str, ...],
    public: tuple[str, ...],
    neighbours: Literal["entity", "record"],
    max_degree: int,
) -> Plan:
    """Propose roles, bounds and domains. Raises PlanError where a table can be neither owned nor left out."""
    owning = propose_owning(database, protect=protect, public=public)
    graph = KeyGraph(database)

    def draft_key(table: Table, name: str) -> KeyPlan:
        key = table.key[name]
        if key.target in public:
            return KeyPlan(key, "attribute")
        second = key.target in protect and table.name in owning and not table.is_nullable(key)
        role: Role = "owning" if owning.get(table.name) == name else "shared" if second else "linking"
        acyclic = key.target == table.name and table.is_nullable(key)
        return KeyPlan(key, role, 1 if graph.kind(table.name, key) == "one-to-one" else max_degree, acyclic=acyclic)

    def ordered(table: Table, planned: KeyPlan) -> KeyPlan:
        """A guess where it can be used: rows of one unit, of which no other unit hides any."""
        roles = {draft_key(table, k.name).role for k in table.foreign_keys}
        usable = planned.role == "owning" and planned.key.target != table.name and neighbours == "entity"
        opaque = {c.name for c in table.columns if isinstance(_domain(table, c), Opaque)}
        usable &= graph.kind(table.name, planned.key) != "one-to-one"  # one row of an owner comes after no other
        guess = proposed_order(table, planned.key, but=opaque)
        return replace(planned, order_by=guess) if usable and guess and "shared" not in roles else planned

    tables = tuple(
        TablePlan(
            name=table.name,
            columns=tuple(_draft_column(table, c, public=table.name in public) for c in table.columns),
            primary_key=table.primary_key,
            unique=table.unique,
            keys=tuple(ordered(table, draft_key(table, k.name)) for k in table.foreign_keys),
            namespace=table.namespace,
        )
        for table in database
    )
    return Plan(tables=tables, protect=protect, public=public, neighbours=neighbours)


def _draft_column(table: Table, column: Column, *, public: bool) -> ColumnPlan:
    """Draft a column. A decimal without places is drafted as a float: as a decimal it
    would come out in whole numbers.
    """
    domain = _domain(table, column)
    if column.type == Type("decimal") and isinstance(domain, Learn) and not public:
        column = replace(column, type=Type("float", bits=64))
    return ColumnPlan(column, domain)


def _domain(table: Table, column: Column) -> Declared | None:
    if column.name in table.key_columns:
        return None
    if looks_opaque(column) or any(u == (column.name,) for u in table.unique):
        return Opaque()
    return default_domain(column)


__all__ = ["ColumnPlan", "External", "KeyPlan", "Plan", "Role", "Shares", "TablePlan"]


LONGEST = 1 << 26
"""Bytes that a plan may have."""
EXPLAINER = ("dpweave.explain.explain_plan", "explain")
"""Who explains a plan: found by name, as table mechanisms are. Explaining needs budgets
and links, and these need plans.
"""


@dataclass(frozen=True)
class Plan(DeclaredPlan):
    """Everything public about one release: schema, domains, keys, bounds, who is protected, how the budget is split."""

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 2:
            raise PlanError(f"k must be a whole number of at least 2, not {self.k!r}")
        require_locale(self.locale)
        for name in self.views:
            if name not in self.table:
                raise PlanError(f"views lists {name!r}, which is no table of the plan: {nearest(name, self.table)}")
        for table in self.tables:
            self._check(table)
        for constraint in self.constraints:
            constraint.check(self.database)
            if constraint.table in self.public:
                raise PlanError(f"{constraint}: public tables are copied as they are")
            if isinstance(constraint, Allowed):
                require_listed(self, constraint)
            if isinstance(constraint, Exactly):
                require_possible_counts(self, constraint)
            if isinstance(constraint, Equal):
                require_free_key(self, constraint)
            if isinstance(constraint, Symmetric):
                require_two_ways(self, constraint)
            if isinstance(constraint, NeverBack):
                require_order(self, constraint)
        check_together(self.constraints)
        _ = self.promise
        _ = joined(self)
        for table in self.tables:
            for key in table.keys:
                self._check_room(table, key)
                self._check_least(table, key)

    def _check(self, table: TablePlan) -> None:
        from dpweave.plan.mechanisms import BUILT_IN, registered

        require_weight(f"the weight of table {table.name!r}", table.weight)
        if table.mechanism not in BUILT_IN and table.mechanism not in registered():
            raise PlanError(
                f"table {table.name!r} asks for a mechanism {table.mechanism!r} that does not exist:"
                f" {nearest(table.mechanism, registered())}"
            )
        if (table.mechanism == "external") != (table.external is not None):
            raise PlanError(
                f'table {table.name!r} needs both mechanism = "external" and what its maker declares, '
                f'such as external = {{ epsilon = 1.0, path = "{table.name}.parquet" }}, or neither'
            )
        if table.external is not None and (table.name in self.public or not table.modelled):
            why = "is public and copied as it is" if table.name in self.public else "has only keys"
            raise PlanError(f"table {table.name!r} cannot be made elsewhere: it {why}; take another mechanism")
        cells = table.model_cells
        if cells is not None and (isinstance(cells, bool) or not isinstance(cells, int) or cells < 1):
            raise PlanError(f"model_cells of table {table.name!r} must be a whole number of at least 1, not {cells!r}")
        if table.rows is not None and (
            isinstance(table.rows, bool) or not isinstance(table.rows, int) or table.rows < 0
        ):
            raise PlanError(f"rows of table {table.name!r} must be a whole number of at least 0, not {table.rows!r}")
        self._check_public_rows(table)
        for planned in table.columns:
            require_gathered(self.database, table.name, planned.column, public=self.public)
        dictated = {c for k in table.keys for c in k.key.columns}
        for column in (c for c in table.columns if c.placeholder is not None):
            if table.name in self.public or column.name in dictated:
                why = "public and copied as it is" if table.name in self.public else "dictated by a foreign key"
                raise PlanError(f"{table.name}.{column.name} cannot have a placeholder: it is {why}; drop it")
        for key in table.keys:
            where = f"the foreign key {key.key.name!r} of {table.name!r}"
            for name in key.key.columns:
                if name not in table.column:
                    raise PlanError(f"{where} names a column {name!r} that is not there: {nearest(name, table.column)}")
                if (
                    table.name not in self.public
                    and key.key.target not in self.public
                    and table.column[name].domain is not None
                ):
                    raise PlanError(
                        f"column {name!r} of {table.name!r} belongs to {where}, so its domain must be 'key'"
                    )
            if key.role not in ROLES:
                raise PlanError(f"{where} has a role {key.role!r} that does not exist: {nearest(key.role, ROLES)}")
            for flag, value in (("acyclic", key.acyclic), ("within", key.within)):
                if not isinstance(value, bool):
                    raise PlanError(f"{flag} of {where} must be true or false, not {value!r}")
            if key.acyclic and (key.key.target != table.name or not table.table.is_nullable(key.key)):
                raise PlanError(
                    f"{where} cannot be acyclic: only a nullable key of a table to itself can, or rows could not begin"
                )
            if key.within:
                self._check_within(table, key, where)
            cap = key.degree_cap
            if cap is not None and (isinstance(cap, bool) or not isinstance(cap, int) or cap < 1):
                raise PlanError(f"degree_cap of {where} must be a whole number of at least 1, not {cap!r}")
            edges = key.degree_edges
            if edges is not None and (len(edges) < 2 or edges[0] != 0 or list(edges) != sorted(set(edges))):
                raise PlanError(f"degree_edges of {where} must rise from 0")
            require_weight(f"the weight of {where}", key.weight)
            if key.method not in METHODS:
                raise PlanError(
                    f"{where} asks for a method {key.method!r} that does not exist: {nearest(key.method, METHODS)}"
                )
            public = key.key.target in self.public
            if table.name not in self.public and public != (key.role == "attribute"):
                need = (
                    "leads to a public table, so its role is attribute"
                    if public
                    else "leads to a private table, so its role is owning, shared or linking"
                )
                raise PlanError(f"{where} {need}, not {key.role}")
            self._check_order(table, key, where)

    def _check_public_rows(self, table: TablePlan) -> None:
        """Refuse a public number of rows where there is none, or where other rows dictate it."""
        where = f"rows_public of table {table.name!r}"
        if not isinstance(table.rows_public, bool):
            raise PlanError(f"{where} must be true or false, not {table.rows_public!r}")
        if table.rows_public and table.rows is None:
            raise PlanError(f"{where} says that the number of rows is public, but rows does not say it; add rows = N")
        if table.rows_public and table.name in self.public:
            raise PlanError(f"{where} means nothing: a public table is copied as it is; drop it")
        if table.rows_public and table.external is not None:
            raise PlanError(f"{where} cannot hold: a copy has as many rows as were made elsewhere; drop it")

    def _check_least(self, table: TablePlan, key: KeyPlan) -> None:
        """Refuse a least degree that no owner could have."""
        where = f"the foreign key {key.key.name!r} of {table.name!r}"
        least, most = key.min_degree, key.max_degree if key.degree_cap is None else key.degree_cap
        if isinstance(least, bool) or not isinstance(least, int) or least < 0:
            raise PlanError(f"min_degree of {where} must be a whole number of at least 0, not {least!r}")
        if least and (key.role != "owning" or key.key.target == table.name):
            raise PlanError(f"{where} cannot have a min_degree: only a key by which another table owns rows can")
        single = table.table.is_unique(key.key.columns)
        if least and most is not None and least > (1 if single else most):
            raise PlanError(f"min_degree = {least} of {where} is more than an owner may have; lower it")
        rows, owners = table.public_rows, self.table[key.key.target].public_rows
        if rows is not None and owners is not None and rows < least * owners:
            raise PlanError(f"min_degree = {least} of {where} cannot hold: {rows:,} public rows for {owners:,} owners")

    def _check_order(self, table: TablePlan, key: KeyPlan, where: str) -> None:
        """Refuse an order of rows that no column gives."""
        if key.order_by is None:
            return
        if key.role != "owning" or key.key.target == table.name:
            raise PlanError(f"{where} cannot have an order_by: only rows that another table owns come in an order")
        column = table.column.get(key.order_by)
        if column is None:
            raise PlanError(
                f"order_by of {where} names a column {key.order_by!r} that is not there:"
                f" {nearest(key.order_by, table.column)}"
            )
        if not self.can_order(table, key, column):
            raise PlanError(
                f"rows cannot be put in order by {table.name}.{key.order_by}: order_by of {where} needs a whole number,"
                " a date or a timestamp with a range, learned or declared, or a number that makes rows of one owner"
                " unique"
            )

    @staticmethod
    def can_order(table: TablePlan, key: KeyPlan, column: ColumnPlan) -> bool:
        """Whether rows of one owner by ``key`` may come in the order of a column."""
        numbered = column.domain is None and any(
            {*unique} == {column.name, *key.key.columns} for unique in (table.primary_key, *table.unique)
        )
        return column.column.type.kind in STEPS and (numbered or isinstance(column.domain, Learn | Bins))

    def _check_within(self, table: TablePlan, key: KeyPlan, where: str) -> None:
        """Refuse a key that stays within units where another one says who may meet; the
        promise refuses rows that are not of one unit.
        """
        order = weaving_order(self)
        if order.index(key.key.target) > order.index(table.name):
            raise PlanError(
                f"{where} cannot stay within units: which unit rows of {key.key.target!r} belong to is drawn after"
                f" those of {table.name!r}; drop within"
            )
        if any({*key.key.columns} & {*k.key.columns} for k in table.keys if k is not key):
            raise PlanError(
                f"{where} shares columns with another foreign key, which says already who may meet; drop within"
            )

    def _check_room(self, table: TablePlan, key: KeyPlan) -> None:
        """Refuse a promised bound that the declared numbers of rows cannot keep."""
        rows, targets, bound = table.rows, self.table[key.key.target].rows, key.max_degree
        promised = self.neighbours == "record" and self.on_excess == "refuse" and not table.table.is_nullable(key.key)
        if promised and rows is not None and targets is not None and bound is not None and rows > bound * targets:
            raise PlanError(
                f"max_degree = {bound} of the foreign key {key.key.name!r} of {table.name!r} cannot hold: {rows:,}"
                f" declared rows must each lead to one of {targets:,} rows of {key.key.target!r}; raise it to at least"
                f" {-(-rows // max(targets, 1))}"
            )

    # -- making plans ----------------------------------------------------------------------------------------------

    @classmethod
    def draft(
        cls,
        source: object,
        *,
        protect: Sequence[str],
        public: Sequence[str] = (),
        neighbours: Literal["entity", "record"] = "entity",
        max_degree: int = chosen.DEFAULT_DEGREE,
        schema: str | None = None,
        views: Sequence[str] = (),
    ) -> Plan:
        """Write a first plan from the catalogue of ``source``. Reads no row.

        On a server, ``schema`` names the schema of PostgreSQL or the database of MySQL, and ``views`` are taken for
        tables; their keys are proposed from names, since no catalogue says them.

        Owning keys are proposed along the shortest chains to a protected table, mandatory keys
        first. A mandatory key to a second protected table is shared: its rows are hidden for
        both. Columns whose names or types look like identifiers or free text are not modelled.
        """
        from dpweave.engines.opening import open_source
        from dpweave.schema.proposed_keys import propose_keys, propose_keys_of

        with open_source(source, schema=schema, views=views) as opened:
            opened.require_tables(views)
            declared, listed = opened.database, tuple(views)
            drafted = draft_plan(
                propose_keys_of(declared, listed) if opened.declares_keys else propose_keys(declared),
                protect=tuple(protect),
                public=tuple(public),
                neighbours=neighbours,
                max_degree=max_degree,
            )
            return replace(drafted, views=listed)

    def require(self, database: Database) -> None:
        """Refuse a source whose catalogue does not hold what this plan was written for."""
        for table in self.tables:
            if table.name not in database:
                raise PlanError(
                    f"the plan is for another schema: the source has no table {table.name!r}:"
                    f" {nearest(table.name, database.names)}"
                )
            have = database[table.name]
            for column in (c for c in table.columns if c.column.gathered is None):
                if column.name not in have.column:
                    raise PlanError(
                        f"the plan is for another schema: {table.name!r} has no column {column.name!r}:"
                        f" {nearest(column.name, have.column)}"
                    )
                real = have.column[column.name].type.kind
                declared = column.column.type.kind
                castable = real in ("text", "unknown") or {real, declared} <= NUMBERS  # if the source can
                if real != declared and not castable:
                    raise PlanError(
                        f"the plan is for another schema: {table.name}.{column.name} is {have.column[column.name].type}"
                        f" in the source and {column.column.type} in the plan"
                    )

    def explain(self, *, epsilon: float, delta: float) -> Explanation:
        """Who is protected, what one unit can own, how the budget is split, what noise to expect. Reads no row."""
        module, name = EXPLAINER
        found: Explanation = getattr(import_module(module), name)(self, epsilon=epsilon, delta=delta)
        return found

    def compile(self) -> CompiledPlan:
        """What follows from the plan for each table, key and relation, worked out once."""
        return self._compiled

    @cached_property
    def _compiled(self) -> CompiledPlan:
        return compile_plan(self)

    # -- TOML ------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the plan as TOML, whole or not at all."""
        with staged(Path(path)) as draft:
            draft.write_text(self.to_toml(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan from TOML."""
        try:
            if Path(path).stat().st_size > LONGEST:
                raise PlanError(f"{path} is larger than {LONGEST >> 20} MB; it is no plan")
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PlanError(
                f"the plan {path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}"
            ) from None
        return cls.from_toml(text)

    def to_toml(self) -> str:
        """Return the plan as TOML."""
        from dpweave.plan.toml_text import plan_text

        return plan_text(self)

    @classmethod
    def from_toml(cls, text: str) -> Plan:
        """Read TOML; unknown keys are refused with the nearest known one."""
        try:
            data = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # numbers of more digits than Python reads, brackets without end
            raise PlanError(f"the plan is not valid TOML: {error}") from None
        return cls.from_dict(data)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Plan:
        """Invert :meth:`to_dict`."""
        known = ("version", "budget", *(f.name for f in fields(cls) if f.name != "shares"))
        refuse_unknown("the plan", data, known)
        require_plain(data)
        require_kinds("", data, value_kinds.PLAN)
        if data.get("version", VERSION) != VERSION:
            raise PlanError(f"the plan has version {data['version']!r}; this dpweave reads version {VERSION}")
        budget = mapping("budget", data.get("budget", {}))
        refuse_unknown("budget", budget, [f.name for f in fields(Shares)])
        tables = tuple(
            table_from_dict(name, mapping(f"tables.{name}", t))
            for name, t in mapping("tables", data.get("tables", {})).items()
        )
        if not tables:
            raise PlanError("the plan has no tables; write one with 'dpweave draft'")
        decimals = {(t.name, c.name) for t in tables for c in t.columns if c.column.type.kind == "decimal"}
        return cls(
            tables=tables,
            protect=names("protect", data.get("protect", [])),
            public=names("public", data.get("public", [])),
            views=names("views", data.get("views", [])),
            neighbours=data.get("neighbours", "entity"),
            on_excess=data.get("on_excess", "refuse"),
            k=data.get("k", 3),
            shares=Shares(**budget),
            constraints=tuple(
                constraint_from_dict(mapping("constraints", c), decimals) for c in data.get("constraints", [])
            ),
            workloads=tuple(workload_from_dict(mapping("workloads", w)) for w in data.get("workloads", [])),
            locale=data.get("locale", DEFAULT_LOCALE),
        )

    def replace_degree_edges(self, table: str, key: str, edges: tuple[int, ...]) -> Plan:
        """Return a copy with other groups of the degrees by one key."""
        target = self.table[table]
        keys = tuple(replace(k, degree_edges=edges) if k.key.name == key else k for k in target.keys)
        return replace(self, tables=tuple(replace(t, keys=keys) if t.name == table else t for t in self.tables))

    def replace_domain(self, table: str, column: str, domain: Declared) -> Plan:
        """Return a copy with another domain for one column."""
        target = self.table.get(table)
        if target is None:
            raise PlanError(f"there is no table {table!r}: {nearest(table, self.table)}")
        if column not in target.column:
            raise PlanError(f"table {table!r} has no column {column!r}: {nearest(column, target.column)}")
        columns = tuple(replace(c, domain=domain) if c.name == column else c for c in target.columns)
        return replace(self, tables=tuple(replace(t, columns=columns) if t.name == table else t for t in self.tables))
