"""What a plan is made of: columns, keys, tables, shares of the budget; and each as
plain values, which TOML and JSON hold.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from datetime import date
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from dpweave import chosen
from dpweave.errors import PlanError, UsageError, nearest
from dpweave.plan import value_kinds
from dpweave.plan.value_kinds import require_kind, require_kinds, require_locale, require_plain
from dpweave.privacy.accounting import declared_rho, require_number
from dpweave.schema.database import Column, ForeignKey, Gathered, Table, Type
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
from dpweave.schema.fake_values import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


MOST_COLUMNS = 6
"""Columns of one workload; every subset of them may be measured."""


LEAST_WEIGHT, MOST_WEIGHT = 1e-6, 1e6
"""Weights are relative: beyond these, one task would get all of the budget, or none that a float can tell from nothing.
"""


def require_weight(what: str, weight: object) -> None:
    """Refuse what is no weight: a positive number that leaves something for everybody.

    >>> require_weight("the weight of table 'users'", 1e308)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    dpweave.errors.PlanError: the weight of table 'users' must be a positive number from 1e-06 to 1e+06, not 1e+308; ...
    """
    number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
    if not number or not LEAST_WEIGHT <= weight <= MOST_WEIGHT:  # type: ignore[operator]
        raise PlanError(
            f"{what} must be a positive number from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}, not {weight!r}; "
            "weights are relative, 1 is the usual one"
        )


@dataclass(frozen=True)
class WorkloadPlan:
    """Columns whose joint counts matter as much as everything else about their table or relation, times ``weight``."""

    columns: tuple[str, ...]
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 2 <= len(self.columns) <= MOST_COLUMNS or len(set(self.columns)) != len(self.columns):
            raise PlanError(f"{self} must name 2 to {MOST_COLUMNS} different columns")
        require_weight(f"the weight of {self}", self.weight)

    def __str__(self) -> str:
        return f"the workload {' × '.join(self.columns)}"


Role = Literal["owning", "shared", "linking", "attribute"]
ROLES = ("owning", "shared", "linking", "attribute")
METHODS = ("auto", "map", "pgd", "random")
MOST_BINS = 1 << 21
"""Bins of one column: as many as all cells of a table's model; more could not be fitted."""
NUMBERS = frozenset({"integer", "float", "decimal"})


@dataclass(frozen=True)
class ColumnPlan:
    """A column and the domain of its codes. Key columns are dictated by their keys and have none."""

    column: Column
    domain: Declared | None
    placeholder: str | None = None
    """What values are made up: of a kind that people recognise, or, without one, of the built-in form."""
    locale: str | None = None
    """Language and country of made-up values, where it is not the plan's."""

    def __post_init__(self) -> None:
        if self.domain is not None:
            require_fitting(self.column, self.domain)
        if self.placeholder is None:
            if self.locale is not None:
                raise PlanError("locale means nothing without a placeholder")
            return
        if self.placeholder not in KINDS:
            raise PlanError(f"there is no placeholder {self.placeholder!r}: {nearest(self.placeholder, KINDS)}")
        if self.column.type.kind != "text" or not isinstance(self.domain, Opaque | None):
            raise PlanError(
                "a placeholder stands for text that is not modelled: it needs a text type and the domain 'opaque', or"
                " 'key' where no foreign key says the value"
            )
        if self.locale is not None:
            require_locale(self.locale)

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
    """For an owning key: the most rows one owner can have, if that is known; fewer buckets of degrees are counted then.
    """
    degree_edges: tuple[int, ...] | None = None
    """For an owning key: groups of degrees that the owner's table model tells apart; learned."""
    acyclic: bool = False
    """For a key of a table to itself: no row leads back to itself, by this and the table's other acyclic keys."""
    within: bool = False
    """For a linking key: rows lead to rows of their own unit alone."""
    min_degree: int = 0
    """For an owning key: the fewest rows that one owner has; declared, so that every copy keeps it."""
    order_by: str | None = None
    """For an owning key: the column of its table by which rows of one owner come one after the other."""


