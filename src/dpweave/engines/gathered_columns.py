"""Gathered columns in an engine: joined to the rows of their table, one number for each key.

The slow and plain twin is :func:`dpweave.schema.gathered.gathered_column`; tests hold both together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpweave.schema.gathered import steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import ibis

    from dpweave.schema.database import Column, Database, ForeignKey

KEY, FOUND = "_dpweave_key_{}", "_dpweave_found"


def with_gathered(
    rows: ibis.Table, columns: Sequence[Column], database: Database, table_of: Callable[[str], ibis.Table]
) -> ibis.Table:
    """Add ``columns`` to the ``rows`` of their table, which hold what is led to. No row is lost or doubled."""
    import ibis

    for column in columns:
        gathered = column.gathered
        assert gathered is not None, "others are held by their tables"
        key = database[gathered.table].key[gathered.key]
        found = _counted(key, *steps(database, gathered), gathered.table, gathered.value, table_of)
        on = [rows[target] == found[KEY.format(i)] for i, target in enumerate(key.target_columns)]
        number = ibis.coalesce(found[FOUND], 0)
        value = number.cast("int64") if gathered.column is None else number > 0
        own = {name: rows[name] for name in rows.columns}
        rows = rows.left_join(found, on).select(*(v.name(c) for c, v in own.items()), value.name(column.name))
    return rows


def _counted(
    key: ForeignKey,
    path: Sequence[ForeignKey],
    last: Column | None,
    table: str,
    value: object,
    table_of: Callable[[str], ibis.Table],
) -> ibis.Table:
    """Count rows of a table by where they lead: all of them, or those from which a ``path`` leads to a ``value``."""
    names = [table, *(k.target for k in path)]
    at = table_of(names[-1])
    if last is not None:
        at = at.filter(at[last.name] == value)
    for step, name in zip(reversed(path), reversed(names[:-1]), strict=True):
        before = table_of(name)
        pairs = zip(step.columns, step.target_columns, strict=True)
        at = before.semi_join(at, [before[c] == at[t] for c, t in pairs])
    keys = {KEY.format(i): at[c] for i, c in enumerate(key.columns)}
    return at.group_by(**keys).aggregate(**{FOUND: at.count()})
