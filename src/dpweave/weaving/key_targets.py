"""Targets of foreign keys that are not learned, and what is mended in those that are:
pairs that repeat too seldom or too often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.arrays import running_number
from dpweave.links.wiring.repeated_pairs import Pairs, Repeated, repeat
from dpweave.links.wiring.within_groups import UnitGroups, assign_within_groups
from dpweave.plan.relations import relations, repeating_key
from dpweave.schema.domain import Attribute
from dpweave.schema.placeholders import room
from dpweave.weaving.values import Values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dpweave.arrays import IntArray
    from dpweave.plan.entries import KeyPlan, TablePlan
    from dpweave.schema.database import ForeignKey
    from dpweave.weaving.state import Mask, WeavingState


_TURNS = 20
"""How often rows that repeat a combination of targets look for a partner of one kind to exchange one with."""


def random_targets(
    state: WeavingState, name: str, key_name: str, *, degrees: IntArray | None, rng: np.random.Generator
) -> IntArray:
    """Targets at random, within degrees where they are known and within bounds elsewhere."""
    plan = state.plan.table[name]
    key = plan.key[key_name]
    target = np.full(state.rows[name], -1, dtype=np.int64)
    chosen = np.union1d(state.with_target(name, key_name), np.flatnonzero(~may_be_null(state, name, key.key)))
    if degrees is not None:
        places = rng.permutation(np.repeat(np.arange(len(degrees)), degrees))
        chosen = rng.permutation(chosen)[: len(places)]
        target[chosen] = places[: len(chosen)]
        return target
    bound = 1 if plan.table.is_unique(key.key.columns) else key.max_degree
    if key.within:
        target[chosen] = _at_home(state, name, key, chosen, target, rng)
        return target
    capacity = None if bound is None else state.room(name, key.key, bound)
    here, there = _agreement(state, plan, key.key)
    for rows, candidates in _meetings(chosen, here[chosen], there):
        most = capacity if capacity is None or isinstance(capacity, int) else capacity[candidates]
        if most is not None and bound != 1 and len(candidates) and not plan.table.is_nullable(key.key):
            # Bounds limit what is measured; a row that must have a target gets one even where they are too tight.
            most = np.maximum(most, -(-len(rows) // len(candidates)))
        target[rows] = draw_targets(len(rows), candidates, capacity=most, rng=rng)
    return target


def may_be_null(state: WeavingState, name: str, key: ForeignKey) -> Mask:
    """Rows whose ``key`` may lead nowhere: one of its columns may be null, and no other
    key that leads somewhere fills it.
    """
    table = state.plan.database[name]
    free = np.zeros(state.rows[name], dtype=bool)
    for column in key.columns:
        if table.column[column].nullable and column not in table.primary_key:
            filled = [state.links[name, k.name] >= 0 for k in _wired(state, name, column, but=key)]
            free |= ~np.logical_or.reduce([np.zeros(state.rows[name], dtype=bool), *filled])
    return free


def _agreement(state: WeavingState, plan: TablePlan, key: ForeignKey) -> tuple[IntArray, IntArray]:
    """Group children and parents by the columns that ``key`` shares with keys wired
    before, or by their units; only equals may meet.

    Children that have none of these values yet are in the group -1 and may meet anyone.
    """
    children, parents = state.rows[plan.name], state.rows[key.target]
    if plan.key[key.name].within:
        own, other = state.units(plan.name), state.units(key.target)
        return np.where(own >= 0, own, other.max(initial=0) + 1), other  # rows without a unit meet nobody
    pairs = [
        (column, target)
        for column, target in zip(key.columns, key.target_columns, strict=True)
        if _wired(state, plan.name, column, but=key)
    ]
    if not pairs:
        return np.zeros(children, dtype=np.int64), np.zeros(parents, dtype=np.int64)
    values = Values(state)
    mine = [_column_ids(state, plan.name, c, but=key) for c, _ in pairs]
    theirs = [values.column(key.target, c).to_pylist() for _, c in pairs]
    labels: dict[tuple[Any, ...], int] = {(None,) * len(pairs): -1}
    here = [labels.setdefault(v, len(labels)) for v in zip(*mine, strict=True)]
    there = [labels.setdefault(v, len(labels)) for v in zip(*theirs, strict=True)]
    return np.array(here, dtype=np.int64), np.array(there, dtype=np.int64)


def _meetings(rows: IntArray, here: IntArray, there: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Rows and candidates of each group that rows are in."""
    order, by_group = np.argsort(here, kind="stable"), np.argsort(there, kind="stable")
    groups, first = np.unique(here[order], return_index=True)
    starts = np.searchsorted(there[by_group], groups)
    ends = np.searchsorted(there[by_group], groups, side="right")
    for group, members, start, end in zip(groups, np.split(order, first)[1:], starts, ends, strict=True):
        yield rows[members], by_group if group < 0 else by_group[start:end]


