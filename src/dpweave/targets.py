"""Targets of foreign keys that are not learned, and what is mended in those that are: circles, repeated combinations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.values import Values

if TYPE_CHECKING:
    from dpweave.cloth import Cloth, Mask
    from dpweave.plan import KeyPlan, TablePlan
    from dpweave.privacy.window import IntArray
    from dpweave.schema.model import ForeignKey


def random_targets(
    cloth: Cloth, name: str, key_name: str, *, degrees: IntArray | None, rng: np.random.Generator
) -> IntArray:
    """Targets at random, within degrees where they are known and within bounds elsewhere."""
    plan = cloth.plan.table[name]
    key = plan.key[key_name]
    target = np.full(cloth.rows[name], -1, dtype=np.int64)
    chosen = cloth.with_target(name, key_name)
    if degrees is not None:
        places = rng.permutation(np.repeat(np.arange(len(degrees)), degrees))
        chosen = rng.permutation(chosen)[: len(places)]
        target[chosen] = places[: len(chosen)]
        return target
    capacity = 1 if plan.table.is_unique(key.key.columns) else key.max_degree
    tight = capacity == 1
    if capacity is not None and cloth.is_divided(name, key.key):
        capacity = cloth.part.share(capacity)
    here, there = _agreement(cloth, plan, key.key)
    for group in np.unique(here[chosen]):
        rows, candidates = chosen[here[chosen] == group], np.flatnonzero(there == group)
        room = capacity
        if room is not None and not tight and len(candidates) and not plan.table.is_nullable(key.key):
            # Bounds limit what is measured; a row that must have a target gets one even where they are too tight.
            room = max(room, -(-len(rows) // len(candidates)))
        target[rows] = draw_targets(len(rows), candidates, capacity=room, rng=rng)
    return target


def _agreement(cloth: Cloth, plan: TablePlan, key: ForeignKey) -> tuple[IntArray, IntArray]:
    """Group children and parents by the columns that ``key`` shares with keys wired before; only equals may meet."""
    children, parents = cloth.rows[plan.name], cloth.rows[key.target]
    pairs = [
        (column, target)
        for column, target in zip(key.columns, key.target_columns, strict=True)
        if _source_of(cloth, plan.name, column, before=key) is not None
    ]
    if not pairs:
        return np.zeros(children, dtype=np.int64), np.zeros(parents, dtype=np.int64)
    mine = [_column_ids(cloth, plan.name, c, before=key) for c, _ in pairs]
    theirs = [_column_ids(cloth, key.target, c) for _, c in pairs]
    labels: dict[tuple[Any, ...], int] = {}
    here = [labels.setdefault(v, len(labels)) for v in zip(*mine, strict=True)]
    there = [labels.setdefault(v, len(labels)) for v in zip(*theirs, strict=True)]
    return np.array(here, dtype=np.int64), np.array(there, dtype=np.int64)


def _source_of(cloth: Cloth, name: str, column: str, *, before: ForeignKey | None = None) -> ForeignKey | None:
    """Return the first foreign key that dictates a column, among those wired before ``before``."""
    for key in cloth.plan.database[name].foreign_keys:
        if key == before:
            return None
        if column in key.columns:
            return key
    return None


def _column_ids(cloth: Cloth, name: str, column: str, *, before: ForeignKey | None = None) -> list[Any]:
    """Values of a key column, as far as they are dictated already."""
    key = _source_of(cloth, name, column, before=before)
    if key is None or name in cloth.ready:
        values: list[Any] = Values(cloth).column(name, column).to_pylist()
        return values
    target = key.target_columns[key.columns.index(column)]
    theirs = _column_ids(cloth, key.target, target)
    return [theirs[i] if i >= 0 else None for i in cloth.links[name, key.name]]


def unloop(links: IntArray) -> None:
    """Let rows that lead to themselves exchange targets, which keeps every degree; a single one leads nowhere."""
    loops = np.flatnonzero(links == np.arange(len(links)))
    links[loops] = np.roll(loops, 1) if len(loops) > 1 else -1


def break_circles(cloth: Cloth, name: str) -> None:
    """Let no row lead back to itself by its acyclic keys: links against a common order move to a like row before.

    Rows whose targets all come before them keep their links. The others, which are in circles or lead to some, are put
    in random order behind; a link that leads forward in it goes to an earlier row with the same codes, if there is one.
    """
    keys = [k.key.name for k in cloth.plan.table[name].keys if k.acyclic]
    if not keys or not cloth.rows[name]:
        return
    rng = cloth.rng("order", name)
    place = order_of([cloth.links[name, k] for k in keys], rng)
    codes = [cloth.codes[name][c] for c in sorted(cloth.codes[name])]
    alike = (
        np.unique(np.stack(codes), axis=1, return_inverse=True)[1].reshape(-1)
        if codes
        else np.zeros(cloth.rows[name], dtype=np.int64)
    )
    for key in keys:
        links = cloth.links[name, key]
        wrong = np.flatnonzero((links >= 0) & (place[np.maximum(links, 0)] >= place))
        links[wrong] = earlier(wrong, links[wrong], alike, place, rng)


def separate(cloth: Cloth, name: str, unique: tuple[str, ...]) -> None:
    """Make tuples of targets distinct where a key made of foreign keys alone says so: move, else leave out."""
    plan = cloth.plan.table[name]
    keys = [k for k in plan.keys if set(k.key.columns) <= set(unique)]
    covered = {c for k in keys for c in k.key.columns}
    if not unique or len(keys) < 2 or covered != set(unique):
        return
    rng = cloth.rng("separate", name, *unique)
    last = keys[-1]
    shared = any(_source_of(cloth, name, c, before=last.key) for c in last.key.columns)
    for _ in range(0 if shared else 100):
        again = np.flatnonzero(_repeats(cloth, name, keys))
        if not len(again):
            return
        # Swapping targets between rows keeps every degree as it is.
        partners = rng.integers(0, cloth.rows[name], len(again))
        links = cloth.links[name, last.key.name]
        order = np.arange(len(links))
        for a, b in zip(again.tolist(), partners.tolist(), strict=True):
            order[a], order[b] = order[b], order[a]
        cloth.links[name, last.key.name] = links[order]
    cloth.keep(name, ~_repeats(cloth, name, keys))


def _repeats(cloth: Cloth, name: str, keys: list[KeyPlan]) -> Mask:
    label, null = cloth.labels(name, [k.key for k in keys])
    ordered = np.sort(label)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    repeated = np.zeros(len(label), dtype=bool)
    if len(twice):
        suspects = np.flatnonzero(twice[np.minimum(np.searchsorted(twice, label), len(twice) - 1)] == label)
        repeated[suspects] = True
        repeated[suspects[np.unique(label[suspects], return_index=True)[1]]] = False
    return repeated & ~null


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
