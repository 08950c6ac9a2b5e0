"""Types of SQLite: read from its catalogue, and written in statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpweave.engines.catalogue_rows import NUMBERS, sizes_of_type
from dpweave.engines.ddl import literal, quoted
from dpweave.schema.database import Type

if TYPE_CHECKING:
    from dpweave.schema.database import Column


def sqlite_type(column: Column, type: Type) -> str:  # noqa: A002
    """Spell a type for SQLite so that affinity is right and reflection finds the same type again."""
    match type.kind:
        case "integer":
            widths = {8: "TINYINT", 16: "SMALLINT", 32: "INT4", 64: "INTEGER"}
            return widths[type.bits or 64] if type.signed or type.bits == 64 else f"UINT{type.bits}"
        case "float":
            return "FLOAT4" if type.bits == 32 else "REAL"
        case "decimal":
            return "DECIMAL" if type.precision is None else f"DECIMAL({type.precision}, {type.scale or 0})"
        case "timestamp":
            return "TIMESTAMPTZ" if type.zone else "TIMESTAMP"
        case "text":
            return f"VARCHAR({type.length})" if type.length else "TEXT"
        case "enum":
            return f"TEXT CHECK ({quoted(column.name)} IN ({', '.join(literal(v) for v in type.values)}))"
        case kind:
            return {"bytes": "BLOB", "array": "TEXT", "unknown": "TEXT"}.get(kind, kind.upper())


def type_of_sqlite(text: str) -> Type:
    """Return the model's type of a declared SQLite type, which is free text.

    The name decides where it is a known one, else SQLite's own affinity rules do.

    >>> declared = ("NVARCHAR(160)", "NUMERIC(10,2)", "DATETIME", "BIG INT", "BLOB SUB_TYPE TEXT")
    >>> [str(type_of_sqlite(t)) for t in declared]
    ['text(160)', 'decimal(10,2)', 'timestamp', 'int64', 'text']
    """
    upper = " ".join(text.upper().split())
    name = NUMBERS.sub("", upper).strip()
    precision, scale = sizes_of_type(upper)
    if name in _SQLITE:
        return _SQLITE[name]
    if name in {"DECIMAL", "NUMERIC", "NUMBER", "MONEY", "DEC"}:
        return Type("decimal", precision=precision, scale=None if precision is None else scale or 0)
    if "INT" in name:
        return Type("integer", bits=64)
    if any(word in name for word in ("CHAR", "CLOB", "TEXT", "STRING")):
        return Type("text", length=precision)
    if "BLOB" in name or "BINARY" in name:
        return Type("bytes")
    if any(word in name for word in ("REAL", "FLOA", "DOUB")):
        return Type("float", bits=64)
    return Type("unknown")


_SQLITE = {
    "BOOLEAN": Type("boolean"),
    "BOOL": Type("boolean"),
    "TINYINT": Type("integer", bits=8),
    "SMALLINT": Type("integer", bits=16),
    "INT2": Type("integer", bits=16),
    "INT4": Type("integer", bits=32),
    "MEDIUMINT": Type("integer", bits=32),
    **{f"UINT{bits}": Type("integer", bits=bits, signed=False) for bits in (8, 16, 32)},
    "FLOAT4": Type("float", bits=32),
    "DATE": Type("date"),
    "TIME": Type("time"),
    "DATETIME": Type("timestamp"),
    "TIMESTAMP": Type("timestamp"),
    "TIMESTAMPTZ": Type("timestamp", zone=True),
    "TIMESTAMP WITH TIME ZONE": Type("timestamp", zone=True),
    "DATETIME WITH TIME ZONE": Type("timestamp", zone=True),
    "UUID": Type("uuid"),
    "GUID": Type("uuid"),
    "UNIQUEIDENTIFIER": Type("uuid"),
    "JSON": Type("json"),
    "JSONB": Type("json"),
}