@dataclass(frozen=True)
class External:
    """What the maker of a table declares it cost: zCDP ``rho``, or ``epsilon`` where no rho is known, and ``delta``.

    It must hold for one row of every protected table with whatever of it is in the table that was
    made elsewhere. ``path`` names a Parquet or CSV file; without one, the rows are given to ``fit``.
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
    """About how many rows there are, for forecasts; with ``rows_public`` exactly how many."""
    rows_public: bool = False
    """The number of rows is no secret: it is not measured, and a copy has as many."""
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
    def public_rows(self) -> int | None:
        """The number of rows where it is public."""
        return self.rows if self.rows_public else None

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

    domains: float | None = None
    """None: a tenth, or of what is for tables and links as much as learned domains need to be useful."""
    sizes: float = chosen.COUNTING
    tables: float = chosen.TABLES_SHARE
    links: float = round(1 - chosen.DOMAINS_SHARE - chosen.COUNTING - chosen.TABLES_SHARE, 9)
    delta_domains: float = chosen.DOMAINS_SHARE
    """Part of delta set aside for learning categories, where there are any to learn."""

    def __post_init__(self) -> None:
        for f in fields(self):
            if f.name != "domains" or self.domains is not None:
                require_weight(f"the budget share {f.name}", getattr(self, f.name))
        if not self.delta_domains < 1:
            raise PlanError(f"the budget share delta_domains must be below 1, not {self.delta_domains}")


def refuse_unknown(where: str, data: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse keys that mean nothing here, with the nearest that does."""
    for key in data:
        if key not in known:
            raise PlanError(f"{where} has an unknown key {key!r}: {nearest(key, known)}")


def mapping(where: str, value: object) -> dict[str, Any]:
    """Return a value that must be a table of keys and values."""
    if not isinstance(value, dict):
        raise PlanError(f"{where} must be a table of keys and values")
    return value


