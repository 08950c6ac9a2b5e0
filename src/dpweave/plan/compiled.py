"""A plan, compiled: what follows from it for each table, key and relation, worked out once.

``plan.compile()`` gives it. Whoever needs one fact of a table, a key or a relation takes that value and not the plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from dpweave import chosen
from dpweave.plan.relations import ANY_DEGREE, Kind, Relation, degree_codec, presence_codec
from dpweave.plan.workloads import joined, name_of
from dpweave.schema.degree_buckets import buckets
from dpweave.schema.domain import Attribute, Learn, Opaque, View, degree, presence, repetition, size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dpweave.plan.declared import DeclaredPlan
    from dpweave.plan.entries import KeyPlan, TablePlan
    from dpweave.plan.workloads import Joined
    from dpweave.privacy.promise import Promise
    from dpweave.schema.codec import Codec
    from dpweave.schema.domain import Path

DEFAULT_METHOD = "map"


@dataclass(frozen=True)
class CompiledKey:
    """What a plan means for one foreign key."""

    table: str
    planned: KeyPlan
    method: str
    """How its links are made."""
    is_single: bool
    """No two rows lead to the same one by it."""
    is_dictated: bool
    """It shares columns with another key, so that its targets are drawn among those that agree."""
    is_counted: bool
    """It owns rows of another table: how many each owner has is counted as a column of the owner."""
    fine_degrees: tuple[int, ...]
    """Buckets in which degrees by an owning key are first counted: up to what is declared, or to a million.

    One edge lies right above the bound: it is often where degrees end, and what is beyond it is worth knowing apart.
    """

    @property
    def name(self) -> str:
        """The key's name."""
        return self.planned.key.name

    @property
    def target(self) -> str:
        """The table it leads to."""
        return self.planned.key.target

    @property
    def degree(self) -> str:
        """The column of an owner that says how many rows it has."""
        return degree(self.table, self.name)

    @property
    def degree_codec(self) -> Codec:
        """How the owner's model sees degrees: in groups, where some were learned."""
        edges = (0, 1, 2) if self.is_single else self.planned.degree_edges or self.fine_degrees
        return degree_codec(self.table, self.name, edges)


@dataclass(frozen=True)
class CompiledTable:
    """What a plan means for one table. A public one is copied, so that nothing is derived of its rows."""

    planned: TablePlan
    key: Mapping[str, CompiledKey]
    """Its foreign keys by name."""
    counted_keys: tuple[CompiledKey, ...]
    """Owning keys of other tables whose rows are counted as degrees of its rows."""
    presence_codecs: Mapping[str, Codec]
    """Columns that say which of its nullable foreign keys lead somewhere."""
    repeating_key: str | None
    """For a junction of two keys: the one beside its owning key, if pairs of the two may repeat."""
    repetition_view: View | None
    """Its linked rows, by whether they repeat a pair."""
    unit_keys: tuple[str, ...]
    """Keys by which its rows lead to rows of it within their unit: these are chosen for each other
    (:mod:`dpweave.weaving.unit_composition`).
    """
    is_centred: bool
    """All have owners, so rows may be counted around what all rows show (``measure/per_unit/centred_counts.py``)."""
    has_cheap_bound: bool
    """Noise hardly depends on its bound: its rows are unit sums, wherever they are not on a server.

    That holds for its columns and for its links to owners and public rows.
    """
    seen_rows: float
    """About how many rows are counted: as declared, but no more than the bounds let through; 0 if it is public."""
    seen_units: float
    """About how many rows the protected table has to whose units its rows belong."""
    owned_rows: int
    """Most of its rows that one unit owns."""

    @property
    def name(self) -> str:
        """The table's name."""
        return self.planned.name

    @cached_property
    def degree_codecs(self) -> Mapping[str, Codec]:
        """Degree columns of its rows: how many rows each of them owns by each owning key, in groups."""
        return {key.degree: key.degree_codec for key in self.counted_keys}

    @cached_property
    def derived_codecs(self) -> Mapping[str, Codec]:
        """All columns of its rows that the engine derives."""
        return {**self.presence_codecs, **self.degree_codecs}

    @cached_property
    def model_columns(self) -> tuple[str, ...]:
        """Columns that its model sees: its own, which keys are null, and its degrees."""
        return (*(c.name for c in self.planned.modelled), *self.derived_codecs)

    @property
    def measured_columns(self) -> tuple[str, ...]:
        """Columns that its model has to learn: all, or those that rows made elsewhere lack."""
        return self.model_columns if self.planned.external is None else tuple(self.derived_codecs)

    def codes(self, column: str) -> int:
        """Number of codes of a column, guessed where its domain is still to be learned."""
        planned = self.planned.column.get(column)
        if planned is None:
            degrees = self.degree_codecs.get(column)
            return self.presence_codecs[column].size if degrees is None else min(degrees.size, chosen.GROUPS)
        match planned.domain:
            case None:
                return 1
            case Learn(bins=bins):
                return (bins if planned.column.type.ordered else chosen.UNKNOWN_CATEGORIES) + planned.column.nullable
            case Opaque():
                return 1 + planned.column.nullable
            case domain:
                return size(domain, nullable=planned.column.nullable)