def _wired(state: WeavingState, name: str, column: str, *, but: ForeignKey) -> list[ForeignKey]:
    """Foreign keys that dictate a column already, other than ``but``."""
    keys = state.plan.database[name].foreign_keys
    return [k for k in keys if k != but and column in k.columns and (name, k.name) in state.links]


def _column_ids(state: WeavingState, name: str, column: str, *, but: ForeignKey) -> list[Any]:
    """Values of a key column, as far as they are dictated already; the first key that leads somewhere dictates."""
    found: list[Any] = [None] * state.rows[name]
    values = Values(state)
    for key in _wired(state, name, column, but=but):
        theirs = values.column(key.target, key.target_columns[key.columns.index(column)]).to_pylist()
        links = state.links[name, key.name].tolist()
        found = [theirs[i] if v is None and i >= 0 else v for v, i in zip(found, links, strict=True)]
    return found


def home_of(state: WeavingState, name: str, key: ForeignKey, rows: IntArray) -> UnitGroups | None:
    """Which rows some rows may meet by a key that stays within units; None if it need not."""
    plan = state.plan.table[name]
    if not plan.key[key.name].within:
        return None
    here, there = _agreement(state, plan, key)
    return UnitGroups(here[rows], there, rows if key.target == name else None)


def bring_home(state: WeavingState, name: str, key_name: str) -> None:
    """Give rows that were led out of their unit, by a method that knows none or with
    both keys of a junction at once, any target within it.
    """
    links, key = state.links[name, key_name], state.plan.table[name].key[key_name]
    here, there = _agreement(state, state.plan.table[name], key.key)
    led = np.flatnonzero(links >= 0)
    away = led[(here[led] != there[links[led]]) | ((links[led] == led) if key.key.target == name else False)]
    links[away] = -1
    if len(away):
        links[away] = _at_home(state, name, key, away, links, state.rng("home", name, key_name))


def _at_home(
    state: WeavingState, name: str, key: KeyPlan, rows: IntArray, links: IntArray, rng: np.random.Generator
) -> IntArray:
    """Any targets within their unit for some rows, as long as the other ``links`` leave room."""
    bound = 1 if state.plan.database[name].is_unique(key.key.columns) else key.max_degree
    degree = np.bincount(links[links >= 0], minlength=state.rows[key.key.target])
    room = None if bound is None else state.room(name, key.key, bound) - degree
    home = home_of(state, name, key.key, rows)
    assert home is not None
    return assign_within_groups(home, bound=room, rng=rng)


def unloop(links: IntArray) -> None:
    """Let rows that lead to themselves exchange targets, which keeps every degree; a single one leads nowhere."""
    loops = np.flatnonzero(links == np.arange(len(links)))
    links[loops] = np.roll(loops, 1) if len(loops) > 1 else -1


