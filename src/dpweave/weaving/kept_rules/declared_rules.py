"""Rows as declared rules want them: values that go together as a plan allows, owners with as many rows as they must.

Table models know these rules, so that hardly a row needs mending: only those of a mechanism that does not keep
structural zeros, and owners that lost rows for want of another target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.arrays import running_number
from dpweave.links.wiring.both_ways import mirrored, unmirrored
from dpweave.plan.rules import Allowed, Equal, Exactly, Symmetric
from dpweave.schema.domain import Categories

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from dpweave.arrays import IntArray
    from dpweave.schema.database import Database
    from dpweave.weaving.state import WeavingState

Mask = np.ndarray[Any, Any]


def combinations_of(rule: Allowed, tables: Mapping[str, pa.Table]) -> list[tuple[Any, ...]]:
    """The combinations that a rule allows, as values; those of a public table's rows once each."""
    if not isinstance(rule.allowed, str):
        return list(rule.allowed)
    rows = tables[rule.allowed].select(list(rule.source_columns))
    return list(dict.fromkeys(zip(*(c.to_pylist() for c in rows.columns), strict=True)))


def breaking(rule: Allowed, tables: Mapping[str, pa.Table]) -> Mask:
    """Which rows have a combination that is not allowed."""
    rows = tables[rule.table].select(list(rule.columns))
    label = np.zeros(rows.num_rows, dtype=np.int64)
    for column in rows.columns:
        coded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        codes = np.asarray(coded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
        _, label = np.unique(label * max(len(coded.dictionary), 1) + codes, return_inverse=True)
    _, first, place = np.unique(label, return_index=True, return_inverse=True)
    allowed = set(combinations_of(rule, tables))
    found = zip(*(c.to_pylist() for c in rows.take(first).columns), strict=True)
    return np.array([values not in allowed for values in found], dtype=bool)[place]


def mend(rules: Sequence[Allowed], tables: dict[str, pa.Table]) -> dict[str, int]:
    """Give rows of one table that break a rule the values of rows that keep all, in all columns of the rules.

    Returns how many rows broke each rule.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    wrong = {str(rule): breaking(rule, tables) for rule in rules}
    anywhere = np.logical_or.reduce(list(wrong.values()))
    if anywhere.any():
        table, good = tables[rules[0].table], np.flatnonzero(~anywhere)
        donor = np.arange(len(anywhere))
        columns = dict.fromkeys(c for rule in rules for c in rule.columns)
        made = next(_joint(rules, tables, {})) if not len(good) else {}
        donor[anywhere] = np.resize(good, int(anywhere.sum())) if len(good) else 0
        for name in columns:
            values = table[name].combine_chunks()
            values = values.take(donor) if len(good) else pa.array([made[name]] * len(donor), values.type)
            table = table.set_column(table.column_names.index(name), name, pc.cast(values, table[name].type))
        tables[rules[0].table] = table
    return {name: int(rows.sum()) for name, rows in wrong.items()}


def _joint(rules: Sequence[Allowed], tables: Mapping[str, pa.Table], known: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Values for all columns of the rules, such that every rule holds."""
    if not rules:
        yield known
        return
    for values in combinations_of(rules[0], tables):
        more = dict(zip(rules[0].columns, values, strict=True))
        if all(known.get(c, v) == v for c, v in more.items()):
            yield from _joint(rules[1:], tables, known | more)


def keep_least_degrees(state: WeavingState) -> dict[str, int]:
    """Let every owner have as many rows as the plan says at least; returns how many rows moved or left, by key.

    Rows move to owners that lack some from owners that have more, where rows are not bound to their owner otherwise.
    Owners that still lack some are left out, with the rows that must lead to them, until all is well: rows only ever
    leave, so this ends. With a row its pair the other way round leaves, where that is declared. Rows that all parts
    have in common are not counted here: no part has all that they own.
    """
    changed: dict[str, int] = {}
    keys = [(t.name, k) for t in state.plan.tables for k in t.keys if k.min_degree]
    keys = [(n, k) for n, k in keys if k.key.target not in state.ready and n not in state.ready]
    for name, planned in keys:
        if _may_move(state, name, planned.key.name):
            links = state.links[name, planned.key.name]
            moved = shared_out(links, state.rows[planned.key.target], planned.min_degree)
            changed[f"{name}.{planned.key.name} at least {planned.min_degree}"] = int((moved != links).sum())
            state.links[name, planned.key.name] = moved
    lacking = bool(keys) or any(isinstance(rule, Symmetric) for rule in state.plan.constraints)
    while lacking:
        lacking = False
        for name, planned in keys:
            target = planned.key.target
            links = state.links[name, planned.key.name]
            few = np.bincount(links[links >= 0], minlength=state.rows[target]) < planned.min_degree
            if few.any():
                lacking = True
                said = f"{name}.{planned.key.name} at least {planned.min_degree}"
                changed[said] = changed.get(said, 0) + int(few.sum())
                state.keep(target, ~few)
        lacking |= _drop_unmirrored(state)
        lacking |= _drop_unled(state)
    return {said: rows for said, rows in changed.items() if rows}


def _drop_unled(state: WeavingState) -> bool:
    """Leave out rows whose key must lead somewhere and does not; whether there were any."""
    found = False
    for table in state.plan.database:
        for key in table.foreign_keys:
            if table.name not in state.ready and not table.is_nullable(key):
                led = state.links[table.name, key.name] >= 0
                found |= not led.all()
                state.keep(table.name, led)
    return found


def _may_move(state: WeavingState, name: str, key: str) -> bool:
    """Whether rows of a table may change their owner: nothing stays within units, and no key holds more than one
    target (a key with a number in it is numbered later).
    """
    plan, table = state.plan, state.plan.database[name]
    foreign = {c for k in table.foreign_keys for c in k.columns}
    held = any(
        set(table.key[key].columns) & set(unique) and set(unique) <= foreign
        for unique in (table.primary_key, *table.unique)
    )
    shares = any(set(table.key[key].columns) & set(k.columns) for k in table.foreign_keys if k.name != key)
    return not held and not shares and not any(k.within for t in plan.tables for k in t.keys)


def shared_out(links: IntArray, owners: int, least: int) -> IntArray:
    """Links that leave no owner with fewer than ``least`` rows while another has more than that.

    >>> shared_out(np.array([0, 0, 0, 2, -1]), 3, 1)
    array([ 1,  0,  0,  2, -1])
    """
    degrees = np.bincount(links[links >= 0], minlength=owners)
    lacking = np.repeat(np.arange(owners), np.maximum(least - degrees, 0))
    out = links.copy()
    while len(lacking):
        rows = _one_of_each(out, np.bincount(out[out >= 0], minlength=owners), least)[: len(lacking)]
        if not len(rows):
            break
        out[rows] = lacking[: len(rows)]
        lacking = lacking[len(rows) :]
    return out


def _one_of_each(links: IntArray, degrees: IntArray, least: int) -> IntArray:
    """One row of each owner that has more than ``least``, those with most rows first."""
    rich = np.flatnonzero((links >= 0) & (degrees[links] > least))
    owner, first = np.unique(links[rich], return_index=True)
    return rich[first][np.argsort(-degrees[owner], kind="stable")]


def off_count(
    rule: Exactly, tables: Mapping[str, pa.Table], links: Mapping[tuple[str, str], IntArray], database: Database
) -> int:
    """Count targets that a value leads to more or less often than it should."""
    has = np.array([v == rule.value for v in tables[rule.table][rule.column].to_pylist()], dtype=bool)
    to, owners = links[rule.table, rule.per], tables[database[rule.table].key[rule.per].target].num_rows
    return int((np.bincount(to[has & (to >= 0)], minlength=owners) != rule.exactly).sum())


def keep_counts(state: WeavingState) -> dict[str, int]:
    """Let each target have its value exactly as often as declared; returns how many rows changed, by rule.

    A row too many with the value changes places with one of a target that lacks it, so that rows stay as they are.
    What is left over takes the value, or that of another row.
    """
    changed = {}
    for rule in (r for r in state.plan.constraints if isinstance(r, Exactly)):
        target = state.plan.database[rule.table].key[rule.per].target
        if target in state.ready or rule.table in state.ready:
            continue
        domain = state.plan.table[rule.table].column[rule.column].domain
        assert isinstance(domain, Categories)
        codes, links = state.codes[rule.table][rule.column], state.links[rule.table, rule.per]
        code = domain.values.index(rule.value)
        many, lacking = off_rows(codes == code, links, state.rows[target], rule.exactly)
        rng = state.rng("exactly", rule.table, rule.per, rule.column)
        many, lacking = rng.permutation(many), rng.permutation(lacking)
        swapped = min(len(many), len(lacking)) if _may_move(state, rule.table, rule.per) else 0
        changed[str(rule)] = len(many) + len(lacking)
        links, codes = links.copy(), codes.copy()
        links[many[:swapped]], links[lacking[:swapped]] = links[lacking[:swapped]], links[many[:swapped]]
        others = rng.permutation(codes[codes != code])
        codes[lacking[swapped:]] = code
        codes[many[swapped:]] = np.resize(others, len(many) - swapped) if len(others) else int(code == 0)
        state.links[rule.table, rule.per], state.codes[rule.table][rule.column] = links, codes
    return changed


def off_rows(has: Mask, links: IntArray, owners: int, exactly: int) -> tuple[IntArray, IntArray]:
    """Rows that have a value too often for their owner, and rows that could have it where it comes too seldom.

    >>> off_rows(np.array([True, True, False, False, False]), np.array([0, 0, 1, 1, -1]), 2, 1)
    (array([1]), array([2]))
    """
    with_, without = (np.flatnonzero((links >= 0) & mask) for mask in (has, ~has))
    short = exactly - np.bincount(links[with_], minlength=owners)
    many = with_[running_number(links[with_]) >= exactly]
    return many, without[running_number(links[without]) < short[links[without]]]


def elsewhere(rule: Equal, links: Mapping[tuple[str, str], IntArray], database: Database) -> tuple[Mask, IntArray]:
    """Which rows lead to two different rows by the two paths, and where each row leads by the second."""
    own, here = links[rule.table, rule.key], rule.table
    at = np.arange(len(own))
    for step in rule.path:
        at = np.where(at >= 0, np.append(links[here, step], -1)[at], -1)
        here = database[here].key[step].target
    return (own >= 0) & (at >= 0) & (own != at), at


def keep_equal(state: WeavingState) -> dict[str, int]:
    """Let keys follow the path that the plan says they follow; returns how many rows changed, by rule."""
    changed = {}
    for rule in (r for r in state.plan.constraints if isinstance(r, Equal) and r.table not in state.ready):
        wrong, at = elsewhere(rule, state.links, state.plan.database)
        state.links[rule.table, rule.key] = np.where(wrong, at, state.links[rule.table, rule.key])
        changed[str(rule)] = int(wrong.sum())
    return changed


def keep_symmetric(state: WeavingState) -> dict[str, int]:
    """Give each pair of rows the pair the other way round; returns how many rows changed or left, by rule."""
    changed = {}
    for rule in _symmetric(state):
        first, second = ((rule.table, key) for key in _owning_first(state, rule))
        a, b = state.links[first], state.links[second]
        target = state.plan.database[rule.table].key[first[1]].target
        labels = _alike(state.codes[target], state.rows[target])
        pairs = (a >= 0) & (b >= 0)
        made = np.where(pairs, mirrored(a, b, labels, state.rng("symmetric", rule.table)), b)
        changed[str(rule)] = int((made != b).sum())
        state.links[second] = made
        state.keep(rule.table, ~pairs | (made >= 0))
    return changed


def _drop_unmirrored(state: WeavingState) -> bool:
    """Leave out rows whose pair the other way round has left; whether there were any."""
    found = False
    for rule in _symmetric(state):
        bare = unmirrored(*(state.links[rule.table, key] for key in rule.symmetric))
        found |= bool(bare.any())
        state.keep(rule.table, ~bare)
    return found


def off_pairs(rule: Symmetric, links: Mapping[tuple[str, str], IntArray]) -> int:
    """Count rows without a pair the other way round."""
    return int(unmirrored(*(links[rule.table, key] for key in rule.symmetric)).sum())


def _symmetric(state: WeavingState) -> list[Symmetric]:
    return [r for r in state.plan.constraints if isinstance(r, Symmetric) and r.table not in state.ready]


def _alike(codes: Mapping[str, IntArray], rows: int) -> IntArray:
    """One number for rows that agree in all columns, below the number of rows."""
    found = np.zeros(rows, dtype=np.int64)
    for column in codes.values():
        found = np.unique(found * (int(column.max(initial=0)) + 1) + column, return_inverse=True)[1]
    return found


def _owning_first(state: WeavingState, rule: Symmetric) -> tuple[str, ...]:
    """The two keys; rows stay where the first leads."""
    return tuple(sorted(rule.symmetric, key=lambda key: not state.plan.promise.is_owning(rule.table, key)))
