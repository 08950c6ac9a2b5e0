"""Types of PostgreSQL: read from its catalogue, and written in statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpweave.schema.database import Type

if TYPE_CHECKING:
    from dpweave.schema.database import Column


def postgres_type(column: Column, type: Type) -> str:  # noqa: A002, ARG001
    """Spell a type for PostgreSQL; enums are spelled by the writer, which creates them."""
    match type.kind:
        case "integer":
            if type.signed:
                return {8: "smallint", 16: "smallint", 32: "integer", 64: "bigint"}[type.bits or 64]
            return {8: "smallint", 16: "integer", 32: "bigint", 64: "numeric(20, 0)"}[type.bits or 64]
        case "float":
            return "real" if type.bits == 32 else "double precision"
        case "decimal":
            return "numeric" if type.precision is None else f"numeric({type.precision}, {type.scale or 0})"
        case "timestamp":
            return "timestamptz" if type.zone else "timestamp"
        case "text":
            return f"varchar({type.length})" if type.length else "text"
        case kind:
            return {"bytes": "bytea", "array": "text[]", "unknown": "text", "json": "json"}.get(kind, kind)


def type_of_postgres(name: str, *, form: str, category: str, typmod: int, labels: tuple[str, ...]) -> Type:
    """Return the model's type of a PostgreSQL type, from its row in ``pg_type`` and the column's modifier."""
    if form == "e":
        return Type("enum", values=labels)
    if category == "A":
        return Type("array")
    if name == "numeric":
        if typmod < 0:
            return Type("decimal")
        precision, scale = ((typmod - 4) >> 16) & 0xFFFF, (typmod - 4) & 0x7FF
        rounded = max(2048 - scale, 0) if scale >= 1024 else 0  # numeric(2,-3) holds thousands
        return Type("decimal", precision=precision + rounded, scale=0 if rounded else scale)
    if name in {"varchar", "bpchar"}:
        return Type("text", length=typmod - 4 if typmod > 4 else None)
    return _POSTGRES.get(name, Type("text") if category == "S" else Type("unknown"))


_POSTGRES = {
    "bool": Type("boolean"),
    "int2": Type("integer", bits=16),
    "int4": Type("integer", bits=32),
    "int8": Type("integer", bits=64),
    "oid": Type("integer", bits=64),
    "float4": Type("float", bits=32),
    "float8": Type("float", bits=64),
    "money": Type("unknown"),
    "date": Type("date"),
    "time": Type("time"),
    "timetz": Type("time"),
    "timestamp": Type("timestamp"),
    "timestamptz": Type("timestamp", zone=True),
    "uuid": Type("uuid"),
    "bytea": Type("bytes"),
    "json": Type("json"),
    "jsonb": Type("json"),
}