def repeat_pairs(state: WeavingState, name: str, *, share: float, error: float) -> Repeated | None:
    """Let rows of a junction exchange targets until the measured share of them repeats a pair; None without rows."""
    key = repeating_key(state.plan, name)
    relation = next(r for r in relations(state.plan) if (r.table, r.key) == (name, key))
    owning = state.plan.promise.owning[name]
    owners, targets = state.links[name, owning], state.links[name, relation.key]
    rows = np.flatnonzero((owners >= 0) & (targets >= 0))
    if not len(rows):
        return None
    rng = state.rng("repeat", name)
    chance = rng.permutation(len(rows))
    rank = np.empty(len(rows), dtype=np.int64)
    rank[chance] = running_number(owners[rows][chance])
    foreign = state.plan.table[name].key[relation.key].key
    right = [state.seen(foreign.target, Attribute(a.column, a.path[1:])) for _, a in relation.right]
    pairs = Pairs(
        owner=owners[rows],
        target=targets[rows],
        place=_agreement(state, state.plan.table[name], foreign)[0][rows],
        kind=_alike([state.seen(name, a)[rows] for _, a in relation.left], len(rows)),
        target_kind=_alike(right, state.rows[foreign.target]),
        seen=rank < state.plan.promise.bounds[name, owning],
    )
    found = repeat(pairs, share=share, error=error, rng=rng)
    targets[rows] = found.target
    return found


def _alike(codes: Sequence[IntArray], rows: int) -> IntArray:
    """Number rows by what they have in common: one number for each combination of codes."""
    label = np.zeros(rows, dtype=np.int64)
    for column in codes:
        _, label = np.unique(label * (int(column.max(initial=0)) + 1) + column, return_inverse=True)
    return label


def separate(state: WeavingState, name: str, uniques: Sequence[tuple[str, ...]]) -> None:
    """Make rows distinct where keys made of foreign keys alone say so: let them
    exchange targets, and leave out what repeats all the same.
    """
    foreign = state.plan.database[name].foreign_keys
    covered = {c for k in foreign for c in k.columns}
    made = {u: [k for k in foreign if set(k.columns) <= set(u)] for u in uniques if u and set(u) <= covered}
    # Of the others only parts of keys are unique: rows may agree on them by different targets.
    whole = {unique: keys for unique, keys in made.items() if {c for k in keys for c in k.columns} == set(unique)}
    bound_home = any(k.within for k in state.plan.table[name].keys)
    for unique, keys in whole.items():
        # Exchanged targets in the same table could lead a row to itself, or round in a circle, and any out of its unit.
        last = None if bound_home else next((k for k in reversed(keys) if k.target != name), None)
        if len(keys) > 1 and last and not any(_wired(state, name, c, but=last) for c in last.columns):
            _exchange(state, name, [*(k for k in keys if k != last), last], state.rng("separate", name, *unique))
    # What was exchanged for one key may repeat in another, and values that are made up
    # by position change with rows that are left out.
    rows = -1
    while rows != state.rows[name]:
        rows = state.rows[name]
        for unique, keys in made.items():
            again = _repeats(state, name, keys) if unique in whole else _repeat_values(state, name, unique)
            state.keep(name, ~again)


def _exchange(state: WeavingState, name: str, keys: list[ForeignKey], rng: np.random.Generator) -> None:
    """Let rows that repeat a combination of targets exchange the last one with others,
    which keeps every degree as it is.

    Partners are at first rows that the fit of that key cannot tell from them or whose target it cannot tell from
    theirs, so that what was learned stays; then rows with the same columns of their own, whoever owns them; then any
    rows. An exchange is made if it repeats nothing that is there or was: so a round looks at the rows that still repeat
    alone.
    """
    again = np.flatnonzero(_repeats(state, name, keys))
    if not len(again):
        return
    *before, last = keys
    links, span = state.links[name, last.name], state.rows[last.target] + 1
    _, others = np.unique(state.labels(name, before)[0], return_inverse=True)
    free = np.logical_and.reduce([state.links[name, key.name] >= 0 for key in keys])
    free[again] = False
    taken = [np.sort(others * span + links), np.zeros(0, dtype=np.int64)]
    for kinds in _kinds(state, name, last):
        order, ends = np.argsort(kinds, kind="stable"), np.cumsum(np.bincount(kinds))
        starts = np.append(0, ends[:-1])
        for _ in range(_TURNS):
            if not len(again):
                return
            chosen = order[rng.integers(starts[kinds[again]], ends[kinds[again]])]
            other, first = np.unique(chosen, return_index=True)
            good = free[other]
            a, b = again[first][good], other[good]
            new = np.stack([others[a] * span + links[b], others[b] * span + links[a]])
            good = ~np.logical_or.reduce([_among(new, known) for known in taken]).any(axis=0)
            seen, inverse, times = np.unique(new[:, good], return_inverse=True, return_counts=True)
            good[good] = (times[inverse.reshape(2, -1)] == 1).all(axis=0)
            a, b = a[good], b[good]
            links[a], links[b] = links[b], links[a]
            taken[1] = np.sort(np.append(taken[1], seen), kind="stable")
            free[a] = True
            again = again[~free[again]]


