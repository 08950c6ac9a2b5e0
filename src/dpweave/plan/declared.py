"""What a plan declares, as values: what rules, workloads and relations look at."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from dpweave.errors import PlanError
from dpweave.plan.entries import Shares, TablePlan, WorkloadPlan, table_to_dict, workload_to_dict
from dpweave.plan.rules import Constraint, constraint_to_dict
from dpweave.privacy.promise import Promise
from dpweave.schema.database import Database
from dpweave.schema.fake_values import DEFAULT_LOCALE

if TYPE_CHECKING:
    from collections.abc import Mapping


VERSION = 1


@dataclass(frozen=True)
class DeclaredPlan:
    """What a plan declares, as values: fields, lookups, plain values. :class:`Plan` checks it and opens files."""

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
    locale: str = DEFAULT_LOCALE
    """Language and country of made-up values, where a column does not say another."""
    views: tuple[str, ...] = ()
    """Tables of the plan that are views of the source. Each row of one must come from the rows of one unit."""

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
                            f"table {table.name!r} has two owning keys, {owning[table.name]!r} and {key.key.name!r};"
                            " make one of them shared or linking"
                        )
                    owning[table.name] = key.key.name
                if key.max_degree is not None:
                    bounds[table.name, key.key.name] = key.max_degree
        within = frozenset((t.name, k.key.name) for t in self.tables for k in t.keys if k.within)
        shared = frozenset((t.name, k.key.name) for t in self.tables for k in t.keys if k.role == "shared")
        public = frozenset(self.public)
        return Promise(
            self.database, self.protect, public, owning, bounds, self.neighbours, self.on_excess, within, shared
        )

    @property
    def placeholders(self) -> list[tuple[str, str, str]]:
        """Columns that are filled with values people recognise: name, kind and locale of each."""
        return [
            (f"{t.name}.{c.name}", c.placeholder, c.locale or self.locale)
            for t in self.tables
            for c in t.columns
            if c.placeholder is not None
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, as TOML and JSON hold them."""
        return {
            "version": VERSION,
            "neighbours": self.neighbours,
            "on_excess": self.on_excess,
            "k": self.k,
            "protect": list(self.protect),
            "public": list(self.public),
            **({"views": list(self.views)} if self.views else {}),
            **({"locale": self.locale} if self.locale != DEFAULT_LOCALE else {}),
            "budget": {k: v for k, v in asdict(self.shares).items() if v is not None},
            "tables": {t.name: table_to_dict(t) for t in self.tables},
            **({"constraints": [constraint_to_dict(c) for c in self.constraints]} if self.constraints else {}),
            **({"workloads": [workload_to_dict(w) for w in self.workloads]} if self.workloads else {}),
        }
