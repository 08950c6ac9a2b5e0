"""Types of MySQL and MariaDB: read from their catalogue, and written in statements."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dpweave.engines.catalogue_rows import sizes_of_type
from dpweave.engines.ddl import literal
from dpweave.schema.database import Type

if TYPE_CHECKING:
    from dpweave.schema.database import Column

WIDEST_DECIMAL = (65, 30)
"""Digits that a decimal has at most, and how many of them after the point."""
WIDEST_KEY = 3072
"""Bytes that all columns of a key have at most together."""
WIDEST_ROW = 65_535
"""Bytes that the texts of a row have at most together, but for those that are stored apart."""
CHARACTER = 4
"""Bytes of the longest character."""


def mysql_type(column: Column, type: Type, *, characters: int | None, has_uuid: bool) -> str:  # noqa: A002, ARG001
    """Spell a type for MySQL. Texts have room for so many ``characters``, or are stored apart where that is None."""
    match type.kind:
        case "integer":
            name = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}[type.bits or 64]
            return name if type.signed else f"{name} UNSIGNED"
        case "float":
            return "FLOAT" if type.bits in (16, 32) else "DOUBLE"
        case "decimal":
            precision, scale = (type.precision, type.scale or 0) if type.precision is not None else WIDEST_DECIMAL
            return f"DECIMAL({min(precision, WIDEST_DECIMAL[0])}, {min(scale, WIDEST_DECIMAL[1])})"
        case "time":
            return "TIME(6)"
        case "timestamp":  # a TIMESTAMP of MySQL ends in 2038
            return "DATETIME(6)"
        case "enum":
            return f"ENUM({', '.join(literal(v) for v in type.values)})"
        case "uuid":
            return "UUID" if has_uuid else "CHAR(36)"
        case "bytes":
            return "LONGBLOB" if characters is None else f"VARBINARY({characters})"
        case "boolean" | "date" | "json" as kind:
            return kind.upper()
        case _:
            return "LONGTEXT" if characters is None else f"VARCHAR({characters})"


def type_of_mysql(spelled: str, *, is_json: bool = False) -> Type:
    r"""Return the model's type of a type as the catalogue spells it.

    >>> [str(type_of_mysql(t)) for t in ("tinyint(1)", "int(10) unsigned", "decimal(8,2)", "enum('a','it''s')")]
    ['boolean', 'uint32', 'decimal(8,2)', 'enum("a","it\'s")']
    """
    name = re.split(r"[ (]", spelled, maxsplit=1)[0].lower()
    size, scale = sizes_of_type(spelled)
    if is_json or name == "json":
        return Type("json")
    if spelled == "tinyint(1)" or (name == "bit" and size == 1):  # what BOOLEAN is short for
        return Type("boolean")
    if name == "bit":
        return Type("integer", bits=next(b for b in (8, 16, 32, 64) if (size or 1) <= b), signed=False)
    if name in _INTEGERS:
        return Type("integer", bits=_INTEGERS[name], signed="unsigned" not in spelled)
    if name == "decimal":
        return Type("decimal", precision=size, scale=scale or 0)
    if name == "enum":
        return Type("enum", values=labels(spelled))
    if name in ("char", "varchar"):
        return Type("text", length=size)
    return _MYSQL.get(name, Type("unknown"))


def labels(spelled: str) -> tuple[str, ...]:
    """Return the labels of an enum.

    >>> labels("enum('a,b','it''s','')")
    ('a,b', "it's", '')
    """
    return tuple(found.replace("''", "'") for found in re.findall(r"'((?:[^']|'')*)'", spelled))


_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 32, "int": 32, "bigint": 64, "year": 16}
_MYSQL = {
    "float": Type("float", bits=32),
    "double": Type("float", bits=64),
    "date": Type("date"),
    "time": Type("time"),
    "datetime": Type("timestamp"),
    "timestamp": Type("timestamp", zone=True),
    "uuid": Type("uuid"),
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext", "set"), Type("text")),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), Type("bytes")),
}