@dataclass(frozen=True)
class CompiledPlan:
    """Everything that follows from a plan and is asked more than once."""

    promise: Promise
    k: int
    order: tuple[str, ...]
    """Private tables in the order they are woven: owners before what they own and, where possible, targets before
    sources.
    """
    table: Mapping[str, CompiledTable]
    """All tables by name."""
    relations: tuple[Relation, ...]
    """Every foreign key of the private tables, in the order they are woven."""
    workloads: tuple[Joined, ...]
    """Declared workloads, found in the schema."""

    @cached_property
    def relation(self) -> Mapping[tuple[str, str], Relation]:
        """Relations by table and key; not by the first key of a pure junction."""
        return {(r.table, r.key): r for r in self.relations}

    @cached_property
    def answers(self) -> dict[tuple[object, ...], Any]:
        """What was worked out from this plan alone, by who worked it out and from what: see :func:`once`."""
        return {}

    @cached_property
    def promised(self) -> dict[tuple[object, ...], Any]:
        """The same of what depends on the promise alone: see :func:`once_promised`."""
        return {}

    def take_over(self, other: CompiledPlan) -> None:
        """Take over what was worked out for a plan that promises the same, as one with another domain does."""
        if other.promise == self.promise:
            self.__dict__["promised"] = other.promised

    def seen_codes(self, base: str, attribute: Attribute, linked: tuple[Path, ...]) -> int:
        """Number of codes of a column as rows of ``base`` see it that lead somewhere by all
        of ``linked``: null too where they may lead nowhere.
        """
        return seen_codes(self.promise, self.table, base, attribute, linked)


P = ParamSpec("P")
T = TypeVar("T")


def once(work: Callable[Concatenate[CompiledPlan, P], T]) -> Callable[Concatenate[CompiledPlan, P], T]:
    """Let a function of a compiled plan work out each answer once: it depends on nothing but its arguments."""
    return _remembered(work, lambda plan: plan.answers)


def once_promised(work: Callable[Concatenate[CompiledPlan, P], T]) -> Callable[Concatenate[CompiledPlan, P], T]:
    """Do the same for one that looks at nothing of the plan but its promise: plans that promise the same share it."""
    return _remembered(work, lambda plan: plan.promised)


def _remembered(
    work: Callable[Concatenate[CompiledPlan, P], T],
    answers: Callable[[CompiledPlan], dict[tuple[object, ...], Any]],
) -> Callable[Concatenate[CompiledPlan, P], T]:
    name = f"{work.__module__}.{work.__qualname__}"

    @wraps(work)
    def answered(plan: CompiledPlan, /, *args: P.args, **options: P.kwargs) -> T:
        asked, known = (name, args, *options.items()), answers(plan)
        found = known.get(asked, known)
        if found is known:  # which no answer is
            found = known[asked] = work(plan, *args, **options)
        answer: T = found
        return answer

    return answered


def seen_codes(
    promise: Promise, tables: Mapping[str, CompiledTable], base: str, attribute: Attribute, linked: tuple[Path, ...]
) -> int:
    """Work out :meth:`CompiledPlan.seen_codes`."""
    table = tables[promise.graph.walk(base, attribute.path)]
    planned = table.planned.column.get(attribute.column)
    lacking = promise.may_lack(base, attribute.path, linked)
    return table.codes(attribute.column) + (lacking and planned is not None and not planned.column.nullable)


def compile_plan(plan: DeclaredPlan) -> CompiledPlan:
    """Work out everything; ``plan.compile()`` does so once for each plan."""
    return _Compiler(plan).compiled()


def weaving_order(plan: DeclaredPlan) -> tuple[str, ...]:
    """Return the private tables in the order they are woven (:attr:`CompiledPlan.order`)."""
    order = plan.promise.graph.order()
    done: list[str] = []
    waiting = [n for n in order if n not in plan.public]
    while waiting:
        for name in waiting:
            owner = plan.promise.owning.get(name)
            if owner is None or plan.database[name].key[owner].target in done:
                done.append(name)
                waiting.remove(name)
                break
    return tuple(done)


