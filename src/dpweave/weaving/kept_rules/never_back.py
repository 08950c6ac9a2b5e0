"""Rows of one owner whose column never goes back while time goes on.

Times and values of an owner's rows stay; which row has which changes. Times move between the rows, so that what other
columns say together is as before. Where another rule or a key holds the times, values move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpweave.plan.rule_checks import order_of
from dpweave.plan.rules import NeverBack, Ordered, ordered_columns
from dpweave.schema.domain import Categories

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from dpweave.arrays import IntArray
    from dpweave.plan.plan import Plan
    from dpweave.plan.rules import Constraint


def keep_from_going_back(
    plan: Plan, rules: Sequence[Constraint], tables: dict[str, pa.Table], links: Mapping[tuple[str, str], IntArray]
) -> dict[str, int]:
    """Let rows keep the rules that say so, in place; returns how many rows changed, by rule."""
    changed = {}
    for rule in (r for r in rules if isinstance(r, NeverBack)):
        by, moving = order_of(plan, rule.table), rule.never_back
        assert by is not None
        rows, owner, time, value = _ranked(plan, rule, by, tables, links)
        still, moves = time, value
        if not _is_held(plan, rule.table, by):
            still, moves, moving = value, time, by
        table = tables[rule.table]
        source = np.arange(table.num_rows)
        source[rows] = rows[lined_up(owner, still, moves)]
        column = table[moving].combine_chunks()
        changed[str(rule)] = int((source != np.arange(len(source))).sum())
        tables[rule.table] = table.set_column(table.column_names.index(moving), moving, column.take(source))
    return changed


def going_back(
    plan: Plan, rule: NeverBack, tables: Mapping[str, pa.Table], links: Mapping[tuple[str, str], IntArray]
) -> int:
    """Count rows with an earlier value than one that comes before them, rows at one moment in any order."""
    by = order_of(plan, rule.table)
    assert by is not None
    _, owner, time, value = _ranked(plan, rule, by, tables, links)
    order = np.lexsort((value, time, owner))
    owner, value = owner[order], value[order]
    return int(((owner[1:] == owner[:-1]) & (value[1:] < value[:-1])).sum())


def lined_up(owner: IntArray, still: IntArray, moving: IntArray) -> IntArray:
    """From which row each gets what moves, so that both grow together within each owner; others keep their own.

    >>> lined_up(np.array([0, 0, 0, 1]), np.array([5, 4, 6, 1]), np.array([1, 2, 3, 0])).tolist()
    [1, 0, 2, 3]
    """
    out = np.arange(len(owner))
    out[np.lexsort((moving, still, owner))] = np.lexsort((moving, owner))
    return out


def _is_held(plan: Plan, table: str, by: str) -> bool:
    """Whether something else decides when each row is."""
    schema = plan.database[table]
    led_to = {c for t in plan.database for k in t.foreign_keys if k.target == table for c in k.target_columns}
    rules = [r for r in plan.constraints if isinstance(r, Ordered)]
    below = {r.lower for r in rules if r.key is not None and plan.database[r.table].key[r.key].target == table}
    own = {c for r in rules if r.table == table for c in ordered_columns(r)}
    named = {c for r in plan.constraints if r.table == table for c in (*getattr(r, "columns", ()), _dependent(r))}
    return by in schema.key_columns | led_to | below | own | named


def _dependent(rule: Constraint) -> str:
    return getattr(rule, "dependent", getattr(rule, "column", ""))


def _ranked(
    plan: Plan,
    rule: NeverBack,
    by: str,
    tables: Mapping[str, pa.Table],
    links: Mapping[tuple[str, str], IntArray],
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Rows that have an owner, a time and a value, with all three as whole numbers in their order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = tables[rule.table]
    time, value = (table[c].combine_chunks() for c in (by, rule.never_back))
    owner = links[rule.table, plan.promise.owning[rule.table]].astype(np.int64)
    there = np.asarray(pc.and_(time.is_valid(), value.is_valid()).to_numpy(zero_copy_only=False), dtype=bool)
    rows = np.flatnonzero((owner >= 0) & there)
    domain = plan.table[rule.table].column[rule.never_back].domain
    if isinstance(domain, Categories) and not domain.other:
        place = pc.index_in(value, value_set=pa.array(domain.values, value.type))
    else:
        place = pc.rank(value, tiebreaker="dense")
    ranks = [np.asarray(pc.fill_null(x, 0), dtype=np.int64)[rows] for x in (pc.rank(time, tiebreaker="dense"), place)]
    return rows, owner[rows], ranks[0], ranks[1]
