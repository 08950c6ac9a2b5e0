"""What SQLite says about tables, columns and keys. No row is read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dpweave.engines.catalogue_rows import DeclaredKeys, catalogue_rows
from dpweave.engines.sqlite.types import type_of_sqlite
from dpweave.schema.database import Column, Database

if TYPE_CHECKING:
    from collections.abc import Sequence


def reflect_sqlite(connection: Any) -> Database:
    """Read SQLite's pragmas. Names are matched without regard to case, as SQLite does."""
    tables = [
        (name, bool(without_rowid), bool(strict))
        for name, without_rowid, strict in catalogue_rows(
            connection,
            "SELECT l.name, l.wr, l.strict FROM pragma_table_list AS l JOIN sqlite_master AS m ON m.name = l.name "
            "WHERE l.schema = 'main' AND l.type = 'table' AND l.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
            "AND m.type = 'table' ORDER BY m.rowid",
        )
    ]
    spelled = {name.lower(): name for name, _, _ in tables}
    columns: dict[tuple[str, str], list[Column]] = {}
    keys = DeclaredKeys()
    for name, without_rowid, _ in tables:
        here = ("main", name)
        described = catalogue_rows(
            connection,
            'SELECT name, type, "notnull", pk FROM pragma_table_xinfo(?) WHERE hidden <> 1 ORDER BY cid',
            (name,),
        )
        primary = [(pk, column) for column, _, _, pk in described if pk]
        keys.primary[here] = tuple(column for _, column in sorted(primary))
        rowid = len(primary) == 1 and not without_rowid
        columns[here] = [
            Column(
                column,
                type_of_sqlite(text),
                nullable=not (notnull or (pk and (without_rowid or (rowid and text.upper() == "INTEGER")))),
            )
            for column, text, notnull, pk in described
        ]
    for name, _, _ in tables:
        here = ("main", name)
        for index, _origin in catalogue_rows(
            connection,
            'SELECT name, origin FROM pragma_index_list(?) WHERE "unique" AND NOT partial ORDER BY seq DESC',
            (name,),
        ):
            names = tuple(
                n
                for (n,) in catalogue_rows(connection, "SELECT name FROM pragma_index_info(?) ORDER BY seqno", (index,))
            )
            if None not in names:
                keys.add_unique(here, names)
        found: dict[int, list[tuple[str, str, str | None]]] = {}
        for number, target, column, target_column in catalogue_rows(
            connection,
            'SELECT id, "table", "from", "to" FROM pragma_foreign_key_list(?) ORDER BY id DESC, seq',
            (name,),
        ):
            found.setdefault(number, []).append((target, column, target_column))
        for parts in found.values():
            target = spelled.get(parts[0][0].lower(), parts[0][0])
            there = ("main", target)
            names = tuple(_spelling(column, columns[here]) for _, column, _ in parts)
            implicit = keys.primary.get(there, ()) if parts[0][2] is None else None
            target_names = implicit or tuple(_spelling(c or "", columns.get(there, ())) for _, _, c in parts)
            keys.add_foreign(here, names, there, target_names)
    return keys.database(columns, default="main")


def left_out_by_sqlite(connection: Any) -> tuple[str, ...]:
    """Return tables with CHECK constraints, and views, in words. SQLite knows
    constraints only as the text of statements.
    """
    made = catalogue_rows(
        connection, "SELECT type, name, sql FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY rowid"
    )
    checks = ((name, len(_CHECK.findall(_QUOTED.sub("", sql or "")))) for kind, name, sql in made if kind == "table")
    found = tuple(f"{name}: {count} CHECK" for name, count in checks if count)
    return (*found, *(f"view {name}" for kind, name, _ in made if kind == "view"))


_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/""", re.DOTALL)
_CHECK = re.compile(r"\bCHECK\s*\(", re.IGNORECASE)


def _spelling(name: str, columns: Sequence[Column]) -> str:
    return next((c.name for c in columns if c.name.lower() == name.lower()), name)
