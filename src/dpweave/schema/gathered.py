"""Gathered columns: what rows of public tables that lead to a public row say of it, such as the genres of a film.

No table holds them. In an engine they are joined to the table (:mod:`dpweave.engines.gathered_columns`); here they are
made of Arrow tables, and their names are checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpweave.errors import SchemaError, nearest
from dpweave.schema.key_lookup import column_of, follow

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dpweave.schema.database import Column, Database, ForeignKey, Gathered

VALUES = ("text", "enum", "uuid", "integer", "boolean", "date")
"""Kinds of columns that can be compared with a value: the same in every engine."""


def steps(database: Database, gathered: Gathered) -> tuple[tuple[ForeignKey, ...], Column | None]:
    """Return the keys to follow from the rows that lead here to the column that is asked, and that column."""
    if gathered.column is None:
        return (), None
    *names, last = gathered.column.split(".")
    at, keys = database[gathered.table], []
    for name in names:
        if name not in at.key:
            raise SchemaError(f"table {at.name!r} has no foreign key {name!r}: {nearest(name, at.key)}")
        keys.append(at.key[name])
        at = database[at.key[name].target]
    if last not in at.stored.column:
        raise SchemaError(f"table {at.name!r} has no column {last!r}: {nearest(last, at.stored.column)}")
    return tuple(keys), at.column[last]


def require_gathered(database: Database, table: str, column: Column, *, public: tuple[str, ...]) -> None:
    """Refuse a gathered column whose rows are not public, do not lead here, or have no such value."""
    gathered = column.gathered
    if gathered is None:
        return
    where = f"the column {column.name!r} of {table!r}"
    if gathered.table not in database or gathered.key not in database[gathered.table].key:
        known = database[gathered.table].key if gathered.table in database else database.names
        name = gathered.key if gathered.table in database else gathered.table
        raise SchemaError(f"{where} is gathered by what is not there, {name!r}: {nearest(name, known)}")
    key = database[gathered.table].key[gathered.key]
    if key.target != table:
        raise SchemaError(f"{where} is gathered by {gathered.table}.{gathered.key}, which leads to {key.target!r}")
    keys, last = steps(database, gathered)
    for name in (table, gathered.table, *(k.target for k in keys)):
        if name not in public:
            raise SchemaError(f"{where} is gathered from {name!r}, which is not public: its rows are private")
    own = {*database[table].key_columns, *(c for u in database[table].unique for c in u)}
    if column.name in own:
        raise SchemaError(f"{where} is gathered and cannot be part of a key")
    if last is None:
        return
    kind = last.type.kind
    text = isinstance(gathered.value, str)
    if kind not in VALUES or text != (kind in ("text", "enum", "uuid")):
        raise SchemaError(
            f"{where} is gathered by a value that does not fit: {gathered.column} is {last.type}; values can be text,"
            " whole numbers, true or false, and dates"
        )


def gathered_column(tables: Mapping[str, pa.Table], database: Database, table: str, column: Column) -> pa.Array:
    """Make one gathered column of a table from Arrow tables."""
    import pyarrow as pa
    import pyarrow.compute as pc

    gathered = column.gathered
    assert gathered is not None, "others are held by their tables"
    at = follow(tables, database, gathered.table, database[gathered.table].key[gathered.key])
    keys, last = steps(database, gathered)
    counts = at >= 0
    if last is not None:
        name, places = gathered.table, np.arange(len(at))
        for key in keys:
            led = np.append(follow(tables, database, name, key), -1)
            name, places = key.target, led[places]
        values = column_of(tables, name, last)
        has = pc.equal(values, pa.scalar(gathered.value, values.type)).fill_null(False).to_numpy(zero_copy_only=False)
        counts &= np.append(has, False)[places]
    rows = np.bincount(at[counts], minlength=tables[table].num_rows)
    return pa.array(rows if last is None else rows > 0)


def with_gathered(tables: Mapping[str, pa.Table], database: Database) -> Mapping[str, pa.Table]:
    """Add gathered columns to tables that lack them."""
    from dpweave.schema.arrow_types import arrow_type

    lacking = {t.name: t for t in database if t.gathered and t.name in tables}
    made = {}
    for name, table in lacking.items():
        rows = tables[name]
        for column in table.gathered:
            if column.name not in rows.column_names:
                values = gathered_column(tables, database, name, column).cast(arrow_type(column.type))
                rows = rows.append_column(column.name, values)
        made[name] = rows
    return {**{name: tables[name] for name in tables}, **made} if made else tables
