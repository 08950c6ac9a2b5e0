"""From fitted tables and links to whole rows: sizes, keys that hold, values, placeholders.

Rows are wired by position first; key values are resolved afterwards, so cycles, self-references, composite keys and keys
that are also foreign keys need no special order.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dpweave.constraints import obey
from dpweave.errors import SchemaError
from dpweave.links.base import LinkProblem
from dpweave.links.degrees import Degrees, decode, match_total, seen, whole
from dpweave.relations import Relation, degree_codecs, derived_codecs, presence_codecs, relations, weaving_order
from dpweave.schema.arrow import arrow_type
from dpweave.schema.codec import Codec
from dpweave.schema.coding import encode_table
from dpweave.schema.domain import Attribute, Bins, Categories, Opaque, degree, presence
from dpweave.schema.placeholders import placeholders

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dpweave.plan import KeyPlan, Plan, TablePlan
    from dpweave.privacy.window import IntArray
    from dpweave.schema.model import ForeignKey, Table
    from dpweave.tables.base import FittedTable


MOST_UNSEEN = 1000
"""Degrees may call for this many times the rows that were counted within bounds; more is taken for an error of theirs."""


@dataclass(frozen=True)
class Fabric:
    """What a database is woven from: everything public or released."""

    plan: Plan
    sizes: Mapping[str, float]
    """Noisy number of rows of each private table."""
    tables: Mapping[str, FittedTable]
    public: Mapping[str, pa.Table]
    degrees: Mapping[tuple[str, str], tuple[tuple[int, ...], IntArray]] = field(default_factory=dict)
    """For owning keys, as (table, key): buckets of degrees and their noisy counts over the owners."""

    def share(self, table: str, key: str) -> float:
        """Share of rows whose foreign key leads somewhere."""
        if presence(key) not in presence_codecs(self.plan, table):
            return 1.0
        none, some = np.maximum(self.tables[table].marginal((presence(key),)), 0.0)
        return float(some / (none + some)) if none + some > 0 else 0.0


class Linker(Protocol):
    """Makes the links of one relation: learns them while fitting, repeats them while sampling."""

    def __call__(
        self, relation: Relation, problem: LinkProblem, degrees: Degrees, rng: np.random.Generator
    ) -> IntArray | None:
        """Return (left, right) row positions, or None for links at random."""
        ...


class Weaver:
    """One synthetic database in the making. The same fabric, scale and seed always weave the same one."""

    def __init__(self, fabric: Fabric, *, linker: Linker, scale: float, seed: int) -> None:
        self._fabric = fabric
        self._plan = fabric.plan
        self._linker = linker
        self._scale = scale
        self._seed = seed
        self._codes: dict[str, dict[str, IntArray]] = {}
        self._links: dict[tuple[str, str], IntArray] = {}
        self._values: dict[tuple[str, str], pa.Array] = {}
        self._pending: set[tuple[str, str]] = set()
        self.rows: dict[str, int] = {}
        self.repairs: dict[str, int] = {}
        """How many rows each constraint changed."""

    def weave(self) -> dict[str, pa.Table]:
        """Make every table: private ones from what was released, public ones as they are."""
        import pyarrow as pa

        self.wire()
        made = dict(self._fabric.public)
        for name in self._plan.promise.private:
            table = self._plan.database[name]
            made[name] = pa.table({c.name: self._value(name, c.name) for c in table.columns})
        self.repairs = obey(self._plan.constraints, made, self._links, self._plan.database)
        return {name: made[name] for name in self._plan.database.names}

    def wire(self) -> None:
        """Draw rows and give every foreign key its targets, by position."""
        for name, table in self._fabric.public.items():
            self.rows[name] = table.num_rows
            codecs = {
                c.name: Codec(c.column, c.domain)
                for c in self._plan.table[name].columns
                if isinstance(c.domain, Categories | Bins)
            }
            self._codes[name] = encode_table(table, codecs)
        order = weaving_order(self._plan)
        for name in order:
            self._draw_rows(name)
        for name in order:
            if not self.rows[name] and self._must_exist(name):
                self._set_rows(name, 1)
        woven = relations(self._plan)
        for name in order:
            for relation in woven:
                if relation.table == name:
                    self._wire(relation)
            self._break_circles(name)
            for unique in (self._plan.database[name].primary_key, *self._plan.database[name].unique):
                self._separate(self._plan.table[name], unique)

    def _rng(self, *what: str) -> np.random.Generator:
        words = [zlib.crc32(w.encode()) for w in what]
        return np.random.default_rng([self._seed, *words])

    def _draw_rows(self, name: str) -> None:
        """Draw a table's rows: as many as its owners have degrees for, where degrees are known."""
        size = self._fabric.sizes[name] * self._scale
        owning = self._plan.promise.owning.get(name)
        degrees = None if owning is None else self._degrees(name, owning)
        if degrees is not None and owning is not None:
            share = self._fabric.share(name, owning)
            size = min(float(degrees.sum()), MOST_UNSEEN * max(size, 1.0)) + size * (1 - share)
        self._set_rows(name, max(0, round(size)))

    def _set_rows(self, name: str, rows: int) -> None:
        self.rows[name] = rows
        fitted = self._fabric.tables.get(name)
        self._codes[name] = {} if fitted is None else fitted.sample(rows, self._rng("rows", name))

    def _must_exist(self, name: str) -> bool:
        """Whether rows that must lead to this table are there: noise alone should not wipe them out."""
        return any(
            self.rows.get(t.name) and not t.is_nullable(k)
            for t, k in self._plan.promise.graph.incoming(name)
            if t.name != name
        )

    def _degrees(self, name: str, key: str) -> IntArray | None:
        """How many rows of ``name`` each target row should have by ``key``, where its degree was synthesised."""
        target = self._plan.database[name].key[key].target
        column = degree(name, key)
        codes = self._codes.get(target, {}).get(column)
        if codes is None:
            return None
        domain = degree_codecs(self._plan, target)[column].domain
        assert isinstance(domain, Bins)
        groups = np.array(domain.edges, dtype=np.int64)
        fine, counts = self._fabric.degrees.get(
            (name, key), (tuple(groups.tolist()), np.ones(len(groups) - 1, dtype=np.int64))
        )
        degrees = degrees_of(codes, groups, np.array(fine), counts, self._rng("degree", name, key))
        if len(groups) == 2 and len(degrees):  # nothing is known but how many rows there are
            total = min(round(self._fabric.sizes[name] * self._scale), len(degrees) * (int(groups[1]) - 1))
            degrees = match_total(degrees, total, cap=int(groups[1]) - 1, rng=self._rng("total", name, key))
        return degrees

    # -- wiring ----------------------------------------------------------------------------------------------------

    def _wire(self, relation: Relation) -> None:
        """Give rows their targets; rows that cannot have what they must have are left out."""
        table = self._plan.database[relation.table]
        rng = self._rng("link", relation.table, relation.key)
        names = [relation.key] if relation.joint is None else [relation.joint, relation.key]
        learned = self._learned(relation, rng)
        if learned is not None and relation.joint is not None:
            self._resize(relation.table, len(learned))
            for name, side in zip(names, learned.T, strict=True):
                self._links[relation.table, name] = side
        elif learned is not None:
            links = np.full(self.rows[relation.table], -1, dtype=np.int64)
            links[learned[:, 0]] = learned[:, 1]
            self._links[relation.table, relation.key] = links
        else:
            for name in names:
                self._links[relation.table, name] = self._random_targets(relation.table, name, rng)
        for name in names:
            if table.key[name].target == relation.table:
                self._unloop(self._links[relation.table, name])
            if not table.is_nullable(table.key[name]):
                self._keep(relation.table, self._links[relation.table, name] >= 0)

    @staticmethod
    def _unloop(links: IntArray) -> None:
        """Let rows that lead to themselves exchange targets, which keeps every degree; a single one leads nowhere."""
        loops = np.flatnonzero(links == np.arange(len(links)))
        links[loops] = np.roll(loops, 1) if len(loops) > 1 else -1

    def _learned(self, relation: Relation, rng: np.random.Generator) -> IntArray | None:
        """Ask the linker; positions are those of whole tables."""
        problem, rows = self._problem(relation)
        if problem is None:
            return None
        pairs = self._linker(relation, problem, self._known_degrees(relation, problem, rng), rng)
        if pairs is None:
            return None
        return np.stack([rows[pairs[:, 0]], pairs[:, 1]], axis=1)

    def _known_degrees(self, relation: Relation, problem: LinkProblem, rng: np.random.Generator) -> Degrees:
        """Degrees that were synthesised with their rows, made to fit the number of links."""
        key = relation.joint or relation.key
        degrees = self._degrees(relation.table, key)
        if degrees is None or relation.kind == "one-to-one":
            return Degrees()
        bound = self._plan.promise.bounds[relation.table, key]
        share = seen(degrees, bound)
        if relation.joint is not None:
            degrees = match_total(degrees, problem.links, cap=problem.right_rows, rng=rng)
            return Degrees(left=degrees, left_seen=share)
        degrees = match_total(degrees, problem.links, cap=max(problem.links, 1), rng=rng)
        return Degrees(right=degrees, right_seen=share)

    def _problem(self, relation: Relation) -> tuple[LinkProblem | None, IntArray]:
        """State what is to be linked: the left rows that have a target, all right rows, and how many links."""
        table = self._plan.database[relation.table]
        key = table.key[relation.key]
        start = relation.table if relation.joint is None else table.key[relation.joint].target
        skip = 0 if relation.joint is None else 1
        rows = np.arange(self.rows[start])
        if relation.joint is None:
            rows = self._with_target(relation.table, relation.key)
        links = len(rows) if relation.joint is None else self.rows[relation.table]
        if relation.kind == "one-to-one":
            links = min(links, self.rows[key.target])
        if not relation.learnable or not links or not self.rows[key.target] or self._shares_columns(table, key):
            return None, rows
        if relation.joint is not None:
            links = min(links, self.rows[start] * self.rows[key.target])
        left = {n: self._seen(start, Attribute(a.column, a.path[skip:]))[rows] for n, a in relation.left}
        right = {n: self._seen(key.target, Attribute(a.column, a.path[1:])) for n, a in relation.right}
        shape = {n: self._codec(relation.table, a).size for n, a in (*relation.left, *relation.right)}
        same = start == key.target and len(rows) == self.rows[start]
        seen_links = self._fabric.sizes[relation.table] * self._fabric.share(relation.table, relation.key)
        problem = LinkProblem(
            left,
            right,
            shape=shape,
            links=links,
            links_measured=max(seen_links, 1.0),
            kind=relation.kind,
            same_table=same,
        )
        return problem, rows

    def _shares_columns(self, table: Table, key: ForeignKey) -> bool:
        """Whether a key's targets are partly dictated by another key; then targets are drawn among those that agree."""
        return any(set(o.columns) & set(key.columns) for o in table.foreign_keys if o != key)

    def _codec(self, base: str, attribute: Attribute) -> Codec:
        table = self._plan.promise.graph.walk(base, attribute.path)
        derived = derived_codecs(self._plan, table) if table not in self._plan.public else {}
        if attribute.column in derived:
            return derived[attribute.column]
        column = self._plan.table[table].column[attribute.column]
        assert isinstance(column.domain, Categories | Bins | Opaque)
        return Codec(column.column, column.domain)

    def _seen(self, base: str, attribute: Attribute) -> IntArray:
        """Codes of an attribute for every synthetic row of ``base``; where its path leads nowhere, code 0."""
        at = np.arange(self.rows[base])
        for step in attribute.path:
            links = self._links[base, step]
            at = np.where(at >= 0, np.append(links, -1)[at], -1)
            base = self._plan.database[base].key[step].target
        codes = self._codes[base][attribute.column]
        return np.asarray(np.where(at >= 0, np.append(codes, 0)[at], 0), dtype=np.int64)

    def _resize(self, name: str, rows: int) -> None:
        """Set the number of rows of a pure junction, which has no columns of its own to lose."""
        self.rows[name] = rows
        self._codes[name] = {c: np.resize(v, rows) for c, v in self._codes[name].items()}

    def _with_target(self, name: str, key: str) -> IntArray:
        """Rows that get a target: all, or those whose key was drawn as present where it may be null."""
        present = self._codes[name].get(presence(key))
        return np.arange(self.rows[name]) if present is None else np.flatnonzero(present)

    def _random_targets(self, name: str, key_name: str, rng: np.random.Generator) -> IntArray:
        """Targets at random, within degrees where they are known and within bounds elsewhere."""
        plan = self._plan.table[name]
        key = plan.key[key_name]
        children = self.rows[name]
        target = np.full(children, -1, dtype=np.int64)
        chosen = self._with_target(name, key_name)
        degrees = self._degrees(name, key_name)
        if degrees is not None:
            places = rng.permutation(np.repeat(np.arange(len(degrees)), degrees))
            chosen = rng.permutation(chosen)[: len(places)]
            target[chosen] = places[: len(chosen)]
            return target
        capacity = 1 if plan.table.is_unique(key.key.columns) else key.max_degree
        here, there = self._agreement(plan, key.key)
        for group in np.unique(here[chosen]):
            rows, candidates = chosen[here[chosen] == group], np.flatnonzero(there == group)
            room = capacity
            if room is not None and room > 1 and len(candidates) and not plan.table.is_nullable(key.key):
                # Bounds limit what is measured; a row that must have a target gets one even where they are too tight.
                room = max(room, -(-len(rows) // len(candidates)))
            target[rows] = draw_targets(len(rows), candidates, capacity=room, rng=rng)
        return target

    def _break_circles(self, name: str) -> None:
        """Let no row lead back to itself by its acyclic keys: links against a common order move to a like row before.

        Rows whose targets all come before them keep their links. The others, which are in circles or lead to some, are put
        in random order behind; a link that leads forward in it goes to an earlier row with the same codes, if there is one.
        """
        keys = [k.key.name for k in self._plan.table[name].keys if k.acyclic]
        if not keys or not self.rows[name]:
            return
        rng = self._rng("order", name)
        place = order_of([self._links[name, k] for k in keys], rng)
        codes = [self._codes[name][c] for c in sorted(self._codes[name])]
        alike = (
            np.unique(np.stack(codes), axis=1, return_inverse=True)[1].reshape(-1)
            if codes
            else np.zeros(self.rows[name], dtype=np.int64)
        )
        for key in keys:
            links = self._links[name, key]
            wrong = np.flatnonzero((links >= 0) & (place[np.maximum(links, 0)] >= place))
            links[wrong] = earlier(wrong, links[wrong], alike, place, rng)

    def _agreement(self, plan: TablePlan, key: ForeignKey) -> tuple[IntArray, IntArray]:
        """Group children and parents by the columns that ``key`` shares with keys wired before; only equals may meet."""
        children, parents = self.rows[plan.name], self.rows[key.target]
        pairs = [
            (column, target)
            for column, target in zip(key.columns, key.target_columns, strict=True)
            if self._source_of(plan.name, column, before=key) is not None
        ]
        if not pairs:
            return np.zeros(children, dtype=np.int64), np.zeros(parents, dtype=np.int64)
        mine = [self._column_ids(plan.name, c, before=key) for c, _ in pairs]
        theirs = [self._column_ids(key.target, c) for _, c in pairs]
        labels: dict[tuple[Any, ...], int] = {}
        here = [labels.setdefault(v, len(labels)) for v in zip(*mine, strict=True)]
        there = [labels.setdefault(v, len(labels)) for v in zip(*theirs, strict=True)]
        return np.array(here, dtype=np.int64), np.array(there, dtype=np.int64)

    def _source_of(self, name: str, column: str, *, before: ForeignKey | None = None) -> ForeignKey | None:
        """Return the first foreign key that dictates a column, among those wired before ``before``."""
        for key in self._plan.database[name].foreign_keys:
            if key == before:
                return None
            if column in key.columns:
                return key
        return None

    def _column_ids(self, name: str, column: str, *, before: ForeignKey | None = None) -> list[Any]:
        """Values of a key column, as far as they are dictated already."""
        key = self._source_of(name, column, before=before)
        if key is None or name in self._plan.public:
            values: list[Any] = self._value(name, column).to_pylist()
            return values
        target = key.target_columns[key.columns.index(column)]
        theirs = self._column_ids(key.target, target)
        return [theirs[i] if i >= 0 else None for i in self._links[name, key.name]]

    def _separate(self, plan: TablePlan, unique: tuple[str, ...]) -> None:
        """Make tuples of targets distinct where a key made of foreign keys alone says so: move, else leave out."""
        keys = [k for k in plan.keys if set(k.key.columns) <= set(unique)]
        covered = {c for k in keys for c in k.key.columns}
        if not unique or len(keys) < 2 or covered != set(unique):
            return
        rng = self._rng("separate", plan.name, *unique)
        last = keys[-1]
        shared = any(self._source_of(plan.name, c, before=last.key) for c in last.key.columns)
        for _ in range(0 if shared else 100):
            again = np.flatnonzero(self._repeats(plan.name, keys))
            if not len(again):
                return
            # Swapping targets between rows keeps every degree as it is.
            partners = rng.integers(0, self.rows[plan.name], len(again))
            links = self._links[plan.name, last.key.name]
            order = np.arange(len(links))
            for a, b in zip(again.tolist(), partners.tolist(), strict=True):
                order[a], order[b] = order[b], order[a]
            self._links[plan.name, last.key.name] = links[order]
        self._keep(plan.name, ~self._repeats(plan.name, keys))

    def _repeats(self, name: str, keys: list[KeyPlan]) -> np.ndarray[Any, Any]:
        label, null = self._labels(name, [k.key for k in keys])
        _, first = np.unique(label, return_index=True)
        repeated = ~null
        repeated[first] = False
        return repeated

    def _labels(self, name: str, keys: list[ForeignKey]) -> tuple[IntArray, np.ndarray[Any, Any]]:
        """One number per combination of targets, and where a target is missing."""
        label = np.zeros(self.rows[name], dtype=np.int64)
        null = np.zeros(self.rows[name], dtype=bool)
        for key in keys:
            links = self._links[name, key.name]
            null |= links < 0
            _, label = np.unique(label * (self.rows[key.target] + 1) + links + 1, return_inverse=True)
        return label, null

    def _keep(self, name: str, keep: np.ndarray[Any, Any]) -> None:
        """Leave out rows, and let links that led to them lead nowhere."""
        if keep.all():
            return
        place = np.where(keep, np.cumsum(keep) - 1, -1)
        self.rows[name] = int(keep.sum())
        self._codes[name] = {c: v[keep] for c, v in self._codes[name].items()}
        for table, key in self._links:
            links = self._links[table, key]
            if self._plan.database[table].key[key].target == name:
                links = np.where(links >= 0, place[np.maximum(links, 0)], -1)
            self._links[table, key] = links[keep] if table == name else links

    # -- values ----------------------------------------------------------------------------------------------------

    def _value(self, name: str, column: str) -> pa.Array:
        """Values of a column, resolved once all rows are wired."""
        if name in self._plan.public:
            return self._fabric.public[name][column].combine_chunks()
        if (name, column) not in self._values:
            if (name, column) in self._pending:
                raise SchemaError(
                    f"the value of {name}.{column} depends on itself through foreign keys; make one of them nullable"
                )
            self._pending.add((name, column))
            made = self._make_value(name, column)
            self._pending.discard((name, column))
            self._values[name, column] = made
        return self._values[name, column]

    def _make_value(self, name: str, column: str) -> pa.Array:
        plan = self._plan.table[name].column[column]
        dictated = [k for k in self._plan.database[name].foreign_keys if column in k.columns]
        if dictated:
            return self._follow(name, column, dictated)
        if column in self._sequenced[name]:
            return self._numbered(name, column)
        rng = self._rng("values", name, column)
        domain = plan.domain
        rows = self.rows[name]
        if isinstance(domain, Categories | Bins):
            return Codec(plan.column, domain).decode(self._codes[name][column], rng)
        null = self._codes[name][column] == 1 if column in self._codes[name] else np.zeros(rows, dtype=bool)
        return placeholders(plan.column, np.arange(rows), null=null, rng=rng)

    def _follow(self, name: str, column: str, keys: list[ForeignKey]) -> pa.Array:
        """Copy the key of the row that is pointed at; the first key that leads somewhere dictates."""
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = arrow_type(self._plan.database[name].column[column].type)
        result = pa.nulls(self.rows[name], kind)
        for key in keys:
            links = self._links[name, key.name]
            theirs = self._value(key.target, key.target_columns[key.columns.index(column)])
            taken = theirs.take(pa.array(links, pa.int64(), mask=links < 0))
            result = pc.coalesce(result, taken.cast(kind))
        return result

    @cached_property
    def _sequenced(self) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
        """For every table, the columns that are numbered to keep a key unique, with the columns they are numbered within."""
        return {t.name: _sequenced(t, self._plan.table[t.name]) for t in self._plan.database}

    def _numbered(self, name: str, column: str) -> pa.Array:
        within = self._sequenced[name][column]
        keys = [k for k in self._plan.database[name].foreign_keys if set(k.columns) & set(within)]
        number = np.arange(self.rows[name])
        if keys:
            number = running_number(self._labels(name, keys)[0])
        plan = self._plan.table[name].column[column]
        null = np.zeros(len(number), dtype=bool)
        return placeholders(plan.column, number, null=null, rng=self._rng("values", name, column), unique=True)


def _sequenced(table: Table, plan: TablePlan) -> dict[str, tuple[str, ...]]:
    foreign = {c for k in table.foreign_keys for c in k.columns}
    out: dict[str, tuple[str, ...]] = {}
    for unique in (table.primary_key, *table.unique):
        own = [c for c in unique if c not in foreign]
        if not own or any(c in out for c in own):
            continue
        unmodelled = [c for c in own if plan.column[c].domain is None or isinstance(plan.column[c].domain, Opaque)]
        out[(unmodelled or own)[-1]] = tuple(c for c in unique if c in foreign)
    return out


def draw_targets(children: int, candidates: IntArray, *, capacity: int | None, rng: np.random.Generator) -> IntArray:
    """Draw one of ``candidates`` for each child, none more than ``capacity`` times; -1 where there is no room left.

    >>> draw_targets(5, np.array([7, 8]), capacity=2, rng=np.random.default_rng(0)).tolist().count(-1)
    1
    """
    out = np.full(children, -1, dtype=np.int64)
    if not len(candidates) or not children:
        return out
    if capacity is None:
        return np.asarray(candidates[rng.integers(0, len(candidates), children)], dtype=np.int64)
    places = len(candidates) * capacity
    chosen = distinct(places, min(children, places), rng)
    rows = np.arange(children) if children <= places else np.sort(rng.permutation(children)[:places])
    out[rows] = candidates[chosen // capacity]
    return out


def degrees_of(
    codes: IntArray, groups: IntArray, fine: IntArray, counts: IntArray, rng: np.random.Generator
) -> IntArray:
    """Draw a degree for each row from the fine buckets of its group, in proportion to their noisy counts."""
    bucket = np.zeros(len(codes), dtype=np.int64)
    for group, (low, high) in enumerate(pairwise(groups)):
        rows = np.flatnonzero(codes == group)
        inside = np.flatnonzero((fine[:-1] >= low) & (fine[:-1] < high))
        if not len(rows) or not len(inside):
            continue
        weight = np.maximum(counts[inside], 0).astype(np.float64)
        weight = weight if weight.sum() > 0 else 1 / (1.0 + fine[inside])
        exact = whole(weight / weight.sum() * len(rows), len(rows), rng)
        bucket[rng.permutation(rows)] = np.repeat(inside, exact)
    return decode(bucket, fine.tolist(), rng)


def order_of(links: list[IntArray], rng: np.random.Generator) -> IntArray:
    """Place of each row in an order that follows as many links as it can: targets first (Kahn), the rest at random.

    >>> order_of([np.array([-1, 0, 1])], np.random.default_rng(0))
    array([0, 1, 2])
    """
    rows = len(links[0])
    level = np.full(rows, -1, dtype=np.int64)
    for depth in range(rows):
        ready = level < 0
        for link in links:
            ready &= (link < 0) | (level[np.maximum(link, 0)] >= 0)
        if not ready.any():
            break
        level[ready] = depth
    left = level < 0
    level[left] = level.max(initial=0) + 1
    place = np.empty(rows, dtype=np.int64)
    place[np.lexsort((rng.random(rows), level))] = np.arange(rows)
    return place


def earlier(rows: IntArray, targets: IntArray, alike: IntArray, place: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw for each of ``rows`` a row like its target that comes before it; else any that does; else -1."""
    order = np.lexsort((place, alike))
    key = alike[order] * (len(place) + 1) + place[order]
    first = np.searchsorted(key, alike[targets] * (len(place) + 1))
    count = np.searchsorted(key, alike[targets] * (len(place) + 1) + place[rows]) - first
    by_place = np.argsort(place)
    pick = order[np.minimum(first + (rng.random(len(rows)) * count).astype(np.int64), len(order) - 1)]
    any_before = by_place[(rng.random(len(rows)) * place[rows]).astype(np.int64)]
    return np.where(count > 0, pick, np.where(place[rows] > 0, any_before, -1))


def distinct(limit: int, count: int, rng: np.random.Generator) -> IntArray:
    """Draw ``count`` different numbers below ``limit``, in random order and in time linear in ``count``."""
    if count * 3 >= limit:
        return np.asarray(rng.permutation(limit)[:count], dtype=np.int64)
    found = np.zeros(0, dtype=np.int64)
    while len(found) < count:
        more = rng.integers(0, limit, count - len(found) + 16)
        _, first = np.unique(np.concatenate([found, more]), return_index=True)
        found = np.concatenate([found, more])[np.sort(first)]
    return found[:count]


def running_number(group: IntArray) -> IntArray:
    """Number the members of each group from 0, in order.

    >>> running_number(np.array([3, 1, 3, 3, 1]))
    array([0, 0, 1, 2, 1])
    """
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(group) else np.zeros(0, dtype=np.int64)
    lengths = np.diff(np.r_[starts, len(group)])
    number = np.empty(len(group), dtype=np.int64)
    number[order] = np.arange(len(group)) - np.repeat(starts, lengths)
    return number
