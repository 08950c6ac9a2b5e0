"""Types of Ibis as types of the schema."""

from __future__ import annotations

from typing import Any

from dpweave.schema.database import Type


def type_of_ibis(dtype: Any) -> Type:
    """Return the model's type of an Ibis type."""
    if dtype.is_integer():
        return Type("integer", bits=dtype.nbytes * 8, signed=dtype.is_signed_integer())
    if dtype.is_floating():
        return Type("float", bits=max(dtype.nbytes * 8, 32))
    if dtype.is_decimal():
        return Type("decimal", precision=dtype.precision, scale=dtype.scale)
    if dtype.is_timestamp():
        return Type("timestamp", zone=dtype.timezone is not None)
    for kind in ("boolean", "date", "time", "uuid", "json", "array"):
        if getattr(dtype, f"is_{kind}")():
            return Type(kind)
    if dtype.is_string():
        return Type("text")
    return Type("bytes") if dtype.is_binary() else Type("unknown")