def names(where: str, value: object) -> tuple[str, ...]:
    """Return a value that must be a list of names."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) for v in value):
        raise PlanError(f"{where} must be a list of names")
    return tuple(value)


def workload_to_dict(workload: WorkloadPlan) -> dict[str, Any]:
    """Return a workload as plain values."""
    weight = {"weight": workload.weight} if workload.weight != 1.0 else {}
    return {"columns": list(workload.columns), **weight}


def workload_from_dict(data: Mapping[str, Any]) -> WorkloadPlan:
    """Invert :func:`workload_to_dict`."""
    refuse_unknown("a workload", data, ("columns", "weight"))
    return WorkloadPlan(names("columns of a workload", data.get("columns", [])), data.get("weight", 1.0))


_PLAIN_FIELDS = ("mechanism", "rows", "rows_public", "weight", "namespace", "model_cells")
_DEFAULTS = {f.name: f.default for f in fields(TablePlan)}


def table_to_dict(table: TablePlan) -> dict[str, Any]:
    """Return a table as plain values."""
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


def table_from_dict(name: str, data: Mapping[str, Any]) -> TablePlan:
    """Invert :func:`table_to_dict`; ``name`` is its key among the tables."""
    where = f"tables.{name}"
    known = ("primary_key", "unique", *_PLAIN_FIELDS, "external", "columns", "keys")
    refuse_unknown(where, data, known)
    require_kinds(where, data, value_kinds.TABLE)
    external = mapping(f"{where}.external", data["external"]) if "external" in data else None
    refuse_unknown(f"{where}.external", external or {}, [f.name for f in fields(External)])
    columns = mapping(f"{where}.columns", data.get("columns", {}))
    keys = mapping(f"{where}.keys", data.get("keys", {}))
    return TablePlan(
        name=name,
        columns=tuple(
            _column_from_dict(f"{where}.columns.{c}", c, mapping(f"{where}.columns.{c}", v)) for c, v in columns.items()
        ),
        primary_key=names(f"{where}.primary_key", data.get("primary_key", [])),
        unique=tuple(names(f"{where}.unique", u) for u in data.get("unique", [])),
        keys=tuple(_key_from_dict(f"{where}.keys.{k}", k, mapping(f"{where}.keys.{k}", v)) for k, v in keys.items()),
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
    if plan.within:
        out["within"] = True
    if plan.min_degree:
        out["min_degree"] = plan.min_degree
    if plan.order_by is not None:
        out["order_by"] = plan.order_by
    return out


def _key_from_dict(where: str, name: str, data: Mapping[str, Any]) -> KeyPlan:
    refuse_unknown(
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
            "within",
            "min_degree",
            "order_by",
        ),
    )
    for need in ("columns", "references", "target", "role"):
        if need not in data:
            raise PlanError(f"{where} lacks {need!r}")
    require_kinds(where, data, value_kinds.KEY)
    for edge in data.get("degree_edges", ()):
        require_kind(f"an edge of {where}.degree_edges", edge, "whole")
    key = ForeignKey(
        names(f"{where}.columns", data["columns"]), data["references"], names(f"{where}.target", data["target"]), name
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
        data.get("within", False),
        data.get("min_degree", 0),
        data.get("order_by"),
    )


def _column_to_dict(plan: ColumnPlan) -> dict[str, Any]:
    out: dict[str, Any] = {"type": str(plan.column.type)}
    if not plan.column.nullable:
        out["nullable"] = False
    out["domain"] = _domain_to_value(plan.domain)
    for name in ("placeholder", "locale"):
        if getattr(plan, name) is not None:
            out[name] = getattr(plan, name)
    if plan.column.gathered is not None:
        out["gathered"] = {k: v for k, v in asdict(plan.column.gathered).items() if v is not None}
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
        case Bins(edges=edges, step=step, spots=spots, learned=learned):
            given = {"edges": [_plain(e) for e in edges], "step": step, "learned": learned}
            given["spots"] = [[_plain(a), _plain(b), weight] for a, b, weight in spots] or None
            return {k: v for k, v in given.items() if v is not None}
    raise TypeError(domain)


def _plain(value: Scalar | None) -> object:
    """Return what TOML can hold: decimals are written as text."""
    return str(value) if isinstance(value, Decimal) else value


def _exact(column: Column, value: Any) -> Any:
    """Invert :func:`_plain`."""
    return Decimal(str(value)) if column.type.kind == "decimal" and isinstance(value, (str, float)) else value


def _column_from_dict(where: str, name: str, data: Mapping[str, Any]) -> ColumnPlan:
    refuse_unknown(where, data, ("type", "nullable", "domain", "placeholder", "locale", "gathered"))
    for need in ("type", "domain"):
        if need not in data:
            raise PlanError(f"{where} lacks {need!r}")
    require_kinds(where, data, value_kinds.COLUMN)
    gathered = _gathered_from_dict(f"{where}.gathered", data["gathered"]) if "gathered" in data else None
    column = Column(name, Type.parse(data["type"]), data.get("nullable", True), gathered)
    try:
        domain = domain_from_value(where, column, data["domain"])
        require_plain(_domain_to_value(domain), where="domain", depth=1)  # as a plan would hold it again
        return ColumnPlan(column, domain, data.get("placeholder"), data.get("locale"))
    except PlanError as error:
        raise PlanError(f"{where}: {error}") from None
    except (TypeError, ValueError, ArithmeticError, AttributeError):
        hint = "; write dates and times without quotes" if column.type.kind in ("date", "time", "timestamp") else ""
        raise PlanError(f"{where}: its domain does not fit the type {column.type}{hint}") from None


def _gathered_from_dict(where: str, value: object) -> Gathered:
    data = mapping(where, value)
    refuse_unknown(where, data, [f.name for f in fields(Gathered)])
    for need in ("table", "key"):
        if need not in data:
            raise PlanError(f"{where} lacks {need!r}")
    require_kinds(where, data, value_kinds.GATHERED)
    if not isinstance(data.get("value"), str | int | date | None):
        raise PlanError(f"{where}.value must be a text, a whole number, true or false, or a date")
    return Gathered(**data)


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
        "domain must be 'learn', 'opaque', 'key', a list of values, or a table such as {low = 0, high = 9, bins ="
        f" 10}}, not {value!r}"
    )


def _domain_from_dict(where: str, column: Column, value: dict[str, Any]) -> Declared:
    require_kinds("domain", value, value_kinds.DOMAIN)
    if value.get("learn"):
        refuse_unknown(where, value, ("learn", "low", "high", "bins"))
        return Learn(**{k: _exact(column, v) if k != "bins" else v for k, v in value.items() if k != "learn"})
    if "values" in value:
        refuse_unknown(where, value, ("values", "other"))
        return Categories(tuple(_exact(column, v) for v in value["values"]), bool(value.get("other", False)))
    if "edges" in value:
        refuse_unknown(where, value, ("edges", "step", "spots", "learned"))

        def exact(point: Any) -> Scalar:
            return from_axis(column.type, to_axis(column.type, point))

        spots = tuple((exact(a), exact(b), float(weight)) for a, b, weight in value.get("spots", ()))
        return Bins(tuple(exact(e) for e in value["edges"]), value.get("step"), spots, value.get("learned"))
    refuse_unknown(where, value, ("low", "high", "bins", "step"))
    if "low" not in value or "high" not in value:
        raise PlanError("a range needs low and high")
    bins = value.get("bins", 16)
    if not 1 <= bins <= MOST_BINS:
        raise PlanError(f"domain.bins must be from 1 to {MOST_BINS}, not {bins}")
    return even_bins(column.type, value["low"], value["high"], bins, step=value.get("step"))
