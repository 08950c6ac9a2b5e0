"""The promise, slowly and obviously: bounding, views, marginals and neighbours by loops over dicts.

A database is ``{table: {row id: {column or key: value}}}``; a foreign key holds the id of the row it leads to,
None, or an id that is not there (which leads nowhere). ``order`` ranks rows by (table, id), as PRIVACY §3 wants
it: by nothing but the row. Nothing here imports the calculus, the bounding or the counts it is compared with.
"""

from __future__ import annotations

import copy
import math
import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpweave.privacy.promise import Promise
from dpweave.schema.database import Column, Database, ForeignKey, Table, Type
from dpweave.schema.domain import (
    Attribute,
    View,
    degree,
    earlier,
    newcomer,
    parse_degree,
    parse_earlier,
    parse_newcomer,
    parse_presence,
    parse_repetition,
    presence,
    repetition,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Row = dict[str, "int | None"]
Rows = dict[str, dict[int, Row]]
Order = "Mapping[tuple[str, int], float]"
Gone = set[tuple[str, int]]

NOWHERE = -1
"""Code of a column of a public row that is not there."""

CAP = 4
"""Degrees are counted up to here; larger ones share the last code."""


# -- schemas -----------------------------------------------------------------------------------------------------------


def make_promise(
    tables: Mapping[str, tuple[tuple[str, ...], Mapping[str, str]]],
    *,
    protect: tuple[str, ...],
    public: tuple[str, ...] = (),
    owning: Mapping[str, str] | None = None,
    bounds: Mapping[tuple[str, str], int] | None = None,
    neighbours: str = "entity",
    on_excess: str = "refuse",
    within: frozenset[tuple[str, str]] = frozenset(),
    shared: frozenset[tuple[str, str]] = frozenset(),
) -> Promise:
    """A promise over tables given as ``{name: (columns, {key: target})}``; every table has a primary key ``id``."""
    database = Database(
        tuple(
            Table(
                name,
                (
                    Column("id", Type("integer"), nullable=False),
                    *(Column(c, Type("integer"), nullable=False) for c in columns),
                    *(Column(k, Type("integer")) for k in keys),
                ),
                primary_key=("id",),
                foreign_keys=tuple(ForeignKey((k,), target, ("id",)) for k, target in keys.items()),
            )
            for name, (columns, keys) in tables.items()
        )
    )
    return Promise(
        database,
        protect,
        frozenset(public),
        owning or {},
        bounds or {},
        neighbours,  # type: ignore[arg-type]
        on_excess,  # type: ignore[arg-type]
        within,
        shared,
    )


def keys_of(promise: Promise, table: str) -> dict[str, str]:
    """Foreign keys of a table with their targets."""
    return {k.name: k.target for k in promise.database[table].foreign_keys}


def is_private(promise: Promise, table: str) -> bool:
    return table not in promise.public


def is_relationship(promise: Promise, table: str) -> bool:
    """Two or more keys out, none in, neither protected nor public: its rows stand for links."""
    led_to = {k.target for t in promise.database for k in t.foreign_keys}
    return (
        table not in promise.protected
        and table not in promise.public
        and len(keys_of(promise, table)) >= 2
        and table not in led_to
    )


# -- bounding, PRIVACY §3 ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bounded:
    """Rows that are left, and where each key of each of them leads."""

    raw: Rows
    rows: Rows
    links: dict[tuple[str, int, str], int | None]
    order: Mapping[tuple[str, int], float]
    blank: Gone
    """Rows that are left and count for nothing."""


def bound(rows: Rows, promise: Promise, order: Order) -> Bounded:  # type: ignore[valid-type]
    """Both steps; under ``record`` nothing is cut unless the plan accepts truncation."""
    cuts = promise.neighbours == "entity" or promise.on_excess == "truncate"
    kept: Rows = {t: dict(rows[t]) for t in rows if t not in promise.owning or t in promise.public}
    waiting = [t for t in rows if t not in kept]
    while waiting:
        table = next(t for t in waiting if keys_of(promise, t)[promise.owning[t]] in kept)
        waiting.remove(table)
        key = promise.owning[table]
        owner = keys_of(promise, table)[key]
        places = Counter[int]()
        kept[table] = {}
        for ident in sorted(rows[table], key=lambda i: order[table, i]):
            at = rows[table][ident][key]
            if at is None or at not in rows[owner]:
                kept[table][ident] = rows[table][ident]
            elif at in kept[owner] and (not cuts or places[at] < promise.bounds[table, key]):
                places[at] += 1
                kept[table][ident] = rows[table][ident]
    links: dict[tuple[str, int, str], int | None] = {}
    for table in rows:
        for key, target in keys_of(promise, table).items():
            places = Counter()
            for ident in sorted(kept[table], key=lambda i: order[table, i]):
                at = kept[table][ident][key]
                leads = at if at in kept[target] else None
                if leads is not None and promise.neighbours == "entity" and (table, key) in promise.within:
                    unit = protected_row(kept, promise, table, ident)
                    leads = leads if unit and unit == protected_row(kept, promise, target, leads) else None
                if leads is not None and cuts and is_private(promise, target) and promise.owning.get(table) != key:
                    places[leads] += 1
                    if places[leads] > promise.bounds[table, key]:
                        leads = None
                links[table, ident, key] = leads
    blank = blanks(kept, promise, links)
    for (table, ident, key), at in links.items():
        if (keys_of(promise, table)[key], at) in blank:
            links[table, ident, key] = None
    return Bounded(rows, kept, links, order, blank)


def blanks(kept: Rows, promise: Promise, links: Mapping[tuple[str, int, str], int | None]) -> Gone:
    """Rows that name a second owner where they have no place, and all they own; under ``entity`` only."""
    if promise.neighbours != "entity":
        return set()
    found = {
        (table, ident)
        for table, key in promise.shared
        for ident, row in kept[table].items()
        if row[key] is not None and links[table, ident, key] is None
    }
    return {x for t, i in found for x in unit_rows(kept, promise, t, i)}


def protected_row(kept: Rows, promise: Promise, table: str, ident: int) -> tuple[str, int] | None:
    """The protected row that a row belongs to, by its owner, its owner's owner and so on; None where one is missing."""
    while table not in promise.protected:
        owner = keys_of(promise, table)[promise.owning[table]]
        at = kept[table][ident][promise.owning[table]]
        if at is None or at not in kept[owner]:
            return None
        table, ident = owner, at
    return table, ident


def holds_bounds(rows: Rows, promise: Promise) -> bool:
    """Whether every relation is inside its bound, as ``record`` promises."""
    for table in rows:
        for key, target in keys_of(promise, table).items():
            if is_private(promise, target):
                used = Counter(r[key] for r in rows[table].values() if r[key] in rows[target])
                if used and max(used.values()) > promise.bounds[table, key]:
                    return False
    return True


# -- counting ----------------------------------------------------------------------------------------------------------


def count(bounded: Bounded, promise: Promise, view: View, columns: tuple[str, ...]) -> Counter[tuple[int, ...]]:
    """Occupied cells of the marginal of ``view`` over ``columns``. Beyond private rows,
    a public one that is not there is ``NOWHERE``.
    """
    cells: Counter[tuple[int, ...]] = Counter()
    attributes = [dict(view.columns)[c] for c in columns]
    for ident in bounded.rows[view.base]:
        if (view.base, ident) in bounded.blank:
            continue
        if any(_walk(bounded, promise, view.base, ident, path) is None for path in view.linked):
            continue
        ends = [_walk(bounded, promise, view.base, ident, a.path) for a in attributes]
        if any(
            end is None and not _is_optional(bounded, promise, view.base, ident, a.path)
            for end, a in zip(ends, attributes, strict=True)
        ):
            continue
        new = [k for a in attributes if (k := parse_newcomer(a.column))]
        if any(
            bounded.links[view.base, ident, k] is None or _repeats(bounded, promise, view.base, ident, k) for k in new
        ):
            continue
        codes = (
            _code(bounded, promise, *end, a.column) if end else NOWHERE for end, a in zip(ends, attributes, strict=True)
        )
        cells[tuple(codes)] += 1
    return cells


def _is_optional(bounded: Bounded, promise: Promise, table: str, ident: int, path: tuple[str, ...]) -> bool:
    """Whether a path that leads nowhere breaks off at a public row, with nothing but
    public rows to come; all keys here may be null.
    """
    ends = [table]
    for key in path:
        ends.append(keys_of(promise, ends[-1])[key])
    for i in range(len(path)):
        if _walk(bounded, promise, table, ident, path[: i + 1]) is None:
            return all(end in promise.public for end in ends[i + 1 :])
    return False


def rows_by_unit(
    bounded: Bounded, promise: Promise, view: View, columns: tuple[str, ...]
) -> dict[int, list[tuple[int, ...]]]:
    """Codes of every row of ``view`` that belongs to a protected row, by that row."""
    chain = tuple(key for _, key in promise.chain(view.base))
    attributes = [dict(view.columns)[c] for c in columns]
    out: dict[int, list[tuple[int, ...]]] = {}
    for ident in bounded.rows[view.base]:
        if (view.base, ident) in bounded.blank:
            continue
        root = _walk(bounded, promise, view.base, ident, chain)
        ends = [_walk(bounded, promise, view.base, ident, a.path) for a in attributes]
        linked = [_walk(bounded, promise, view.base, ident, path) for path in view.linked]
        there = all(
            end or _is_optional(bounded, promise, view.base, ident, a.path)
            for end, a in zip(ends, attributes, strict=True)
        )
        if root is not None and there and None not in linked:
            codes = (
                _code(bounded, promise, *end, a.column) if end else NOWHERE
                for end, a in zip(ends, attributes, strict=True)
            )
            out.setdefault(root[1], []).append(tuple(codes))
    return out


def _walk(bounded: Bounded, promise: Promise, table: str, ident: int, path: tuple[str, ...]) -> tuple[str, int] | None:
    for key in path:
        leads = bounded.links[table, ident, key]
        if leads is None:
            return None
        table, ident = keys_of(promise, table)[key], leads
    return table, ident


def _code(bounded: Bounded, promise: Promise, table: str, ident: int, column: str) -> int:
    present = parse_presence(column)
    if present is not None:
        others = {promise.owning.get(table), *(k for t, k in (*promise.within, *promise.shared) if t == table)}
        linking = is_private(promise, keys_of(promise, table)[present]) and present not in others
        named = bounded.rows[table][ident] if promise.neighbours == "entity" and linking else None
        return int((bounded.links[table, ident, present] if named is None else named[present]) is not None)
    led = parse_newcomer(column)
    if led is not None:
        at = bounded.links[table, ident, led]
        assert at is not None
        return at
    repeated = parse_repetition(column)
    if repeated is not None:
        return int(_repeats(bounded, promise, table, ident, repeated))
    said = parse_earlier(column)
    if said is not None:
        return _said_before(bounded, promise, table, ident, *said)
    counted = parse_degree(column)
    if counted is None:
        value = bounded.rows[table][ident][column]
        assert value is not None
        return value
    child, key = counted
    if promise.owning.get(child) == key and child not in promise.public:
        return min(sum(r[key] == ident for r in bounded.raw[child].values()), CAP)
    counted_rows = (r for i, r in bounded.rows[child].items() if (child, i) not in bounded.blank)
    return min(sum(r[key] == ident for r in counted_rows), CAP)


def _repeats(bounded: Bounded, promise: Promise, table: str, ident: int, key: str) -> bool:
    """Whether another row with the same owner and the same target by ``key`` comes
    before this one; without owners none does.
    """
    if table not in promise.owning:
        return False

    def pair(i: int) -> tuple[int | None, int | None]:
        return bounded.links[table, i, promise.owning[table]], bounded.links[table, i, key]

    before = bounded.order[table, ident]
    return None not in pair(ident) and any(
        pair(i) == pair(ident) and bounded.order[table, i] < before for i in bounded.rows[table]
    )


def _said_before(bounded: Bounded, promise: Promise, table: str, ident: int, column: str, order: str) -> int:
    """What the row before a row of the same owner says, or how far back it is; ``NOWHERE`` if there is none."""
    rows, key = bounded.rows[table], promise.owning[table]

    def value(i: int, c: str) -> int | None:
        return i if c == "id" else rows[i][c]

    owner, time = bounded.links[table, ident, key], value(ident, order)
    if owner is None or time is None:
        return NOWHERE
    mine = [i for i in rows if bounded.links[table, i, key] == owner and value(i, order) is not None]
    past = [
        (there, bounded.order[table, i], i)
        for i in mine
        if (there := value(i, order)) is not None
        and (there, bounded.order[table, i]) < (time, bounded.order[table, ident])
    ]
    if not past:
        return NOWHERE
    there, _, before = max(past)
    said = value(before, column)
    return min(time - there, CAP) if column == order else NOWHERE if said is None else said


def ordered_view(rng: random.Random, world: World) -> tuple[View, tuple[str, ...]] | None:
    """What rows before say and how far back they are, over the rows themselves or seen by rows that lead to them."""
    promise = world.promise
    owned = [t for t in promise.owning if t not in promise.public and not promise.may_blank(t)]
    if not owned:
        return None
    table = rng.choice(owned)
    seen_from: list[tuple[tuple[str, ...], str]] = [((), table)] * 3
    seen_from += [((k.name,), t.name) for t, k in promise.graph.incoming(table) if t.name not in promise.public]
    path, base = rng.choice(seen_from)
    values = world.values[table]
    order = rng.choice(["id", *values])
    pairs = [*((c, order) for c in values if c != order), (order, order)]
    columns = [(earlier(*pair), Attribute(earlier(*pair), path)) for pair in pairs]
    return View(base, tuple(columns), ()), tuple(n for n, _ in rng.sample(columns, rng.randint(1, len(columns))))


def distances(a: Counter[tuple[int, ...]], b: Counter[tuple[int, ...]]) -> tuple[float, float]:
    """L1 and squared L2 distance between two marginals."""
    gaps = [a[c] - b[c] for c in {*a, *b}]
    return float(sum(map(abs, gaps))), float(sum(g * g for g in gaps))


# -- neighbours, PRIVACY §2 --------------------------------------------------------------------------------------------


def unit_rows(rows: Rows, promise: Promise, table: str, ident: int) -> Gone:
    """A row with everything it owns."""
    mine = {(table, ident)}
    grew = True
    while grew:
        grew = False
        for child, key in promise.owning.items():
            if child in promise.public:
                continue
            owner = keys_of(promise, child)[key]
            for i, row in rows[child].items():
                if (child, i) not in mine and (owner, row[key]) in mine:
                    mine.add((child, i))
                    grew = True
    return mine


def units(rows: Rows, promise: Promise) -> Iterator[tuple[str, str, int]]:
    """(protected table, table, row): rows of protected tables, and owned rows whose owner is nowhere."""
    for table in promise.protected:
        for ident in rows[table]:
            yield table, table, ident
    for table, key in promise.owning.items():
        if table in promise.public:
            continue
        owner = keys_of(promise, table)[key]
        root = table
        while root not in promise.protected:
            root = keys_of(promise, root)[promise.owning[root]]
        for ident, row in rows[table].items():
            if row[key] not in rows[owner]:
                yield root, table, ident


def without(rows: Rows, gone: Gone) -> Rows:
    """The database without some rows; keys that led to them keep their values and lead nowhere."""
    return {t: {i: dict(r) for i, r in rows[t].items() if (t, i) not in gone} for t in rows}


def entity_neighbours(rows: Rows, promise: Promise) -> Iterator[tuple[str, Rows]]:
    """Every database with one unit less."""
    for root, table, ident in units(rows, promise):
        yield root, without(rows, unit_rows(rows, promise, table, ident))


def record_neighbour(
    rows: Rows,
    promise: Promise,
    table: str,
    ident: int,
    rng: random.Random,
    *,
    values: Mapping[str, tuple[str, ...]],
    size: int,
) -> Rows:
    """One unit changed within bounds: its row, what it owns, its relationships, and who is linked to it.

    ``values`` names the value columns of each table, with codes below ``size``. How
    much comes and goes is random, from nothing to everything that bounds allow.
    """
    eager = rng.random() < 0.7
    new = copy.deepcopy(rows)
    old = unit_rows(rows, promise, table, ident)
    gone = set(old)
    for junction in rows:
        if is_relationship(promise, junction):
            for i, row in rows[junction].items():
                if any((t, row[k]) in old for k, t in _linking(promise, junction)):
                    gone.add((junction, i))
    for t, i in gone:
        del new[t][i]
    fresh = iter(range(1 + max((i for t in rows for i in rows[t]), default=0), 10**9))

    def room(t: str, k: str, at: int) -> int:
        return promise.bounds[t, k] - sum(r[k] == at for r in new[t].values())

    def somewhere(t: str, k: str, target: str) -> int | None:
        free = [i for i in new[target] if not is_private(promise, target) or room(t, k, i) > 0]
        return rng.choice(free) if free and rng.random() < 0.9 else None

    def add(t: str, i: int, fixed: Mapping[str, int | None]) -> None:
        row: Row = {c: rng.randrange(size) for c in values[t]}
        new[t][i] = row | dict.fromkeys(keys_of(promise, t))
        new[t][i].update(fixed)
        for k, target in keys_of(promise, t).items():
            if k not in fixed:
                new[t][i][k] = somewhere(t, k, target)

    def amount(most: int) -> int:
        return most if eager else rng.randint(0, most)

    own_key = promise.owning.get(table) if table not in promise.protected else None
    add(table, ident, {own_key: None} if own_key else {})
    mine: list[tuple[str, int]] = [(table, ident)]
    for owner, at in mine:  # grows while it is walked: owned rows own rows
        for child, key in promise.owning.items():
            if child not in promise.public and keys_of(promise, child)[key] == owner:
                for _ in range(amount(promise.bounds[child, key])):
                    i = next(fresh)
                    add(child, i, {key: at})
                    mine.append((child, i))
    for child in rows:
        for key, target in _linking(promise, child):
            for t, at in mine:
                if t != target:
                    continue
                if is_relationship(promise, child):
                    for _ in range(amount(max(room(child, key, at), 0))):
                        add(child, next(fresh), {key: at})
                    continue
                for i, row in new[child].items():
                    if (child, i) not in mine and row[key] == at:
                        row[key] = None
                        row[key] = somewhere(child, key, target)
            if is_relationship(promise, child):
                continue
            for i, row in new[child].items():  # links into owned rows that are gone
                if (child, i) not in mine and (target, row[key]) in old and (target, row[key]) not in mine:
                    row[key] = None
                    row[key] = somewhere(child, key, target)
            for t, at in mine:
                others = [
                    i for i, row in rows[child].items() if i in new[child] and (child, i) not in mine and row[key] != at
                ]
                rng.shuffle(others)
                if t == target:
                    for i in others[: amount(max(room(child, key, at), 0))]:
                        if (target, new[child][i][key]) not in mine:
                            new[child][i][key] = at
    return new


def _linking(promise: Promise, table: str) -> list[tuple[str, str]]:
    if table in promise.public:
        return []
    return [
        (k, t) for k, t in keys_of(promise, table).items() if is_private(promise, t) and promise.owning.get(table) != k
    ]


# -- random worlds -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """A random promise with rows, an order of rows, and the value columns of each table (codes below ``size``)."""

    promise: Promise
    rows: Rows
    order: Mapping[tuple[str, int], float]
    values: Mapping[str, tuple[str, ...]]
    size: int


def random_promise(
    rng: random.Random, neighbours: str, *, on_excess: str = "refuse", share: float = 0.0
) -> tuple[Promise, dict[str, tuple[str, ...]]]:
    """Chains, stars, junctions, self-references, several protected and public tables,
    several keys to one parent, keys within units.

    ``share`` is how often a key that could be shared is.
    """
    within = random.Random(rng.getrandbits(32))
    names = [f"t{i}" for i in range(rng.randint(1, 5))]
    protect, public, owning = [names[0]], [], {}
    keys: dict[str, dict[str, str]] = {n: {} for n in names}
    for n in names[1:]:
        kind = rng.choices(["protected", "public", "owned"], [2, 1, 4])[0]
        if kind == "protected":
            protect.append(n)
        elif kind == "public":
            public.append(n)
        else:
            owners = [m for m in names[: names.index(n)] if m not in public]
            keys[n]["own"] = rng.choice(owners)
            owning[n] = "own"
    for n in names:
        for j in range(rng.choice([0, 1, 1, 2, 2])):
            targets = public if n in public else names
            target = rng.choice(targets)
            keys[n][f"k{j}"] = target
    bounds = {
        (n, k): rng.choice([1, 1, 2, 2, 3])
        for n in names
        if n not in public
        for k, t in keys[n].items()
        if t not in public
    }
    columns = {n: tuple(f"x{j}" for j in range(rng.choice([1, 1, 2]))) for n in names}

    def root(n: str) -> str:
        return n if n in protect else root(keys[n][owning[n]])

    inside = [
        (n, k)
        for n, k in bounds
        if owning.get(n) != k and not {n, keys[n][k]} & {*protect} and root(n) == root(keys[n][k])
    ]
    stays = frozenset(at for at in inside if within.random() < 0.5)
    promise = make_promise(
        {n: (columns[n], keys[n]) for n in names},
        protect=tuple(protect),
        public=tuple(public),
        owning=owning,
        bounds=bounds,
        neighbours=neighbours,
        on_excess=on_excess,
        within=stays,
        shared=frozenset(
            (n, k) for n, k in bounds if owning.get(n) != k and (n, k) not in stays and within.random() < share
        ),
    )
    return promise, columns


def random_world(
    rng: random.Random,
    neighbours: str,
    *,
    most: int = 6,
    on_excess: str = "refuse",
    tame: bool = True,
    share: float = 0.0,
) -> World:
    """Rows that crowd onto few targets, with null and dangling keys; inside the bounds
    where ``record`` promises them (``tame``).
    """
    promise, columns = random_promise(rng, neighbours, on_excess=on_excess, share=share)
    size = rng.choice([2, 2, 3])
    rows: Rows = {n: {i: {} for i in range(rng.choice([0, 2, most, most]) or rng.randint(1, most))} for n in columns}
    crowd = rng.random()
    for n in columns:
        targets = keys_of(promise, n)
        for row in rows[n].values():
            row.update({c: rng.randrange(size) for c in columns[n]})
            for k, t in targets.items():
                ids = list(rows[t])
                draw = rng.random()
                row[k] = (
                    None
                    if draw < 0.08
                    else 99
                    if draw < 0.14
                    else ids[0]
                    if draw < 0.14 + crowd / 2
                    else rng.choice(ids)
                )
    if neighbours == "record" and tame:
        _tame(rows, promise)
    order = {(n, i): rng.random() for n in rows for i in rows[n]}
    return World(promise, rows, order, columns, size)


def _tame(rows: Rows, promise: Promise) -> None:
    for n in rows:
        for k, t in keys_of(promise, n).items():
            if is_private(promise, t):
                used: Counter[int | None] = Counter()
                for row in rows[n].values():
                    used[row[k]] += 1
                    if row[k] in rows[t] and used[row[k]] > promise.bounds[n, k]:
                        row[k] = None


def random_view(rng: random.Random, world: World) -> tuple[View, tuple[str, ...]]:
    """A view of one to three tables, and a clique of up to three of its columns, degrees among them."""
    from dpweave.schema.domain import Attribute

    promise = world.promise
    base = rng.choice([n for n in world.rows if n not in promise.public])
    paths: list[tuple[str, ...]] = [()]
    for _ in range(rng.choice([0, 1, 2, 2])):
        path = rng.choice(paths)
        table = promise.graph.walk(base, path)
        further = [(*path, k) for k in keys_of(promise, table) if (*path, k) not in paths]
        if further:
            paths.append(rng.choice(further))
    found: list[Attribute] = []
    for path in paths:
        table = promise.graph.walk(base, path)
        found += [Attribute(c, path) for c in world.values[table]]
        found += [Attribute(presence(k), path) for k in keys_of(promise, table) if rng.random() < 0.3]
        if table in promise.owning and table not in promise.public:
            others = [k for k in keys_of(promise, table) if k != promise.owning[table]]
            found += [Attribute(repetition(k), path) for k in others if rng.random() < 0.4]
        if table not in promise.public:
            degrees = [degree(t.name, k.name) for t in promise.database for k in t.foreign_keys if k.target == table]
            found += [Attribute(d, path) for d in degrees if rng.random() < 0.5]
    view = View(
        base, tuple((f"a{i}", a) for i, a in enumerate(found)), tuple(p for p in paths if p and rng.random() < 0.3)
    )
    names = [n for n, _ in view.columns]
    if rng.random() < 0.35 and len(paths) > 1:  # beyond one key only
        first = rng.choice(paths[1:])[0]
        names = [n for n, a in view.columns if a.path[:1] == (first,)]
    return view, tuple(rng.sample(names, min(len(names), rng.choice([0, 1, 1, 2, 2, 3]))))


def newcomer_view(rng: random.Random, world: World) -> tuple[View, tuple[str, ...]] | None:
    """Rows by the public row they lead to, beside columns of their own, of that row and
    of rows that other keys lead to.
    """
    from dpweave.schema.domain import Attribute

    promise = world.promise
    public = [(t, k) for t in promise.private for k, to in keys_of(promise, t).items() if to in promise.public]
    if not public:
        return None
    base, key = rng.choice(public)
    found = [Attribute(newcomer(key)), *(Attribute(c) for c in world.values[base])]
    for other, to in keys_of(promise, base).items():
        found += [Attribute(c, (other,)) for c in world.values[to]]
        if base in promise.owning and other not in (key, promise.owning[base]):
            found.append(Attribute(repetition(other)))
    view = View(base, tuple((f"a{i}", a) for i, a in enumerate(found)))
    others = rng.sample([n for n, _ in view.columns[1:]], min(len(found) - 1, rng.choice([0, 0, 1, 2])))
    return view, ("a0", *others)


def moved(
    world: World, other: Rows, view: View, columns: tuple[str, ...], order: Order | None = None
) -> tuple[float, float]:  # type: ignore[valid-type]
    """True L1 and L2 change of a marginal between a world and a neighbour of it."""
    ranks = dict(world.order) if order is None else dict(order)
    for t in other:
        for i in other[t]:
            ranks.setdefault((t, i), -float(i))
    a = count(bound(world.rows, world.promise, ranks), world.promise, view, columns)
    b = count(bound(other, world.promise, ranks), world.promise, view, columns)
    l1, square = distances(a, b)
    return l1, math.sqrt(square)