class _Compiler:
    """Compiles one plan: keys first, then tables, then relations."""

    def __init__(self, plan: DeclaredPlan) -> None:
        self._plan, self._database, self._promise = plan, plan.database, plan.promise
        self._keys = {(t.name, k.key.name): self._key(t, k) for t in plan.tables for k in t.keys}
        self._tables = {t.name: self._table(t) for t in plan.tables}
        self._workloads = joined(plan)

    def compiled(self) -> CompiledPlan:
        order = weaving_order(self._plan)
        relations = self._relations(order)
        return CompiledPlan(self._promise, self._plan.k, order, self._tables, relations, self._workloads)

    # -- keys and tables -----------------------------------------------------------------------------------------------

    def _key(self, table: TablePlan, planned: KeyPlan) -> CompiledKey:
        name, columns = planned.key.name, set(planned.key.columns)
        owning = table.name not in self._plan.public and self._promise.is_owning(table.name, name)
        return CompiledKey(
            table=table.name,
            planned=planned,
            method=DEFAULT_METHOD if planned.method == "auto" else planned.method,
            is_single=table.table.is_unique(planned.key.columns),
            is_dictated=any(columns & set(k.key.columns) for k in table.keys if k.key.name != name),
            is_counted=owning and planned.key.target != table.name,
            fine_degrees=self._fine_degrees(table.name, planned) if owning else (),
        )

    def _fine_degrees(self, table: str, planned: KeyPlan) -> tuple[int, ...]:
        edges = ANY_DEGREE if planned.degree_cap is None else buckets(planned.degree_cap)
        bound = self._promise.bounds[table, planned.key.name]
        return tuple(sorted({*edges, min(bound + 1, edges[-1])}))

    def _table(self, planned: TablePlan) -> CompiledTable:
        name, promise = planned.name, self._promise
        private = name not in self._plan.public
        owned = (self._keys[t, promise.owning[t]] for t in promise.private if t in promise.owning)
        blank = [k.key.name for k in planned.keys if planned.table.is_nullable(k.key)] if private else []
        repeating = self._repeating_key(planned)
        centred = private and self._is_centred(name)
        root = promise.root(name) if private else name
        return CompiledTable(
            planned=planned,
            key={k.key.name: self._keys[name, k.key.name] for k in planned.keys},
            counted_keys=tuple(k for k in owned if k.is_counted and k.target == name),
            presence_codecs={presence(key): presence_codec(key) for key in blank},
            repeating_key=repeating,
            repetition_view=None if repeating is None else self._repetition_view(name, repeating),
            unit_keys=self._unit_keys(planned) if private else (),
            is_centred=centred,
            has_cheap_bound=centred and self._plan.neighbours == "entity",
            seen_rows=self._seen_rows(name) if private else 0.0,
            seen_units=self._seen_rows(root) if private else 0.0,
            owned_rows=promise.owned_rows(root, name),
        )

    def _repeating_key(self, planned: TablePlan) -> str | None:
        owning = self._promise.owning.get(planned.name)
        if owning is None or len(planned.keys) != 2 or not self._promise.graph.is_junction(planned.name):
            return None
        if planned.table.is_unique(tuple(c for k in planned.keys for c in k.key.columns)):
            return None
        return next(k.key.name for k in planned.keys if k.key.name != owning)

    def _repetition_view(self, table: str, key: str) -> View:
        name = repetition(key)
        return View(table, ((name, Attribute(name)),), ((self._promise.owning[table],), (key,)))

    def _unit_keys(self, planned: TablePlan) -> tuple[str, ...]:
        keys = [k.key for k in planned.keys if k.within and k.key.target == planned.name]
        direct = len(self._promise.chain(planned.name)) == 1
        return tuple(k.name for k in keys if direct and planned.table.is_nullable(k))

    def _is_centred(self, table: str) -> bool:
        chain = self._promise.chain(table)
        alone = bool(chain) and not self._promise.may_blank(table)  # else rows of other units move
        return alone and not any(self._database[t].is_nullable(self._database[t].key[k]) for t, k in chain)

    def _seen_rows(self, table: str) -> float:
        units = self._plan.table[self._promise.root(table)].rows
        units = chosen.UNDECLARED_ROWS if units is None else units
        declared = self._plan.table[table].rows
        bounds = [self._promise.bounds[step] for step in self._promise.chain(table)]
        usual = units * math.prod(max(b / 2, 1.0) for b in bounds)
        return max(min(usual if declared is None else declared, units * math.prod(bounds)), 1.0)

    # -- relations -----------------------------------------------------------------------------------------------------

    def _relations(self, order: tuple[str, ...]) -> tuple[Relation, ...]:
        """Keys from one public table to another are known, so they count as attached from the start."""
        wired = {name: [k.key.name for k in self._plan.table[name].keys] for name in self._plan.public}
        out: list[Relation] = []
        for name in order:
            wired[name] = []
            table = self._tables[name]
            # Who comes together in a unit is settled before other keys look for rows there.
            keys = sorted(table.key.values(), key=lambda k: (k.planned.role != "owning", k.name not in table.unit_keys))
            if self._is_pair(name):
                first, second = keys
                left = self._columns(name, (first.name,), wired)
                right = self._columns(name, (second.name,), wired)
                out.append(self._relation(second, "many-to-many", left, right, joint=first.name))
                continue
            for key in keys:
                left = self._columns(name, (), wired)
                if key.planned.role == "owning":  # who has a father there is to come into a household with room for one
                    left += tuple((name_of(a), a) for a in map(Attribute, map(presence, table.unit_keys)))
                right = self._columns(name, (key.name,), wired)
                out.append(self._relation(key, "one-to-one" if key.is_single else "one-to-many", left, right))
                wired[name].append(key.name)
        return tuple(out)

    def _relation(
        self,
        key: CompiledKey,
        kind: Kind,
        left: tuple[tuple[str, Attribute], ...],
        right: tuple[tuple[str, Attribute], ...],
        *,
        joint: str | None = None,
    ) -> Relation:
        table, promise = self._database[key.table], self._promise
        linked: tuple[Path, ...] = ((key.name,),) if joint is None else ((joint,), (key.name,))
        counted = [
            {n: seen_codes(promise, self._tables, key.table, a, linked) for n, a in side} for side in (left, right)
        ]
        varying = tuple({name: codes for name, codes in side.items() if codes > 1} for side in counted)
        owning, public = promise.is_owning(key.table, key.name), key.target in self._plan.public
        may_choose = not promise.is_private(key.planned.key) or table.is_nullable(key.planned.key)
        return Relation(
            key.table,
            key.name,
            kind,
            left,
            right,
            joint,
            target=key.target,
            method=key.method,
            weight=key.planned.weight,
            varying=(varying[0], varying[1]),
            is_dictated=key.is_dictated,
            is_selective=not owning and joint is None and may_choose,
            has_popular_targets=public
            and kind != "one-to-one"
            and promise.neighbours == "entity"
            and len(key.planned.key.columns) == 1,
            is_owned=owning and joint is None and self._tables[key.table].is_centred,
        )

    def _is_pair(self, name: str) -> bool:
        """Whether a table is a pure junction of two keys that never repeats a pair."""
        table = self._database[name]
        if len(table.foreign_keys) != 2 or not self._promise.graph.is_pure_junction(name):
            return False
        a, b = (set(k.columns) for k in table.foreign_keys)
        return not a & b and table.is_unique(tuple(a | b)) and not any(table.is_nullable(k) for k in table.foreign_keys)

    def _columns(self, base: str, path: Path, wired: Mapping[str, list[str]]) -> tuple[tuple[str, Attribute], ...]:
        """Columns of the row at the end of ``path``, of the rows its wired keys lead to,
        and further ones of workloads.
        """
        here = self._promise.graph.walk(base, path)
        found = [Attribute(c, path) for c in self._own(here)]
        for key in wired.get(here, []):
            target = self._database[here].key[key].target
            if path and self._promise.is_within(base, path[0]) and target not in self._plan.public:
                continue  # its unit is that of both ends, and with whom it came there depends on this key
            found += [Attribute(c, (*path, key)) for c in self._own(target)]
        for workload in self._workloads:
            if workload.base == base:
                found += [a for a in workload.attributes if a not in found and self._is_wired(base, path, a, wired)]
        return tuple((name_of(a), a) for a in found)

    def _is_wired(self, base: str, path: Path, attribute: Attribute, wired: Mapping[str, list[str]]) -> bool:
        """Whether an attribute lies beyond ``path``, by keys that are wired already."""
        if attribute.path[: len(path)] != path:
            return False
        walk = self._promise.graph.walk
        return all(
            attribute.path[i] in wired.get(walk(base, attribute.path[:i]), [])
            for i in range(len(path), len(attribute.path))
        )

    def _own(self, name: str) -> list[str]:
        table = self._tables[name]
        columns = [c.name for c in table.planned.columns if not isinstance(c.domain, Opaque | None)]
        return [*columns, *table.degree_codecs]
