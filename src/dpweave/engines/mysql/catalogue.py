"""What MySQL and MariaDB say about tables, columns and keys of a database. No row is read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpweave.engines.catalogue_rows import DeclaredKeys
from dpweave.engines.mysql.connection import run
from dpweave.engines.mysql.types import type_of_mysql
from dpweave.schema.database import Column

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from dpweave.schema.database import Database

_TABLES = """
SELECT table_name, table_type, engine FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY table_name
"""
_COLUMNS = """
SELECT table_name, column_name, column_type, is_nullable FROM information_schema.columns
WHERE table_schema = DATABASE() ORDER BY table_name, ordinal_position
"""
_INDEXES = """
SELECT table_name, index_name, column_name, sub_part FROM information_schema.statistics
WHERE table_schema = DATABASE() AND non_unique = 0 ORDER BY table_name, index_name, seq_in_index
"""
_FOREIGN = """
SELECT table_name, constraint_name, column_name, referenced_table_schema = DATABASE(), referenced_table_name,
  referenced_column_name FROM information_schema.key_column_usage
WHERE table_schema = DATABASE() AND referenced_table_name IS NOT NULL
ORDER BY table_name, constraint_name, ordinal_position
"""
_CHECKS = {
    True: """
SELECT table_name, constraint_name, check_clause FROM information_schema.check_constraints
WHERE constraint_schema = DATABASE() ORDER BY table_name, constraint_name
""",
    False: """
SELECT t.table_name, c.constraint_name, c.check_clause FROM information_schema.check_constraints c
JOIN information_schema.table_constraints t
  ON t.constraint_schema = c.constraint_schema AND t.constraint_name = c.constraint_name
WHERE c.constraint_schema = DATABASE() AND t.constraint_type = 'CHECK' ORDER BY t.table_name, c.constraint_name
""",
}
"""By whether the server is a MariaDB, where a name of a check belongs to its table."""
STORED = ("BASE TABLE", "SYSTEM VERSIONED")
"""What the catalogue calls tables whose rows are stored."""


@dataclass(frozen=True)
class Catalogue:
    """Tables and keys, and how the server spells the type of each column."""

    database: Database
    spelled: Mapping[tuple[str, str], str]
    engines: Mapping[str, str]
    """The storage engine of each table."""
    left_out: tuple[str, ...]
    """CHECK constraints, keys that lead to other databases, and views, in words."""
    views: frozenset[str]


def reflect_mysql(connection: Any, *, mariadb: bool, views: Collection[str] = ()) -> Catalogue:
    """Read the catalogue of the current database; ``views`` are taken for tables."""
    listed = run(connection, _TABLES)
    stored = {_given(name): engine or "" for name, kind, engine in listed if kind in STORED}
    viewed = frozenset(_given(name) for name, kind, _ in listed if kind == "VIEW")
    taken = [*stored, *(v for v in views if v in viewed)]
    checks = [(_given(t), name, clause or "") for t, name, clause in run(connection, _CHECKS[mariadb])]
    json = {(t, c) for t, c in map(_json_column, checks) if c}
    columns: dict[tuple[str, str], list[Column]] = {("", name): [] for name in taken}
    spelled = {}
    for table, name, kind, nullable in run(connection, _COLUMNS):
        place = _given(table), _given(name)
        if place[0] in taken:
            spelled[place] = kind or ""
            found = type_of_mysql(kind or "", is_json=place in json)
            columns["", place[0]].append(Column(place[1], found, nullable=nullable == "YES"))
    keys, left = DeclaredKeys(), []
    for table, index, names in _indexes(connection):
        if table in stored:
            if index == "PRIMARY":
                keys.primary["", table] = names
            else:
                keys.add_unique(("", table), names)
    for table, names, target, target_names in _foreign(connection):
        if target in stored and table in stored:
            keys.add_foreign(("", table), names, ("", target), target_names)
        elif table in stored:
            left.append(f"{table}: key ({', '.join(names)}) to a table of another database")
    left += [f"{t}: CHECK ({clause})" for t, _, clause in checks if not _json_column((t, "", clause))[1]]
    left += [f"view {name}" for name in sorted(viewed.difference(taken))]
    return Catalogue(keys.database(columns, default=""), spelled, stored, tuple(left), viewed)


def _given(name: str | None) -> str:
    return name or ""


def _json_column(check: tuple[str, str | None, str]) -> tuple[str, str]:
    """Return table and column where a check says that the column is JSON: MariaDB has no type of that name."""
    found = re.fullmatch(r"json_valid\(`((?:[^`]|``)+)`\)", check[2])
    return check[0], found[1].replace("``", "`") if found else ""


def _indexes(connection: Any) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Unique indexes over whole columns; those over expressions, or over how texts begin, are left out."""
    found: dict[tuple[str, str], list[str | None]] = {}
    for table, index, column, part in run(connection, _INDEXES):
        found.setdefault((_given(table), _given(index)), []).append(None if part else column)
    for (table, index), columns in found.items():
        names = tuple(c for c in columns if c is not None)
        if len(names) == len(columns):
            yield table, index, names


def _foreign(connection: Any) -> Iterator[tuple[str, tuple[str, ...], str, tuple[str, ...]]]:
    """Foreign keys; the target is empty where it lies in another database."""
    found: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for table, name, column, here, target, target_column in run(connection, _FOREIGN):
        there = _given(target) if here == "1" else ""
        found.setdefault((_given(table), _given(name)), []).append((_given(column), there, _given(target_column)))
    for (table, _), parts in found.items():
        yield table, tuple(p[0] for p in parts), parts[0][1], tuple(p[2] for p in parts)
