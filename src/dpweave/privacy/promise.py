"""The promise as a value: who is protected, against which neighbours, within which bounds (PRIVACY §1 to §3)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from dpweave.errors import PlanError, nearest
from dpweave.schema.key_graph import KeyGraph

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.schema.database import Database, ForeignKey, Table
    from dpweave.schema.domain import Path

Neighbours = Literal["entity", "record"]
_TEXTS = {"text", "uuid", "enum", "json", "array", "unknown"}
_NUMBERS = (
    {"integer", "float"},
    {"integer", "decimal"},
)  # a float and a decimal compare as floats, where many decimals are one


@dataclass(frozen=True)
class Promise:
    """Protected tables, public tables, and the owning key of every table in between.

    Formal guarantees:
      - Each table is exactly one of protected, public or owned; anything else is refused here, before a row is read.
      - Owning keys form a forest rooted in the protected tables, so a unit's rows are well defined.
      - Every foreign key between private tables carries a positive integer bound.
      - Errors depend on the schema and the plan alone.
    """

    database: Database
    protected: tuple[str, ...]
    public: frozenset[str] = frozenset()
    owning: Mapping[str, str] = field(default_factory=dict)
    """For each owned table, the name of the foreign key to its owner."""
    bounds: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """``max_degree`` by (table, foreign key), for every key between private tables."""
    neighbours: Neighbours = "entity"
    on_excess: Literal["refuse", "truncate"] = "refuse"
    """What to do under ``record`` when a bound does not hold; ``entity`` always truncates."""
    within: frozenset[tuple[str, str]] = frozenset()
    """Linking keys, as (table, key), whose links count under ``entity`` only where they lead to a row of the same unit.
    """
    shared: frozenset[tuple[str, str]] = frozenset()
    """Keys, as (table, key), by which a row belongs to a second unit: under ``entity``
    it counts only while both are there.
    """

    def __post_init__(self) -> None:
        names = self.database.names
        if not self.protected:
            raise PlanError(f"the plan protects no table; name at least one of {', '.join(names)} under protect")
        for what, tables in (("protect", self.protected), ("public", self.public), ("owning", self.owning)):
            for name in tables:
                if name not in self.database:
                    raise PlanError(f"{what} names a table {name!r} that is not in the schema: {nearest(name, names)}")
        if len(set(self.protected)) != len(self.protected):
            raise PlanError("protect names a table twice")
        for name in self.protected:
            if name in self.public:
                raise PlanError(f"table {name!r} cannot be both protected and public; choose one")
            if name in self.owning:
                raise PlanError(
                    f"the protected table {name!r} cannot be owned through {self.owning[name]!r}; make that key linking"
                )
            if not self.database[name].primary_key:
                raise PlanError(
                    f"the protected table {name!r} has no primary key; declare one under tables.{name}.primary_key"
                )
        if self.neighbours not in ("entity", "record"):
            raise PlanError(f"neighbours must be 'entity' or 'record', not {self.neighbours!r}")
        if self.on_excess not in ("refuse", "truncate"):
            raise PlanError(f"on_excess must be 'refuse' or 'truncate', not {self.on_excess!r}")
        for table in self.database:
            self._check_table(table.name)
        for name, key_name in self.within:
            ends = name, self.database[name].key[key_name].target
            others = {*ends} & {*self.public, *self.protected}
            if others or self.is_owning(name, key_name) or self.root(ends[0]) != self.root(ends[1]):
                raise PlanError(
                    f"the foreign key {key_name!r} of {name!r} cannot stay within units: it must be a linking key, and"
                    f" rows of {ends[0]!r} and {ends[1]!r} must be owned by the same protected table"
                )
        for name, key_name in self.shared:
            target = self.database[name].key[key_name].target
            if {name, target} & self.public or self.is_owning(name, key_name) or (name, key_name) in self.within:
                raise PlanError(
                    f"the foreign key {key_name!r} of {name!r} cannot be shared: it must lead from a private table to a"
                    " private table, and neither own its rows nor stay within units"
                )

    def _check_table(self, name: str) -> None:
        table = self.database[name]
        for column in table.columns:
            if column.name.startswith(("#", "?", "=", "@", "<", "!")):
                raise PlanError(
                    f"column {column.name!r} of {name!r} begins with a sign that marks derived columns; rename it in"
                    " the source"
                )
        if name in self.public:
            for key in table.foreign_keys:
                if key.target not in self.public:
                    raise PlanError(
                        f"the public table {name!r} leads to the private table {key.target!r} by {key.name!r}, "
                        f"so copying it would publish private keys; make {name!r} private or {key.target!r} public"
                    )
            return
        if name not in self.protected:
            self._check_chain(name)
        for key in table.foreign_keys:
            self._check_types(table, key)
            if key.target in self.public:
                continue
            bound = self.bounds.get((name, key.name))
            if bound is None:
                raise PlanError(f"the foreign key {key.name!r} of {name!r} needs a max_degree")
            if isinstance(bound, bool) or not isinstance(bound, int) or bound < 1:
                raise PlanError(
                    f"max_degree of the foreign key {key.name!r} of {name!r} must be a whole number of at least 1, not"
                    f" {bound!r}"
                )

    def _check_types(self, table: Table, key: ForeignKey) -> None:
        """Refuse keys whose values an engine would have to convert to compare: that can fail, or make two keys one."""
        target = self.database[key.target]
        for mine, theirs in zip(key.columns, key.target_columns, strict=True):
            a, b = table.column[mine].type, target.column[theirs].type
            alike = a.kind == b.kind or any({a.kind, b.kind} <= kinds for kinds in (_TEXTS, *_NUMBERS))
            if not alike or a.zone != b.zone or (a.scale or 0) != (b.scale or 0):
                raise PlanError(
                    f"the foreign key {key.name!r} of {table.name!r} compares {mine!r} of type {a} with "
                    f"{key.target}.{theirs} of type {b}; declare the same type for both"
                )

    def _check_chain(self, name: str) -> None:
        seen = [name]
        while seen[-1] not in self.protected:
            key_name = self.owning.get(seen[-1])
            if key_name is None:
                raise PlanError(
                    f"table {seen[-1]!r} is neither protected nor public, and no owning key leads from it to a"
                    " protected table; protect it, declare it public, or mark one of its foreign keys as owning"
                )
            table = self.database[seen[-1]]
            if key_name not in table.key:
                raise PlanError(f"table {table.name!r} has no foreign key {key_name!r}: {nearest(key_name, table.key)}")
            owner = table.key[key_name].target
            if owner in self.public:
                raise PlanError(f"the owning key {key_name!r} of {table.name!r} leads to the public table {owner!r}")
            if owner in seen:
                raise PlanError(
                    f"the owning keys of {', '.join(seen)} run in a circle; one of these tables must be protected"
                )
            seen.append(owner)

    @cached_property
    def graph(self) -> KeyGraph:
        """The key graph of the whole schema."""
        return KeyGraph(self.database)

    @cached_property
    def private(self) -> tuple[str, ...]:
        """Protected and owned tables, owners before what they own."""
        names = [n for n in self.database.names if n not in self.public]
        return tuple(sorted(names, key=lambda n: (len(self.chain(n)), names.index(n))))

    def is_private(self, key: ForeignKey) -> bool:
        """Whether a foreign key leads to a private table."""
        return key.target not in self.public

    def is_owning(self, table: str, key: str) -> bool:
        """Whether ``key`` leads from a row to its owner."""
        return self.owning.get(table) == key

    def is_within(self, table: str, key: str) -> bool:
        """Whether links by ``key`` lead to rows of the same unit alone."""
        return self.neighbours == "entity" and (table, key) in self.within

    def is_shared(self, table: str, key: str) -> bool:
        """Whether rows count only while the row that ``key`` leads to does, if it leads anywhere."""
        return self.neighbours == "entity" and (table, key) in self.shared

    def is_linking(self, table: str, key: ForeignKey) -> bool:
        """Whether ``key`` joins units and makes its rows part of neither."""
        stays = self.is_owning(table, key.name) or self.is_shared(table, key.name) or self.is_within(table, key.name)
        return self.is_private(key) and not stays

    def says_itself(self, table: str, key: ForeignKey) -> bool:
        """Whether ``?key`` goes by what a row says and not by where it leads: a row that dangles is not without it."""
        return self.neighbours == "entity" and self.is_linking(table, key)

    def may_blank(self, table: str) -> bool:
        """Whether rows of ``table`` may be there and count for nothing: by a shared key
        of theirs, or of a row that owns them.
        """
        tables = (
            (table, *(self.database[t].key[k].target for t, k in self.chain(table))) if table not in self.public else ()
        )
        return any(self.is_shared(t, key.name) for t in tables for key in self.database[t].foreign_keys)

    def required(self, base: str, path: Path, linked: tuple[Path, ...] = ()) -> Path:
        """The part of a path that must lead somewhere for a row of ``base`` to count, where all of ``linked`` must.

        Public rows at its end that a key may fail to lead to are no part of it: there a
        column is null, as in an outer join.
        """
        needed = path
        known = max((i for i in range(len(path) + 1) if any(p[:i] == path[:i] for p in linked)), default=0)
        for i in reversed(range(known, len(path))):
            table = self.database[self.graph.walk(base, path[:i])]
            if self.is_private(table.key[path[i]]):
                break
            needed = path[:i] if table.is_nullable(table.key[path[i]]) else needed
        return needed

    def may_lack(self, base: str, path: Path, linked: tuple[Path, ...] = ()) -> bool:
        """Whether rows of ``base`` that lead somewhere by all of ``linked`` may lead
        nowhere by ``path`` and count all the same.
        """
        return self.required(base, path, linked) != path

    def chain(self, table: str, to: str | None = None) -> tuple[tuple[str, str], ...]:
        """Owning keys from ``table`` up to its protected table, or ``to`` one on the way, as (table, key)."""
        steps: list[tuple[str, str]] = []
        while table not in (*self.protected, to):
            steps.append((table, self.owning[table]))
            table = self.database[table].key[self.owning[table]].target
        return tuple(steps)

    def owning_path(self, table: str, to: str | None = None) -> Path:
        """Return the keys of :meth:`chain`, as a path."""
        return tuple(key for _, key in self.chain(table, to))

    def root(self, table: str, to: str | None = None) -> str:
        """Return the protected table whose units own the rows of ``table``, or ``to`` where that is on the way."""
        steps = self.chain(table, to)
        return self.database[steps[-1][0]].key[steps[-1][1]].target if steps else table

    def owned_rows(self, owner: str, table: str) -> int:
        """How many rows of ``table`` one row of ``owner``, a protected table or an owned one, can own (itself
        included).
        """
        if table in self.public or self.root(table, owner) != owner:
            return 0
        return math.prod(self.bounds[step] for step in self.chain(table, owner))
