"""Targets of foreign keys that are not learned, and what is mended in those that are:
pairs that repeat too seldom or too often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.arrays import running_number
from dpweave.links.degrees import whole
from dpweave.links.wiring.assign import assign_at_random
from dpweave.links.wiring.constraints import NewPairs, NotItself, SameGroup, repeated
from dpweave.links.wiring.repeated_pairs import Pairs, Repeated, repeat, without_bad_links
from dpweave.links.wiring.within_groups import UnitGroups, assign_within_groups
from dpweave.schema.domain import Attribute
from dpweave.schema.placeholders import room
from dpweave.weaving.keys_and_values import Values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.links.wiring.repeated_pairs import Labels
    from dpweave.plan.entries import KeyPlan, TablePlan
    from dpweave.schema.database import ForeignKey
    from dpweave.weaving.state import Mask, WeavingState


def random_targets(
    state: WeavingState,
    name: str,
    key_name: str,
    *,
    degrees: IntArray | None,
    weights: FloatArray | None = None,
    rng: np.random.Generator,
) -> IntArray:
    """Targets at random, within degrees where they are known and within bounds elsewhere;
    of public rows some more often than others, in proportion to ``weights``.
    """
    plan = state.plan.table[name]
    key = plan.key[key_name]
    target = np.full(state.rows[name], -1, dtype=np.int64)
    chosen = np.union1d(state.with_target(name, key_name), np.flatnonzero(~may_be_null(state, name, key.key)))
    if degrees is None and weights is not None and weights.sum() > 0:
        degrees = whole(weights * (len(chosen) / weights.sum()), len(chosen), rng, shuffle=True)
    if degrees is not None:
        places = rng.permutation(np.repeat(np.arange(len(degrees)), degrees))
        chosen = rng.permutation(chosen)[: len(places)]
        target[chosen] = places[: len(chosen)]
        return target
    bound = 1 if plan.table.is_unique(key.key.columns) else key.max_degree
    if key.within:
        target[chosen] = _within_unit(state, name, key, chosen, target, rng)
        return target
    here, there = _agreement(state, plan, key.key)
    room = np.broadcast_to(len(chosen) if bound is None else state.room(name, key.key, bound), len(there))
    tight = bound is not None and bound != 1 and not plan.table.is_nullable(key.key)
    bare, anyone = here[chosen] < 0, (np.zeros_like(here), np.zeros_like(there))
    for rows, (group, groups) in ((chosen[~bare], (here, there)), (chosen[bare], anyone)):
        # Bounds limit what is measured; a row that must have a target gets one even where they are too tight.
        most = np.maximum(room, _rows_each(group[rows], groups)) if tight else room
        found = assign_at_random(group[rows], groups, None if bound is None else most, rng=rng)
        room = room - np.bincount(found[found >= 0], minlength=len(there))
        target[rows] = found
    return target


def _rows_each(group: IntArray, groups: IntArray) -> IntArray:
    """How many rows each target gets if those of its group are dealt evenly, rounded up."""
    size = max(group.max(initial=-1), groups.max(initial=-1)) + 2
    rows, targets = (np.bincount(g + 1, minlength=size) for g in (group, groups))
    return np.asarray(-(-rows // np.maximum(targets, 1))[groups + 1])


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


def unit_groups(state: WeavingState, name: str, key: ForeignKey, rows: IntArray) -> UnitGroups | None:
    """Which rows some rows may meet by a key that stays within units; None if it need not."""
    plan = state.plan.table[name]
    if not plan.key[key.name].within:
        return None
    here, there = _agreement(state, plan, key)
    return UnitGroups(here[rows], there, rows if key.target == name else None)


def lead_within_units(state: WeavingState, name: str, key_name: str) -> None:
    """Give rows that were led out of their unit, by a method that knows none or with
    both keys of a junction at once, any target within it.
    """
    links, key = state.links[name, key_name], state.plan.table[name].key[key_name]
    here, there = _agreement(state, state.plan.table[name], key.key)
    led = np.flatnonzero(links >= 0)
    away = led[(here[led] != there[links[led]]) | ((links[led] == led) if key.key.target == name else False)]
    links[away] = -1
    if len(away):
        links[away] = _within_unit(state, name, key, away, links, state.rng("home", name, key_name))


def _within_unit(
    state: WeavingState, name: str, key: KeyPlan, rows: IntArray, links: IntArray, rng: np.random.Generator
) -> IntArray:
    """Any targets within their unit for some rows, as long as the other ``links`` leave room."""
    bound = 1 if state.plan.database[name].is_unique(key.key.columns) else key.max_degree
    degree = np.bincount(links[links >= 0], minlength=state.rows[key.key.target])
    room = None if bound is None else state.room(name, key.key, bound) - degree
    groups = unit_groups(state, name, key.key, rows)
    assert groups is not None
    return assign_within_groups(groups, bound=room, rng=rng)


def lead_away_from_itself(state: WeavingState, name: str, key: ForeignKey) -> None:
    """Let rows that lead to themselves exchange targets with others, which keeps every degree; one that finds nobody
    leads nowhere.
    """
    links = state.links[name, key.name]
    every = np.arange(len(links))
    loops = np.flatnonzero(links == every)
    if not len(loops):
        return
    shared = _agreement(state, state.plan.table[name], key)[0]
    group = np.where(links >= 0, shared + 2, 0)
    rng, kinds = state.rng("loops", name, key.name), _kinds(state, name, key, group)
    links, left = without_bad_links(links, loops, (NotItself(every), SameGroup(group)), kinds, rng=rng)
    links[left] = -1
    state.links[name, key.name] = links


def repeat_pairs(state: WeavingState, name: str, *, share: float, error: float) -> Repeated | None:
    """Let rows of a junction exchange targets until the measured share of them repeats a pair; None without rows."""
    compiled = state.plan.compile()
    relation = compiled.relation[name, compiled.table[name].repeating_key or ""]
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
        kind=alike([state.seen(name, a)[rows] for _, a in relation.left], len(rows)),
        target_kind=alike(right, state.rows[foreign.target]),
        seen=rank < state.plan.promise.bounds[name, owning],
    )
    found = repeat(pairs, share=share, error=error, rng=rng)
    targets[rows] = found.target
    return found


def alike(codes: Sequence[IntArray], rows: int) -> IntArray:
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
    within = any(k.within for k in state.plan.table[name].keys)
    for unique, keys in whole.items():
        # Exchanged targets in the same table could lead a row to itself, or round in a circle, and any out of its unit.
        last = None if within else next((k for k in reversed(keys) if k.target != name), None)
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
    """
    again = np.flatnonzero(_repeats(state, name, keys))
    if not len(again):
        return
    *before, last = keys
    links = state.links[name, last.name]
    _, others = np.unique(state.labels(name, before)[0], return_inverse=True)
    linked = np.logical_and.reduce([state.links[name, key.name] >= 0 for key in keys]).astype(np.int64)
    keep = (SameGroup(linked), NewPairs.of(others, links, state.rows[last.target] + 1))
    kinds = _kinds(state, name, last, linked)
    state.links[name, last.name], _ = without_bad_links(links, again, keep, kinds, rng=rng)


