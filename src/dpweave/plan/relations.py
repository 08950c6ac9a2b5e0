"""Relations of a plan in the order they are woven, each with the view its links are learned on (ALGORITHMS B5).

A foreign key is learned between the row that holds it, with its own columns and those of parents attached before, and
the row it leads to, with its columns and those of its own parents. Keys from one public table to another are known, so
they count as attached from the start. A pure junction of two keys is one many-to-many relation between the rows its
keys lead to.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from dpweave.plan.workloads import joined, name_of
from dpweave.schema.codec import Codec
from dpweave.schema.database import Column, Type
from dpweave.schema.degree_buckets import buckets
from dpweave.schema.domain import Attribute, Bins, Categories, Opaque, View, degree, newcomer, presence, repetition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.plan.declared import DeclaredPlan
    from dpweave.schema.domain import Path

Kind = Literal["many-to-many", "one-to-many", "one-to-one"]
ANY_DEGREE = buckets(1 << 20, growth=1.4)
"""Buckets in which degrees are first counted where the plan does not declare a cap."""


@dataclass(frozen=True)
class Relation:
    """One foreign key, or the two of a pure junction, to be wired.

    ``left`` and ``right`` name the columns of either side as the view calls them. ``joint`` is the first key of a pure
    junction: its target is then the left side; otherwise the left side is ``table`` itself.
    """

    table: str
    key: str
    kind: Kind
    left: tuple[tuple[str, Attribute], ...]
    right: tuple[tuple[str, Attribute], ...]
    joint: str | None = None

    @property
    def view(self) -> View:
        """The rows of ``table`` that are linked, with the columns of both sides."""
        linked: tuple[Path, ...] = ((self.key,),) if self.joint is None else ((self.joint,), (self.key,))
        return View(self.table, (*self.left, *self.right), linked)

    @property
    def learnable(self) -> bool:
        """Whether both sides have columns that could be correlated."""
        return bool(self.left) and bool(self.right)


def counted_keys(plan: DeclaredPlan, table: str) -> tuple[tuple[str, str], ...]:
    """Return the owning keys, as (table, key), whose rows are counted as degrees of the rows of ``table``."""
    keys = ((child, plan.promise.owning[child]) for child in plan.promise.private if child in plan.promise.owning)
    return tuple((c, k) for c, k in keys if c != table and plan.database[c].key[k].target == table)


def fine_degrees(plan: DeclaredPlan, child: str, key: str) -> tuple[int, ...]:
    """Return the buckets in which degrees by an owning key are first counted: up to what is declared, or to a million.

    One edge lies right above the bound: it is often where degrees end, and what is beyond it is worth knowing apart.
    """
    cap = plan.table[child].key[key].degree_cap
    edges = ANY_DEGREE if cap is None else buckets(cap)
    return tuple(sorted({*edges, min(plan.promise.bounds[child, key] + 1, edges[-1])}))


def is_single(plan: DeclaredPlan, child: str, key: str) -> bool:
    """Whether a row owns at most one row by this key."""
    return plan.database[child].is_unique(plan.database[child].key[key].columns)


def degree_codecs(plan: DeclaredPlan, table: str) -> dict[str, Codec]:
    """Return the degree columns of a table's rows: how many rows each of them owns by each owning key, in groups."""
    out = {}
    for child, key in counted_keys(plan, table):
        edges = plan.table[child].key[key].degree_edges or fine_degrees(plan, child, key)
        out[degree(child, key)] = degree_codec(child, key, (0, 1, 2) if is_single(plan, child, key) else edges)
    return out


def degree_codec(child: str, key: str, edges: tuple[int, ...]) -> Codec:
    """Return the codec of one degree column."""
    return Codec(Column(degree(child, key), Type("integer"), nullable=False), Bins(edges))


