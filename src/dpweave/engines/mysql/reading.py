"""How each stored type is read: as SQL whose result is total, and compared byte by byte.

A text of MySQL has a collation. By the usual ones case, accents and trailing blanks mean nothing, so that grouping and
joining would merge spellings, and one row would decide under which of them all others count. So every text is read as
the bytes of its characters in UTF-8, which no collation touches. What is no date of the calendar, as '0000-00-00' or
the 30th of February, is null, and so is a time before 0 or from 24 o'clock on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpweave.engines.source_base import AS_TEXT

if TYPE_CHECKING:
    from dpweave.schema.database import Type

TEXTS = frozenset({"text", *AS_TEXT})
_AS_THEY_ARE = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "json")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_SPELLED = ("uuid", "inet4", "inet6")


def backquoted(name: str) -> str:
    """Quote an identifier in a session without ANSI_QUOTES.

    >>> backquoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def can_read(stored: Type, declared: Type) -> bool:
    """Whether a column of one type can be read as another, whatever it holds."""
    if declared.kind in TEXTS:
        return True
    if stored.kind == declared.kind == "integer":
        return (declared.signed or not stored.signed) and _width(stored) <= _width(declared)
    pairs = ({"date", "timestamp"}, {"timestamp"}, {"boolean"}, {"date"}, {"time"}, {"bytes"})
    if {stored.kind, declared.kind} in pairs:
        return True
    if declared.kind == "float":
        return stored.kind in ("integer", "decimal", "float") and (declared.bits == 64 or stored == declared)
    if stored.kind == "boolean":  # BOOLEAN is short for TINYINT(1), which holds other numbers too
        return declared.kind == "integer" and declared.signed
    return stored == declared


def _width(type: Type) -> int:  # noqa: A002
    return (type.bits or 64) - type.signed


def read_as(column: str, spelled: str, stored: Type, declared: Type) -> str:
    """Return the SQL that reads a quoted column, whose type the catalogue spells so, in the declared type."""
    name = spelled.split("(", maxsplit=1)[0].split(" ", maxsplit=1)[0].lower()
    if declared.kind in TEXTS:
        return _text(column, name, stored)
    match stored.kind:
        case "boolean":
            return f"({column} <> 0)" if declared.kind == "boolean" else f"({column} + 0)"
        case "integer" if name in ("bit", "year"):
            return f"({column} + 0{'E0' * (declared.kind == 'float')})"
        case "float" | "integer" | "decimal" if declared.kind == "float":
            return f"({column} + 0E0)"  # the server shows six digits of a FLOAT
        case "date" | "timestamp":
            kind = "DATE" if declared.kind == "date" else "DATETIME(6)"
            return f"CASE WHEN FROM_DAYS(TO_DAYS({column})) = DATE({column}) THEN CAST({column} AS {kind}) END"
        case "time":
            return f"CASE WHEN {column} >= TIME('00:00:00') AND {column} < TIME('24:00:00') THEN {column} END"
        case _:
            return column


def _text(column: str, name: str, stored: Type) -> str:
    if name in _BYTES:
        return column
    if name in _AS_THEY_ARE:
        return f"CAST(CONVERT({column} USING utf8mb4) AS BINARY)"
    if name in _SPELLED or stored.kind in ("integer", "decimal", "date", "time", "timestamp", "boolean"):
        return f"CAST(CAST({column}{' + 0' * (name == 'bit')} AS CHAR CHARACTER SET utf8mb4) AS BINARY)"
    if stored.kind == "float":
        return f"CAST(CAST({column} + 0E0 AS CHAR CHARACTER SET utf8mb4) AS BINARY)"
    return f"CAST(HEX({column}) AS BINARY)"  # points and other things