def _kinds(state: WeavingState, name: str, key: ForeignKey, group: IntArray) -> Iterator[Labels]:
    """Number rows of a ``group`` that are alike, wider and wider: first those that the fit of ``key`` cannot tell
    apart, then those whose targets it cannot, so that what was learned stays; then those with the same columns of their
    own, whoever owns them; then all.
    """
    found = [r for r in state.plan.compile().relations if (r.table, r.key, r.joint) == (name, key.name, None)]
    rows, left = state.rows[name], [a for r in found for _, a in r.left]
    right = [Attribute(a.column, a.path[1:]) for r in found for _, a in r.right]
    yield lambda _: alike([group, *(state.seen(name, a) for a in left)], rows)
    targets = alike([state.seen(key.target, a) for a in right], state.rows[key.target])
    yield lambda ends: alike([group, np.append(targets, 0)[ends]], rows)
    yield lambda _: alike([group, *(state.seen(name, a) for a in left if not a.path)], rows)
    yield lambda _: group


def keep_numbered(state: WeavingState, name: str) -> None:
    """Leave out rows whose number does not fit into the column that would keep a key unique by it."""
    values = Values(state)
    for column in values.numbered_within(name):
        most = room(state.plan.database[name].column[column])
        if most is None:
            continue
        largest = int(values.numbers_here(name, column).max(initial=0))
        if not state.shared_rows.hopes_to_fit((name, column), largest, most):
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
    again = np.zeros(len(label), dtype=bool)
    again[repeated(label)] = True
    return again & ~null