def presence_codecs(plan: DeclaredPlan, table: str) -> dict[str, Codec]:
    """Return the columns that say which of a table's nullable foreign keys lead somewhere."""
    made = {}
    for key in plan.database[table].foreign_keys:
        if plan.database[table].is_nullable(key):
            name = presence(key.name)
            made[name] = Codec(Column(name, Type("boolean"), nullable=False), Categories((False, True)))
    return made


def repeating_key(plan: DeclaredPlan, table: str) -> str | None:
    """Return the key of a junction of two, other than its owning one, whose pairs with the owner may repeat."""
    keys = [k.key for k in plan.table[table].keys]
    owning = plan.promise.owning.get(table)
    if owning is None or len(keys) != 2 or not plan.promise.graph.is_junction(table):
        return None
    if plan.database[table].is_unique(tuple(c for k in keys for c in k.columns)):
        return None
    return next(k.name for k in keys if k.name != owning)


def repetition_view(plan: DeclaredPlan, table: str, key: str) -> View:
    """Return the linked rows of a junction, by whether they repeat a pair."""
    name = repetition(key)
    return View(table, ((name, Attribute(name)),), ((plan.promise.owning[table],), (key,)))


def repetition_codec(key: str) -> Codec:
    """Return the codec of a repetition column."""
    return Codec(Column(repetition(key), Type("boolean"), nullable=False), Categories((False, True)))


def newcomer_view(relation: Relation) -> View:
    """Return the linked rows of a relation, by the public row that each leads to."""
    name = newcomer(relation.key)
    return View(relation.table, ((name, Attribute(name)),), ((relation.key,),))


def has_popular_targets(plan: DeclaredPlan, relation: Relation) -> bool:
    """Whether it may be counted how often each row is led to: public rows, several
    links to each, under entity neighbours.
    """
    key = plan.database[relation.table].key[relation.key]
    return key.target in plan.public and relation.kind != "one-to-one" and plan.promise.neighbours == "entity"


def derived_codecs(plan: DeclaredPlan, table: str) -> dict[str, Codec]:
    """Return all columns of a private table's rows that the engine derives."""
    return presence_codecs(plan, table) | degree_codecs(plan, table)


def model_columns(plan: DeclaredPlan, table: str) -> tuple[str, ...]:
    """Return the columns that the model of a private table sees: its own, which keys are null, and its degrees."""
    return (*(c.name for c in plan.table[table].modelled), *derived_codecs(plan, table))


def is_centred(plan: DeclaredPlan, table: str) -> bool:
    """Whether a table's rows may be counted around what all rows show
    (:mod:`dpweave.measure.centred_counts`): all of them have owners.
    """
    database, chain = plan.database, plan.promise.chain(table)
    alone = bool(chain) and not plan.promise.may_blank(table)  # else rows of other units move
    return alone and not any(database[t].is_nullable(database[t].key[k]) for t, k in chain)


def has_cheap_bound(plan: DeclaredPlan, table: str) -> bool:
    """Whether noise hardly depends on the bound of an owned table: its rows are unit
    sums, wherever they are not on a server.

    That holds for its columns and for its links to owners and public rows.
    """
    return plan.neighbours == "entity" and is_centred(plan, table)


def is_dictated(plan: DeclaredPlan, table: str, key: str) -> bool:
    """Whether a key shares columns with another one, so that its targets are drawn among those that agree."""
    foreign = plan.database[table].foreign_keys
    own = set(plan.database[table].key[key].columns)
    return any(own & set(other.columns) for other in foreign if other.name != key)


def measured_columns(plan: DeclaredPlan, table: str) -> tuple[str, ...]:
    """Return the columns that the model of a private table has to learn: all, or those
    that rows made elsewhere lack.
    """
    external = plan.table[table].external is not None
    return tuple(derived_codecs(plan, table)) if external else model_columns(plan, table)


