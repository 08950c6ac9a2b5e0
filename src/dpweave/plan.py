"""Plan: every public choice, frozen, validated at birth, TOML in and out without loss.

A plan is written before a row is read and holds nothing private, so it may be published with the result.
"""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, field, fields, replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dpweave.constraints import Constraint, check_together, constraint_from_dict, constraint_to_dict
from dpweave.errors import PlanError, UsageError, nearest
from dpweave.privacy.accounting import declared_rho, require_number
from dpweave.privacy.promise import Promise
from dpweave.schema.domain import (
    Bins,
    Categories,
    Declared,
    Learn,
    Opaque,
    Scalar,
    even_bins,
    from_axis,
    require_fitting,
    to_axis,
)
from dpweave.schema.model import Column, Database, ForeignKey, Table, Type
from dpweave.workloads import WorkloadPlan, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dpweave.explanation import Explanation

Role = Literal["owning", "linking", "attribute"]
ROLES = ("owning", "linking", "attribute")
METHODS = ("auto", "map", "pgd", "random")
NUMBERS = frozenset({"integer", "float", "decimal"})
VERSION = 1


@dataclass(frozen=True)
class ColumnPlan:
    """A column and the domain of its codes. Key columns are dictated by their keys and have none."""

    column: Column
    domain: Declared | None

    def __post_init__(self) -> None:
        if self.domain is not None:
            require_fitting(self.column, self.domain)

    @property
    def name(self) -> str:
        """The column's name."""
        return self.column.name


@dataclass(frozen=True)
class KeyPlan:
    """A foreign key, the part it plays in the promise, and how its links are learned."""

    key: ForeignKey
    role: Role
    max_degree: int | None = None
    method: str = "auto"
    weight: float = 1.0
    degree_cap: int | None = None
    """For an owning key: the most rows one owner can have, if that is known; fewer buckets of degrees are counted then."""
    degree_edges: tuple[int, ...] | None = None
    """For an owning key: groups of degrees that the owner's table model tells apart; learned."""
    acyclic: bool = False
    """For a key of a table to itself: no row leads back to itself, by this and the table's other acyclic keys."""


@dataclass(frozen=True)
class External:
    """What the maker of a table declares it cost: zCDP ``rho``, or ``epsilon`` where no rho is known, and ``delta``.

    It must hold for one row of every protected table with whatever of it is in the table that was made elsewhere. ``path``
    names a Parquet or CSV file; without one, the rows are given to ``fit``.
    """

    epsilon: float | None = None
    delta: float = 0.0
    rho: float | None = None
    path: str | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.rho is None):
            raise PlanError("a table made elsewhere declares either epsilon, perhaps with delta, or rho")
        try:
            _ = self.cost
            require_number("delta", self.delta, low=0, high=1, closed=True)
        except UsageError as error:
            raise PlanError(f"the declared {error}") from None
        if self.path is not None and not (isinstance(self.path, str) and self.path):
            raise PlanError(f"the path of a table made elsewhere must be the name of a file, not {self.path!r}")

    @property
    def cost(self) -> float:
        """What the ledger is charged, in rho; delta comes on top."""
        if self.rho is not None:
            return require_number("rho", self.rho, low=0, high=1e100, closed=True)
        return declared_rho(self.epsilon)  # type: ignore[arg-type]

    @property
    def declared(self) -> dict[str, float]:
        """What was declared, by name."""
        found = {"epsilon": self.epsilon, "rho": self.rho, "delta": self.delta}
        return {name: value for name, value in found.items() if value is not None}

    def __str__(self) -> str:
        said = f"epsilon {self.epsilon:g}" if self.epsilon is not None else f"rho {self.rho:g}"
        return said + (f", delta {self.delta:g}" if self.delta else "")


@dataclass(frozen=True)
class TablePlan:
    """A table with its keys, domains, mechanism, and perhaps a declared approximate size."""

    name: str
    columns: tuple[ColumnPlan, ...]
    primary_key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    keys: tuple[KeyPlan, ...] = ()
    mechanism: str = "auto"
    rows: int | None = None
    weight: float = 1.0
    namespace: str | None = None
    model_cells: int | None = None
    """Cells that the table's model may have; beyond what dpweave's own estimator holds, mbi must be installed."""
    external: External | None = None
    """For the mechanism ``external``: what was declared about rows made elsewhere."""

    @cached_property
    def table(self) -> Table:
        """The table in the schema."""
        columns = tuple(c.column for c in self.columns)
        return Table(self.name, columns, self.primary_key, self.unique, tuple(k.key for k in self.keys), self.namespace)

    @cached_property
    def column(self) -> Mapping[str, ColumnPlan]:
        """Column plans by name."""
        return {c.name: c for c in self.columns}

    @cached_property
    def key(self) -> Mapping[str, KeyPlan]:
        """Key plans by name."""
        return {k.key.name: k for k in self.keys}

    @property
    def modelled(self) -> tuple[ColumnPlan, ...]:
        """Columns that a table model sees: all but keys, and opaque ones only where they may be null."""
        return tuple(
            c
            for c in self.columns
            if c.domain is not None and not (isinstance(c.domain, Opaque) and not c.column.nullable)
        )


