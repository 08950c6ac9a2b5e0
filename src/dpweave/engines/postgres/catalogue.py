"""What PostgreSQL says about tables, columns and keys. No row is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpweave.engines.catalogue_rows import DeclaredKeys, catalogue_rows
from dpweave.engines.postgres.types import type_of_postgres
from dpweave.schema.database import Column, Database

if TYPE_CHECKING:
    from collections.abc import Collection

# ruff: noqa: S608 - statements are built from constants and quoted names


_SYSTEM = "n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') AND n.nspname NOT LIKE 'pg\\_temp\\_%'"


_POSTGRES_TABLES = f"""
SELECT c.oid, n.nspname, c.relname, c.relkind IN ('v', 'm')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'f', 'v', 'm') AND NOT c.relispartition AND {_SYSTEM} ORDER BY c.oid
"""


_POSTGRES_COLUMNS = """
WITH RECURSIVE base AS (
  SELECT a.attrelid, a.attnum, a.attname, a.attnotnull, a.atttypmod AS typmod, t.oid AS typ FROM pg_attribute a
  JOIN pg_type t ON t.oid = a.atttypid WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attrelid = ANY(%s)
  UNION ALL
  SELECT b.attrelid, b.attnum, b.attname, b.attnotnull OR t.typnotnull, t.typtypmod, t.typbasetype FROM base b
  JOIN pg_type t ON t.oid = b.typ WHERE t.typtype = 'd'
)
SELECT b.attrelid, b.attname, t.typname, t.typtype, t.typcategory, b.typmod, b.attnotnull,
  ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder)
FROM base b JOIN pg_type t ON t.oid = b.typ WHERE t.typtype <> 'd' ORDER BY b.attrelid, b.attnum
"""


_POSTGRES_KEYS = """
SELECT k.conrelid, k.contype, k.confrelid,
  ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY u(n, i)
        JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.n ORDER BY i),
  ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY u(n, i)
        JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.n ORDER BY i)
FROM pg_constraint k WHERE k.contype IN ('p', 'u', 'f') AND k.conrelid = ANY(%s) AND k.conparentid = 0 ORDER BY k.oid
"""


_POSTGRES_INDEXES = """
SELECT x.indrelid, ARRAY(SELECT a.attname::text FROM unnest(x.indkey) WITH ORDINALITY u(n, i)
  JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = u.n WHERE i <= x.indnkeyatts ORDER BY i)
FROM pg_index x
WHERE x.indisunique AND x.indisvalid AND x.indpred IS NULL AND x.indexprs IS NULL AND x.indrelid = ANY(%s)
ORDER BY x.indexrelid
"""


def reflect_postgres(connection: Any, *, schema: str | None = None, views: Collection[str] = ()) -> Database:
    """Read PostgreSQL's system catalogue; tables outside the default schema carry its name.

    Every schema counts, or only the one that is named. Views count where they are asked for.
    """
    default = catalogue_rows(connection, "SELECT coalesce(current_schema(), 'public')")[0][0]
    tables = {
        oid: (place, name)
        for oid, place, name, is_view in catalogue_rows(connection, _POSTGRES_TABLES)
        if schema in (None, place) and (not is_view or (name if place == default else f"{place}.{name}") in views)
    }
    oids = (list(tables),)
    columns: dict[tuple[str, str], list[Column]] = {place: [] for place in tables.values()}
    for oid, name, kind, form, category, typmod, notnull, labels in catalogue_rows(connection, _POSTGRES_COLUMNS, oids):
        found = type_of_postgres(
            _text(kind), form=_text(form), category=_text(category), typmod=typmod, labels=tuple(labels)
        )
        columns[tables[oid]].append(Column(name, found, nullable=not notnull))
    keys = DeclaredKeys()
    for oid, kind, target, names, target_names in catalogue_rows(connection, _POSTGRES_KEYS, oids):
        match _text(kind):
            case "p":
                keys.primary[tables[oid]] = tuple(names)
            case "u":
                keys.add_unique(tables[oid], tuple(names))
            case _ if target in tables:  # not where it lies in another schema than the one that is meant
                keys.add_foreign(tables[oid], tuple(names), tables[target], tuple(target_names))
    for oid, names in catalogue_rows(connection, _POSTGRES_INDEXES, oids):
        keys.add_unique(tables[oid], tuple(names))
    return keys.database(columns, default=default)


def left_out_by_postgres(connection: Any, *, schema: str | None = None, views: Collection[str] = ()) -> tuple[str, ...]:
    """Return CHECK constraints and views that were not asked for, in words."""
    default = catalogue_rows(connection, "SELECT coalesce(current_schema(), 'public')")[0][0]
    checks = catalogue_rows(
        connection,
        "SELECT n.nspname, c.relname, pg_get_constraintdef(k.oid) FROM pg_constraint k JOIN pg_class c"
        " ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
        f" WHERE k.contype = 'c' AND NOT c.relispartition AND {_SYSTEM} ORDER"
        " BY k.oid",
    )
    found = catalogue_rows(
        connection,
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        f"WHERE c.relkind IN ('v', 'm') AND {_SYSTEM} ORDER BY c.oid",
    )
    left = (
        name
        for place, name in found
        if schema in (None, place) and (name if place == default else f"{place}.{name}") not in views
    )
    return (
        *(f"{table}: {text}" for place, table, text in checks if schema in (None, place)),
        *(f"view {name}" for name in left),
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