@lru_cache(maxsize=16)
def relations(plan: DeclaredPlan) -> tuple[Relation, ...]:
    """Every foreign key of the private tables, in the order they are woven."""
    wired = {name: [k.key.name for k in plan.table[name].keys] for name in plan.public}
    out: list[Relation] = []
    for name in weaving_order(plan):
        wired[name] = []
        seated = seated_keys(plan, name)
        # Who comes together in a unit is settled before other keys look for rows there.
        keys = sorted(plan.table[name].keys, key=lambda k: (k.role != "owning", k.key.name not in seated))
        if _is_pair(plan, name):
            first, second = (k.key.name for k in keys)
            left = _columns(plan, name, (first,), wired)
            right = _columns(plan, name, (second,), wired)
            out.append(Relation(name, second, "many-to-many", left, right, joint=first))
            continue
        for key in keys:
            left = _columns(plan, name, (), wired)
            if key.role == "owning":  # who has a father there is to come into a household with room for one
                left += tuple((name_of(a), a) for a in map(Attribute, map(presence, seated)))
            right = _columns(plan, name, (key.key.name,), wired)
            kind: Kind = "one-to-one" if plan.database[name].is_unique(key.key.columns) else "one-to-many"
            out.append(Relation(name, key.key.name, kind, left, right))
            wired[name].append(key.key.name)
    return tuple(out)


def seated_keys(plan: DeclaredPlan, table: str) -> tuple[str, ...]:
    """Keys of a table by which its rows lead to rows of it within their unit: these are
    chosen for each other (:mod:`dpweave.weaving.unit_composition`).
    """
    keys = [k for k in plan.table[table].keys if k.within and k.key.target == table]
    direct = len(plan.promise.chain(table)) == 1
    return tuple(k.key.name for k in keys if direct and plan.database[table].is_nullable(k.key))


def weaving_order(plan: DeclaredPlan) -> tuple[str, ...]:
    """Private tables, such that owners come before what they own and, where possible, targets before sources."""
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


def _is_pair(plan: DeclaredPlan, name: str) -> bool:
    """Whether a table is a pure junction of two keys that never repeats a pair."""
    table = plan.database[name]
    if len(table.foreign_keys) != 2 or not plan.promise.graph.is_pure_junction(name):
        return False
    a, b = (set(k.columns) for k in table.foreign_keys)
    return not a & b and table.is_unique(tuple(a | b)) and not any(table.is_nullable(k) for k in table.foreign_keys)


def _columns(
    plan: DeclaredPlan, base: str, path: Path, wired: Mapping[str, list[str]]
) -> tuple[tuple[str, Attribute], ...]:
    """Columns of the row at the end of ``path``, of the rows its wired keys lead to, and further ones of workloads."""
    here = plan.promise.graph.walk(base, path)
    found = [Attribute(c, path) for c in _own(plan, here)]
    for key in wired.get(here, []):
        target = plan.database[here].key[key].target
        if path and plan.promise.is_within(base, path[0]) and target not in plan.public:
            continue  # its unit is that of both ends, and with whom it came there depends on this key
        found += [Attribute(c, (*path, key)) for c in _own(plan, target)]
    for workload in joined(plan):
        if workload.base == base:
            found += [a for a in workload.attributes if a not in found and _is_wired(plan, base, path, a, wired)]
    return tuple((name_of(a), a) for a in found)


def _is_wired(plan: DeclaredPlan, base: str, path: Path, attribute: Attribute, wired: Mapping[str, list[str]]) -> bool:
    """Whether an attribute lies beyond ``path``, by keys that are wired already."""
    if attribute.path[: len(path)] != path:
        return False
    walk = plan.promise.graph.walk
    return all(
        attribute.path[i] in wired.get(walk(base, attribute.path[:i]), [])
        for i in range(len(path), len(attribute.path))
    )


def _own(plan: DeclaredPlan, table: str) -> list[str]:
    columns = [c.name for c in plan.table[table].columns if c.domain is not None and not isinstance(c.domain, Opaque)]
    return columns if table in plan.public else [*columns, *degree_codecs(plan, table)]
