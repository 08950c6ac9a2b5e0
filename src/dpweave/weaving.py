"""From fitted tables and links to whole rows: sizes, keys that hold, values, placeholders.

Rows are wired by position first; key values are resolved afterwards, so cycles, self-references, composite keys and keys
that are also foreign keys need no special order.
"""

from __future__ import annotations

import zlib
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.errors import SchemaError
from dpweave.schema.arrow import arrow_type
from dpweave.schema.codec import Codec
from dpweave.schema.domain import Opaque
from dpweave.schema.placeholders import placeholders

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dpweave.model import Model
    from dpweave.plan import KeyPlan, TablePlan
    from dpweave.privacy.window import IntArray
    from dpweave.schema.model import ForeignKey, Table

    from dpweave.schema.domain import Domain


class Weaver:
    """One synthetic database in the making. The same model, scale and seed always weave the same one."""

    def __init__(self, model: Model, *, scale: float, seed: int) -> None:
        self._model = model
        self._plan = model.plan
        self._scale = scale
        self._seed = seed
        self._codes: dict[str, dict[str, IntArray]] = {}
        self._links: dict[tuple[str, str], IntArray] = {}
        self._values: dict[tuple[str, str], pa.Array] = {}
        self._pending: set[tuple[str, str]] = set()
        self.rows: dict[str, int] = {}

    def weave(self) -> dict[str, pa.Table]:
        """Make every table: private ones from the model, public ones as they are."""
        import pyarrow as pa

        graph = self._plan.promise.graph
        for name, table in self._model.public.items():
            self.rows[name] = table.num_rows
        private = [n for n in graph.order() if n not in self._plan.public]
        for name in private:
            self.rows[name] = max(0, round(self._model.sizes[name] * self._scale))
        for name in private:
            self._draw_codes(name)
        for name in private:
            self._wire(self._plan.table[name])
        made = dict(self._model.public)
        for name in private:
            table = self._plan.database[name]
            columns = {c.name: self._value(name, c.name) for c in table.columns}
            made[name] = pa.table(columns)
        return {name: made[name] for name in self._plan.database.names}

    def _rng(self, *what: str) -> np.random.Generator:
        words = [zlib.crc32(w.encode()) for w in what]
        return np.random.default_rng([self._seed, *words])

    def _draw_codes(self, name: str) -> None:
        fitted = self._model.tables.get(name)
        self._codes[name] = {} if fitted is None else fitted.sample(self.rows[name], self._rng("rows", name))

    # -- wiring ----------------------------------------------------------------------------------------------------

    def _wire(self, plan: TablePlan) -> None:
        """Give every row its targets; rows that cannot have what they must have are left out."""
        table = plan.table
        for key in plan.keys:
            self._links[plan.name, key.key.name] = self._targets(plan, key)
            if not table.is_nullable(key.key):
                self._keep(plan.name, self._links[plan.name, key.key.name] >= 0)
        for unique in (table.primary_key, *table.unique):
            self._separate(plan, unique)

    def _targets(self, plan: TablePlan, key: KeyPlan) -> IntArray:
        name = plan.name
        rng = self._rng("link", name, key.key.name)
        children, parents = self.rows[name], self.rows[key.key.target]
        share = self._model.linked.get((name, key.key.name), 1.0) if plan.table.is_nullable(key.key) else 1.0
        linked = np.zeros(children, dtype=bool)
        linked[rng.permutation(children)[: round(share * children)]] = True
        capacity = 1 if plan.table.is_unique(key.key.columns) else key.max_degree
        here, there = self._agreement(plan, key.key)
        target = np.full(children, -1, dtype=np.int64)
        for group in np.unique(here[linked]):
            rows = np.flatnonzero(linked & (here == group))
            candidates = np.flatnonzero(there == group)
            target[rows] = draw_targets(len(rows), candidates, capacity=capacity, rng=rng)
        if key.key.target == name and parents > 1:
            loops = np.flatnonzero(target == np.arange(children))
            target[loops] = target[np.roll(loops, 1)] if len(loops) > 1 else -1
            target[target == np.arange(children)] = -1
        return target

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
            for a, b in zip(again, partners, strict=True):
                links[a], links[b] = links[b], links[a]
        self._keep(plan.name, ~self._repeats(plan.name, keys))

    def _repeats(self, name: str, keys: list[KeyPlan]) -> np.ndarray[Any, Any]:
        stacked = np.stack([self._links[name, k.key.name] for k in keys], axis=1)
        _, first = np.unique(stacked, axis=0, return_index=True)
        repeated = np.ones(len(stacked), dtype=bool)
        repeated[first] = False
        repeated[(stacked < 0).any(axis=1)] = False
        return repeated

    def _keep(self, name: str, keep: np.ndarray[Any, Any]) -> None:
        """Leave out rows, and let links that led to them lead nowhere."""
        if keep.all():
            return
        place = np.where(keep, np.cumsum(keep) - 1, -1)
        self.rows[name] = int(keep.sum())
        self._codes[name] = {c: v[keep] for c, v in self._codes[name].items()}
        for (table, key), links in self._links.items():
            if self._plan.database[table].key[key].target == name:
                self._links[table, key] = links = np.where(links >= 0, place[np.maximum(links, 0)], -1)
            if table == name:
                self._links[table, key] = links[keep]

    # -- values ----------------------------------------------------------------------------------------------------

    def _value(self, name: str, column: str) -> pa.Array:
        """Values of a column, resolved once all rows are wired."""
        if name in self._plan.public:
            return self._model.public[name][column].combine_chunks()
        if (name, column) not in self._values:
            if (name, column) in self._pending:
                raise SchemaError(f"the value of {name}.{column} depends on itself through foreign keys; make one of them nullable")
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
        if domain is None or isinstance(domain, Opaque):
            null = self._codes[name][column] == 1 if column in self._codes[name] else np.zeros(rows, dtype=bool)
            return placeholders(plan.column, np.arange(rows), null=null, rng=rng)
        return Codec(plan.column, self._domain(domain)).decode(self._codes[name][column], rng)

    @staticmethod
    def _domain(domain: Any) -> Domain:
        return domain  # type: ignore[no-any-return]

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
            stacked = np.stack([self._links[name, k.name] for k in keys], axis=1)
            _, group = np.unique(stacked, axis=0, return_inverse=True)
            number = running_number(group.reshape(-1))
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