def _kinds(state: WeavingState, name: str, key: ForeignKey) -> Iterator[IntArray]:
    """Numbers of rows that are alike, wider and wider: by what the links of ``key``
    were learned on, by what their targets were, by their own columns, all.
    """
    found = [r for r in relations(state.plan) if (r.table, r.key, r.joint) == (name, key.name, None)]
    rows, left = state.rows[name], [a for r in found for _, a in r.left]
    yield _alike([state.seen(name, a) for a in left], rows)
    right = [state.seen(key.target, Attribute(a.column, a.path[1:])) for r in found for _, a in r.right]
    targets = _alike(right, state.rows[key.target])
    yield np.where(state.links[name, key.name] >= 0, targets[state.links[name, key.name]], len(targets))
    yield _alike([state.seen(name, a) for a in left if not a.path], rows)
    yield np.zeros(rows, dtype=np.int64)


def _among(values: IntArray, known: IntArray) -> Mask:
    """Which values are in a sorted list."""
    if not len(known):
        return np.zeros(values.shape, dtype=bool)
    return np.asarray(known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values)


def seat(state: WeavingState, name: str) -> None:
    """Leave out rows whose number does not fit into the column that would keep a key unique by it."""
    values = Values(state)
    for column in values.numbered_within(name):
        most = room(state.plan.database[name].column[column])
        if most is not None:
            state.keep(name, values.numbers(name, column) < most)


def _repeat_values(state: WeavingState, name: str, columns: tuple[str, ...]) -> Mask:
    """Rows that agree with an earlier one in these columns."""
    seen: set[tuple[Any, ...]] = set()
    again = np.zeros(state.rows[name], dtype=bool)
    values = Values(state)
    for i, value in enumerate(zip(*(values.column(name, c).to_pylist() for c in columns), strict=True)):
        again[i] = None not in value and value in seen
        seen.add(value)
    return again


def _repeats(state: WeavingState, name: str, keys: list[ForeignKey]) -> Mask:
    label, null = state.labels(name, keys)
    ordered = np.sort(label)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    repeated = np.zeros(len(label), dtype=bool)
    if len(twice):
        suspects = np.flatnonzero(twice[np.minimum(np.searchsorted(twice, label), len(twice) - 1)] == label)
        repeated[suspects] = True
        repeated[suspects[np.unique(label[suspects], return_index=True)[1]]] = False
    return repeated & ~null


def draw_targets(
    children: int, candidates: IntArray, *, capacity: int | IntArray | None, rng: np.random.Generator
) -> IntArray:
    """Draw one of ``candidates`` for each child, none more than ``capacity`` times; -1 where there is no room left.

    >>> draw_targets(5, np.array([7, 8]), capacity=2, rng=np.random.default_rng(0)).tolist().count(-1)
    1
    >>> draw_targets(3, np.array([7, 8]), capacity=np.array([0, 2]), rng=np.random.default_rng(0)).tolist().count(8)
    2
    """
    out = np.full(children, -1, dtype=np.int64)
    if not len(candidates) or not children:
        return out
    if capacity is None:
        return np.asarray(candidates[rng.integers(0, len(candidates), children)], dtype=np.int64)
    ends = np.cumsum(np.broadcast_to(capacity, len(candidates)))
    places = int(ends[-1])
    chosen = distinct(places, min(children, places), rng)
    rows = np.arange(children) if children <= places else np.sort(rng.permutation(children)[:places])
    out[rows] = candidates[np.searchsorted(ends, chosen, side="right")]
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