@dataclass(frozen=True)
class Shares:
    """Relative shares of the budget. A share for which there is nothing to do goes to the others."""

    domains: float = 0.1
    sizes: float = 0.05
    tables: float = 0.4
    links: float = 0.45
    delta_domains: float = 0.1
    """Part of delta set aside for learning categories, where there are any to learn."""

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
                raise PlanError(f"the budget share {f.name} must be a positive number, not {value!r}")
        if not self.delta_domains < 1:
            raise PlanError(f"the budget share delta_domains must be below 1, not {self.delta_domains}")


@dataclass(frozen=True)
class Plan:
    """Everything public about one release: schema, domains, keys, bounds, who is protected, how the budget is split."""

    tables: tuple[TablePlan, ...]
    protect: tuple[str, ...]
    public: tuple[str, ...] = ()
    neighbours: Literal["entity", "record"] = "entity"
    on_excess: Literal["refuse", "truncate"] = "refuse"
    k: int = 3
    shares: Shares = field(default_factory=Shares)
    constraints: tuple[Constraint, ...] = ()
    workloads: tuple[WorkloadPlan, ...] = ()
    """Column sets, across any tables that join, which get priority in the budget."""

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 2:
            raise PlanError(f"k must be a whole number of at least 2, not {self.k!r}")
        for table in self.tables:
            self._check(table)
        for constraint in self.constraints:
            constraint.check(self.database)
            if constraint.table in self.public:
                raise PlanError(f"{constraint}: public tables are copied as they are")
        check_together(self.constraints)
        _ = self.promise
        _ = joined(self)
        for table in self.tables:
            for key in table.keys:
                self._check_room(table, key)

    def _check(self, table: TablePlan) -> None:
        from dpweave.tables.base import BUILT_IN, registered

        if not table.weight > 0:
            raise PlanError(f"the weight of table {table.name!r} must be positive, not {table.weight}")
        if table.mechanism not in BUILT_IN and table.mechanism not in registered():
            raise PlanError(
                f"table {table.name!r} asks for a mechanism {table.mechanism!r} that does not exist: {nearest(table.mechanism, registered())}"
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
        for key in table.keys:
            where = f"the foreign key {key.key.name!r} of {table.name!r}"
            for name in key.key.columns:
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
            if key.acyclic and (key.key.target != table.name or not table.table.is_nullable(key.key)):
                raise PlanError(
                    f"{where} cannot be acyclic: only a nullable key of a table to itself can, or rows could not begin"
                )
            cap = key.degree_cap
            if cap is not None and (isinstance(cap, bool) or not isinstance(cap, int) or cap < 1):
                raise PlanError(f"degree_cap of {where} must be a whole number of at least 1, not {cap!r}")
            edges = key.degree_edges
            if edges is not None and (len(edges) < 2 or edges[0] != 0 or list(edges) != sorted(set(edges))):
                raise PlanError(f"degree_edges of {where} must rise from 0")
            if not key.weight > 0:
                raise PlanError(f"{where} needs a positive weight, not {key.weight}")
            if key.method not in METHODS:
                raise PlanError(
                    f"{where} asks for a method {key.method!r} that does not exist: {nearest(key.method, METHODS)}"
                )
            public = key.key.target in self.public
            if table.name not in self.public and public != (key.role == "attribute"):
                need = (
                    "leads to a public table, so its role is attribute"
                    if public
                    else "leads to a private table, so its role is owning or linking"
                )
                raise PlanError(f"{where} {need}, not {key.role}")

    def _check_room(self, table: TablePlan, key: KeyPlan) -> None:
        """Refuse a promised bound that the declared numbers of rows cannot keep."""
        rows, targets, bound = table.rows, self.table[key.key.target].rows, key.max_degree
        promised = self.neighbours == "record" and self.on_excess == "refuse" and not table.table.is_nullable(key.key)
        if promised and rows is not None and targets is not None and bound is not None and rows > bound * targets:
            raise PlanError(
                f"max_degree = {bound} of the foreign key {key.key.name!r} of {table.name!r} cannot hold: {rows:,} declared rows "
                f"must each lead to one of {targets:,} rows of {key.key.target!r}; raise it to at least {-(-rows // max(targets, 1))}"
            )

    @cached_property
    def database(self) -> Database:
        """The schema."""
        return Database(tuple(t.table for t in self.tables))

    @cached_property
    def table(self) -> Mapping[str, TablePlan]:
        """Table plans by name."""
        return {t.name: t for t in self.tables}

    @cached_property
    def promise(self) -> Promise:
        """Who is protected, and within which bounds."""
        owning: dict[str, str] = {}
        bounds: dict[tuple[str, str], int] = {}
        for table in self.tables:
            for key in table.keys:
                if key.role == "owning":
                    if table.name in owning:
                        raise PlanError(
                            f"table {table.name!r} has two owning keys, {owning[table.name]!r} and {key.key.name!r}; make one of them linking"
                        )
                    owning[table.name] = key.key.name
                if key.max_degree is not None:
                    bounds[table.name, key.key.name] = key.max_degree
        return Promise(
            self.database, self.protect, frozenset(self.public), owning, bounds, self.neighbours, self.on_excess
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
        max_degree: int = 10,
    ) -> Plan:
        """Write a first plan from the catalogue of ``source``. Reads no row.

        Owning keys are proposed along the shortest chains to a protected table, mandatory keys first. Columns whose
        names or types look like identifiers or free text are not modelled.
        """
        from dpweave.drafting import draft_plan
        from dpweave.schema.reflect import propose_keys
        from dpweave.sources import open_source

        with open_source(source) as opened:
            return draft_plan(
                opened.database if opened.declares_keys else propose_keys(opened.database),
                protect=tuple(protect),
                public=tuple(public),
                neighbours=neighbours,
                max_degree=max_degree,
            )

    def require(self, database: Database) -> None:
        """Refuse a source whose catalogue does not hold what this plan was written for."""
        for table in self.tables:
            if table.name not in database:
                raise PlanError(
                    f"the plan is for another schema: the source has no table {table.name!r}: {nearest(table.name, database.names)}"
                )
            have = database[table.name]
            for column in table.columns:
                if column.name not in have.column:
                    raise PlanError(
                        f"the plan is for another schema: {table.name!r} has no column {column.name!r}: {nearest(column.name, have.column)}"
                    )
                real = have.column[column.name].type.kind
                declared = column.column.type.kind
                castable = real in ("text", "unknown") or {real, declared} <= NUMBERS  # if the source can
                if real != declared and not castable:
                    raise PlanError(
                        f"the plan is for another schema: {table.name}.{column.name} is {have.column[column.name].type} in the source "
                        f"and {column.column.type} in the plan"
                    )

    def explain(self, *, epsilon: float, delta: float) -> Explanation:
        """Who is protected, what one unit can own, how the budget is split, what noise to expect. Reads no row."""
        from dpweave.explanation import explain

        return explain(self, epsilon=epsilon, delta=delta)

    # -- TOML ------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the plan as TOML, whole or not at all."""
        target = Path(path)
        temporary = target.with_name(target.name + ".part")
        try:
            temporary.write_text(self.to_toml(), encoding="utf-8")
            temporary.replace(target)
        except OSError as error:
            raise UsageError(f"the plan cannot be written to {target}: {error.strerror}") from None

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan from TOML."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PlanError(
                f"the plan {path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}"
            ) from None
        return cls.from_toml(text)

    def to_toml(self) -> str:
        """Return the plan as TOML."""
        from dpweave.plantext import plan_text

        return plan_text(self)

    @classmethod
    def from_toml(cls, text: str) -> Plan:
        """Read TOML; unknown keys are refused with the nearest known one."""
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise PlanError(f"the plan is not valid TOML: {error}") from None
        return cls.from_dict(data)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, as TOML and JSON hold them."""
        return {
            "version": VERSION,
            "neighbours": self.neighbours,
            "on_excess": self.on_excess,
            "k": self.k,
            "protect": list(self.protect),
            "public": list(self.public),
            "budget": {f.name: getattr(self.shares, f.name) for f in fields(self.shares)},
            "tables": {t.name: _table_to_dict(t) for t in self.tables},
            **({"constraints": [constraint_to_dict(c) for c in self.constraints]} if self.constraints else {}),
            **({"workloads": [_workload_to_dict(w) for w in self.workloads]} if self.workloads else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Plan:
        """Invert :meth:`to_dict`."""
        known = ("version", "budget", *(f.name for f in fields(cls) if f.name != "shares"))
        _refuse_unknown("the plan", data, known)
        if data.get("version", VERSION) != VERSION:
            raise PlanError(f"the plan has version {data['version']!r}; this dpweave reads version {VERSION}")
        budget = _mapping("budget", data.get("budget", {}))
        _refuse_unknown("budget", budget, [f.name for f in fields(Shares)])
        tables = tuple(
            _table_from_dict(name, _mapping(f"tables.{name}", t))
            for name, t in _mapping("tables", data.get("tables", {})).items()
        )
        if not tables:
            raise PlanError("the plan has no tables; write one with 'dpweave draft'")
        return cls(
            tables=tables,
            protect=_names("protect", data.get("protect", [])),
            public=_names("public", data.get("public", [])),
            neighbours=data.get("neighbours", "entity"),
            on_excess=data.get("on_excess", "refuse"),
            k=data.get("k", 3),
            shares=Shares(**budget),
            constraints=tuple(constraint_from_dict(_mapping("constraints", c)) for c in data.get("constraints", [])),
            workloads=tuple(_workload_from_dict(_mapping("workloads", w)) for w in data.get("workloads", [])),
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


def _refuse_unknown(where: str, data: Mapping[str, Any], known: Iterable[str]) -> None:
    for key in data:
        if key not in known:
            raise PlanError(f"{where} has an unknown key {key!r}: {nearest(key, known)}")


def _mapping(where: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise PlanError(f"{where} must be a table of keys and values")
    return value


def _names(where: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) for v in value):
        raise PlanError(f"{where} must be a list of names")
    return tuple(value)


def _workload_to_dict(workload: WorkloadPlan) -> dict[str, Any]:
    weight = {"weight": workload.weight} if workload.weight != 1.0 else {}
    return {"columns": list(workload.columns), **weight}


def _workload_from_dict(data: Mapping[str, Any]) -> WorkloadPlan:
    _refuse_unknown("a workload", data, ("columns", "weight"))
    return WorkloadPlan(_names("columns of a workload", data.get("columns", [])), data.get("weight", 1.0))


_PLAIN_FIELDS = ("mechanism", "rows", "weight", "namespace", "model_cells")
_DEFAULTS = {f.name: f.default for f in fields(TablePlan)}


def _table_to_dict(table: TablePlan) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if table.primary_key:
        out["primary_key"] = list(table.primary_key)
    if table.unique:
        out["unique"] = [list(u) for u in table.unique]
    for name in _PLAIN_FIELDS:
        if getattr(table, name) != _DEFAULTS[name]:
            out[name] = getattr(table, name)
    if table.external is not None:
        out["external"] = {k: v for k, v in asdict(table.external).items() if v is not None}
    out["columns"] = {c.name: _column_to_dict(c) for c in table.columns}
    if table.keys:
        out["keys"] = {k.key.name: _key_to_dict(k) for k in table.keys}
    return out


def _table_from_dict(name: str, data: Mapping[str, Any]) -> TablePlan:
    where = f"tables.{name}"
    known = ("primary_key", "unique", *_PLAIN_FIELDS, "external", "columns", "keys")
    _refuse_unknown(where, data, known)
    external = _mapping(f"{where}.external", data["external"]) if "external" in data else None
    _refuse_unknown(f"{where}.external", external or {}, [f.name for f in fields(External)])
    columns = _mapping(f"{where}.columns", data.get("columns", {}))
    keys = _mapping(f"{where}.keys", data.get("keys", {}))
    return TablePlan(
        name=name,
        columns=tuple(
            _column_from_dict(f"{where}.columns.{c}", c, _mapping(f"{where}.columns.{c}", v))
            for c, v in columns.items()
        ),
        primary_key=_names(f"{where}.primary_key", data.get("primary_key", [])),
        unique=tuple(_names(f"{where}.unique", u) for u in data.get("unique", [])),
        keys=tuple(_key_from_dict(f"{where}.keys.{k}", k, _mapping(f"{where}.keys.{k}", v)) for k, v in keys.items()),
        external=None if external is None else External(**external),
        **{n: data[n] for n in _PLAIN_FIELDS if n in data},
    )


def _key_to_dict(plan: KeyPlan) -> dict[str, Any]:
    out: dict[str, Any] = {
        "columns": list(plan.key.columns),
        "references": plan.key.target,
        "target": list(plan.key.target_columns),
        "role": plan.role,
    }
    if plan.max_degree is not None:
        out["max_degree"] = plan.max_degree
    if plan.method != "auto":
        out["method"] = plan.method
    if plan.weight != 1.0:
        out["weight"] = plan.weight
    if plan.degree_cap is not None:
        out["degree_cap"] = plan.degree_cap
    if plan.degree_edges is not None:
        out["degree_edges"] = list(plan.degree_edges)
    if plan.acyclic:
        out["acyclic"] = True
    return out


def _key_from_dict(where: str, name: str, data: Mapping[str, Any]) -> KeyPlan:
    _refuse_unknown(
        where,
        data,
        (
            "columns",
            "references",
            "target",
            "role",
            "max_degree",
            "method",
            "weight",
            "degree_cap",
            "degree_edges",
            "acyclic",
        ),
    )
    for need in ("columns", "references", "target", "role"):
        if need not in data:
            raise PlanError(f"{where} lacks {need!r}")
    key = ForeignKey(
        _names(f"{where}.columns", data["columns"]), data["references"], _names(f"{where}.target", data["target"]), name
    )
    return KeyPlan(
        key,
        data["role"],
        data.get("max_degree"),
        data.get("method", "auto"),
        data.get("weight", 1.0),
        data.get("degree_cap"),
        tuple(data["degree_edges"]) if "degree_edges" in data else None,
        data.get("acyclic", False),
    )


def _column_to_dict(plan: ColumnPlan) -> dict[str, Any]:
    out: dict[str, Any] = {"type": str(plan.column.type)}
    if not plan.column.nullable:
        out["nullable"] = False
    out["domain"] = _domain_to_value(plan.domain)
    return out


def _domain_to_value(domain: Declared | None) -> object:
    match domain:
        case None:
            return "key"
        case Opaque():
            return "opaque"
        case Learn() if domain == Learn():
            return "learn"
        case Learn():
            given = {"low": _plain(domain.low), "high": _plain(domain.high), "bins": domain.bins}
            return {"learn": True, **{k: v for k, v in given.items() if v is not None}}
        case Categories(values=values, other=other):
            plain = [_plain(v) for v in values]
            return {"values": plain, "other": True} if other else plain
        case Bins(edges=edges, step=step):
            return {"edges": [_plain(e) for e in edges]} | ({"step": step} if step is not None else {})
    raise TypeError(domain)


def _plain(value: Scalar | None) -> object:
    """Return what TOML can hold: decimals are written as text."""
    return str(value) if isinstance(value, Decimal) else value


def _exact(column: Column, value: Any) -> Any:
    """Invert :func:`_plain`."""
    return Decimal(str(value)) if column.type.kind == "decimal" and isinstance(value, (str, float)) else value


def _column_from_dict(where: str, name: str, data: Mapping[str, Any]) -> ColumnPlan:
    _refuse_unknown(where, data, ("type", "nullable", "domain"))
    for need in ("type", "domain"):
        if need not in data:
            raise PlanError(f"{where} lacks {need!r}")
    column = Column(name, Type.parse(data["type"]), data.get("nullable", True))
    try:
        return ColumnPlan(column, domain_from_value(where, column, data["domain"]))
    except PlanError as error:
        raise PlanError(f"{where}: {error}") from None
    except (TypeError, ValueError, ArithmeticError, AttributeError):
        raise PlanError(f"{where}: its domain does not fit the type {column.type}") from None


def domain_from_value(where: str, column: Column, value: object) -> Declared | None:
    """Read the domain of a column as a plan writes it."""
    match value:
        case "key":
            return None
        case "opaque":
            return Opaque()
        case "learn":
            return Learn()
        case list():
            return Categories(tuple(_exact(column, v) for v in value))
        case dict():
            return _domain_from_dict(where, column, value)
    raise PlanError(
        f"domain must be 'learn', 'opaque', 'key', a list of values, or a table such as {{low = 0, high = 9, bins = 10}}, not {value!r}"
    )


def _domain_from_dict(where: str, column: Column, value: dict[str, Any]) -> Declared:
    if value.get("learn"):
        _refuse_unknown(where, value, ("learn", "low", "high", "bins"))
        return Learn(**{k: _exact(column, v) if k != "bins" else v for k, v in value.items() if k != "learn"})
    if "values" in value:
        _refuse_unknown(where, value, ("values", "other"))
        return Categories(tuple(_exact(column, v) for v in value["values"]), bool(value.get("other", False)))
    if "edges" in value:
        _refuse_unknown(where, value, ("edges", "step"))
        return Bins(tuple(from_axis(column.type, to_axis(column.type, e)) for e in value["edges"]), value.get("step"))
    _refuse_unknown(where, value, ("low", "high", "bins", "step"))
    if "low" not in value or "high" not in value:
        raise PlanError("a range needs low and high")
    return even_bins(column.type, value["low"], value["high"], value.get("bins", 16), step=value.get("step"))
