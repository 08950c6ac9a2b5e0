"""Types of DuckDB: read from its catalogue, and written in statements."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dpweave.engines.catalogue_rows import sizes_of_type
from dpweave.engines.ddl import literal
from dpweave.schema.arrow_types import decimal_size
from dpweave.schema.database import Type

if TYPE_CHECKING:
    from dpweave.schema.database import Column


def duckdb_type(column: Column, type: Type) -> str:  # noqa: A002, ARG001
    """Spell a type for DuckDB."""
    match type.kind:
        case "integer":
            return ("" if type.signed else "U") + {8: "TINYINT", 16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}[
                type.bits or 64
            ]
        case "float":
            return "FLOAT" if type.bits == 32 else "DOUBLE"
        case "decimal":
            precision, scale = decimal_size(type)
            return f"DECIMAL({precision}, {scale})" if precision <= 38 else "DOUBLE"
        case "timestamp":
            return "TIMESTAMPTZ" if type.zone else "TIMESTAMP"
        case "enum":
            return f"ENUM ({', '.join(literal(v) for v in type.values)})"
        case kind:
            other = {
                "bytes": "BLOB",
                "json": "JSON",
                "array": "VARCHAR[]",
                "uuid": "UUID",
                "text": "VARCHAR",
                "unknown": "VARCHAR",
            }
            return other.get(kind, kind.upper())


_QUOTED = re.compile(r"'((?:[^']|'')*)'")


def type_of_duckdb(text: str) -> Type:
    """Return the model's type of a DuckDB type name.

    >>> str(type_of_duckdb("DECIMAL(10,2)")), str(type_of_duckdb("INTEGER[]")), str(type_of_duckdb("ENUM('a', 'b')"))
    ('decimal(10,2)', 'array', 'enum("a","b")')
    """
    if text.endswith("]"):
        return Type("array")
    name = text.split("(", maxsplit=1)[0].strip().upper()
    if name == "ENUM":
        return Type("enum", values=tuple(v.replace("''", "'") for v in _QUOTED.findall(text)))
    if name == "DECIMAL":
        precision, scale = sizes_of_type(text)
        return Type("decimal", precision=precision or 18, scale=3 if precision is None else scale or 0)
    return _DUCKDB.get(name, Type("unknown"))


_DUCKDB = {
    **{n: Type("integer", bits=b) for n, b in (("TINYINT", 8), ("SMALLINT", 16), ("INTEGER", 32), ("BIGINT", 64))},
    **{
        n: Type("integer", bits=b, signed=False)
        for n, b in (("UTINYINT", 8), ("USMALLINT", 16), ("UINTEGER", 32), ("UBIGINT", 64))
    },
    "HUGEINT": Type("decimal", precision=38, scale=0),
    "UHUGEINT": Type("decimal", precision=38, scale=0),
    "FLOAT": Type("float", bits=32),
    "DOUBLE": Type("float", bits=64),
    "BOOLEAN": Type("boolean"),
    "DATE": Type("date"),
    "TIME": Type("time"),
    "TIME_NS": Type("time"),
    "TIME WITH TIME ZONE": Type("time"),
    **{n: Type("timestamp") for n in ("TIMESTAMP", "DATETIME", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")},
    "TIMESTAMP WITH TIME ZONE": Type("timestamp", zone=True),
    "VARCHAR": Type("text"),
    "UUID": Type("uuid"),
    "BLOB": Type("bytes"),
    "JSON": Type("json"),
}
