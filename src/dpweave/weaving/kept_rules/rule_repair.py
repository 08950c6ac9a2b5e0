"""Woven rows are made to obey the rules of a plan.

This is post-processing. What had to change is counted, so that the report can say what a rule cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.plan.rules import (
    Allowed,
    Constraint,
    Determined,
    Equal,
    Exactly,
    NeverBack,
    Ordered,
    Symmetric,
    settling_order,
)
from dpweave.weaving.kept_rules.declared_rules import breaking, elsewhere, mend, off_count, off_pairs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from dpweave.arrays import IntArray
    from dpweave.schema.database import Database


def obey(
    rules: Sequence[Constraint],
    tables: dict[str, pa.Table],
    links: Mapping[tuple[str, str], IntArray],
    database: Database,
    *,
    settled: dict[str, dict[tuple[Any, ...], Any]] | None = None,
) -> dict[str, int]:
    """Make a database keep all rules, in place; return how many rows each of them had to change.

    Values that may not go together are taken from rows whose values may.
    A dependent value gives way to the commonest one of its group. A row whose two values stand the wrong way round
    swaps them. Then values are only ever raised, up to what must not be above them, until nothing is left to raise:
    this ends, since no value passes the largest one there was. ``settled`` holds, by rule, what dependent values of
    earlier rows are; rows that are new follow it and add to it.
    """
    # Those on links are kept while rows are wired, and order when all else is done.
    rules = [r for r in rules if not isinstance(r, Exactly | Equal | Symmetric | NeverBack)]
    changed = dict.fromkeys(map(str, rules), 0)
    ordered = [r for r in rules if isinstance(r, Ordered)]
    allowed = [r for r in rules if isinstance(r, Allowed)]
    for name in dict.fromkeys(r.table for r in allowed):
        changed |= mend([r for r in allowed if r.table == name], tables)
    for dependence in settling_order(rules):
        known = {} if settled is None else settled.setdefault(str(dependence), {})
        changed[str(dependence)] += _settle(dependence, tables, known)
    for rule in ordered:
        if rule.key is None:
            changed[str(rule)] += _swap(rule, tables)
    busy = True
    while busy:
        raised = {str(r): _raise(r, tables, links, database) for r in ordered}
        for name, rows in raised.items():
            changed[name] += rows
        busy = any(raised.values())
    return changed


def broken(
    rule: Constraint,
    tables: Mapping[str, pa.Table],
    links: Mapping[tuple[str, str], IntArray],
    database: Database,
) -> int:
    """Count the rows that break a rule, or the owners whose rows do; nothing is changed.

    Rules on the order of rows have their own (:func:`dpweave.weaving.kept_rules.never_back.going_back`).
    """
    if isinstance(rule, Allowed):
        return int(breaking(rule, tables).sum())
    if isinstance(rule, Equal):
        return int(elsewhere(rule, links, database)[0].sum())
    if isinstance(rule, Symmetric):
        return off_pairs(rule, links)
    if isinstance(rule, Exactly):
        return off_count(rule, tables, links, database)
    if isinstance(rule, NeverBack):
        raise TypeError(f"{rule} is checked by going_back")
    copy = dict(tables)
    return _settle(rule, copy, {}) if isinstance(rule, Determined) else _raise(rule, copy, links, database)


def _swap(rule: Ordered, tables: dict[str, pa.Table]) -> int:
    table = tables[rule.table]
    lower, upper = table[rule.lower].combine_chunks(), table[rule.upper].combine_chunks()
    wrong = _above(lower, upper)
    table = _set(table, rule.lower, _where(wrong, upper, lower))
    tables[rule.table] = _set(table, rule.upper, _where(wrong, lower, upper))
    return int(wrong.sum())


def _raise(
    rule: Ordered, tables: dict[str, pa.Table], links: Mapping[tuple[str, str], IntArray], database: Database
) -> int:
    table = tables[rule.table]
    upper = table[rule.upper].combine_chunks()
    if rule.key is None:
        lower = table[rule.lower].combine_chunks()
    else:
        target = database[rule.table].key[rule.key].target
        lower = _take(tables[target][rule.lower].combine_chunks(), links[rule.table, rule.key])
    wrong = _above(lower, upper)
    tables[rule.table] = _set(table, rule.upper, _where(wrong, lower, upper))
    return int(wrong.sum())


def _set(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values.cast(table.schema.field(name).type))


def _above(lower: pa.Array, upper: pa.Array) -> np.ndarray[Any, Any]:
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(pc.greater(lower, upper.cast(lower.type)), False).to_numpy(zero_copy_only=False))


def _where(mask: np.ndarray[Any, Any], yes: pa.Array, no: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(pa.array(mask), yes.cast(no.type), no)


def _take(values: pa.Array, at: IntArray) -> pa.Array:
    import pyarrow as pa

    return values.take(pa.array(at, pa.int64(), mask=at < 0))


def _settle(rule: Determined, tables: dict[str, pa.Table], settled: dict[tuple[Any, ...], Any]) -> int:
    import pyarrow as pa

    table = tables[rule.table]
    groups: dict[tuple[Any, ...], dict[Any, int]] = {}
    keys = list(zip(*(table[c].to_pylist() for c in rule.columns), strict=True))
    values = table[rule.dependent].to_pylist()
    for key, value in zip(keys, values, strict=True):
        seen = groups.setdefault(key, {})
        seen[value] = seen.get(value, 0) + 1
    for key, seen in groups.items():
        settled.setdefault(key, max(seen, key=lambda v: (seen[v], str(v))))
    made = [settled[key] for key in keys]
    tables[rule.table] = _set(table, rule.dependent, pa.array(made, table.schema.field(rule.dependent).type))
    return sum(a != b for a, b in zip(made, values, strict=True))
