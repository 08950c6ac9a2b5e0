"""The model's types as Arrow types: what the codec writes, what the sinks load and what sources hand over."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dpweave.schema.database import Table, Type

_PLAIN = {
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "text": pa.string(),
    "uuid": pa.string(),
    "json": pa.string(),
    "enum": pa.string(),
    "array": pa.string(),
    "unknown": pa.string(),
    "bytes": pa.binary(),
}
_INTEGERS = {
    (bits, signed): getattr(pa, f"{'' if signed else 'u'}int{bits}")()
    for bits in (8, 16, 32, 64)
    for signed in (True, False)
}

WIDEST_DECIMAL = (38, 9)
"""Precision and scale of a decimal whose engine does not bound them (PostgreSQL's bare
``numeric``), or far beyond Arrow's.
"""
WIDEST = 76
"""Digits that Arrow's widest decimal has."""


def arrow_type(type: Type) -> pa.DataType:  # noqa: A002 - the model's word
    """Return the Arrow type of a column's values.

    UUID, JSON, enum and array values travel as text; timestamps count microseconds, with zone UTC or none.

    >>> arrow_type(Type.parse("decimal(10,2)")), arrow_type(Type.parse("timestamptz"))
    (Decimal128Type(decimal128(10, 2)), TimestampType(timestamp[us, tz=UTC]))
    """
    match type.kind:
        case "integer":
            return _INTEGERS[type.bits or 64, type.signed]
        case "float":
            return pa.float32() if type.bits in (16, 32) else pa.float64()
        case "decimal":
            precision, scale = decimal_size(type)
            return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
        case "timestamp":
            return pa.timestamp("us", "UTC" if type.zone else None)
        case kind:
            return _PLAIN[kind]


def arrow_schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of a whole table, columns in order."""
    return pa.schema([pa.field(c.name, arrow_type(c.type), nullable=True) for c in table.columns])


def decimal_size(type: Type) -> tuple[int, int]:  # noqa: A002
    """Return precision and scale, filled in where the engine leaves them open."""
    if type.precision is None or type.precision > WIDEST:
        return WIDEST_DECIMAL
    return type.precision, type.scale or 0


def type_of_arrow(arrow: Any) -> Type:
    """Return the model's type of an Arrow type.

    A dictionary is its value type and not an enum: a data frame's categories are read off its rows, which are private.

    >>> str(type_of_arrow(pa.dictionary(pa.int8(), pa.string()))), str(type_of_arrow(pa.timestamp("ns")))
    ('text', 'timestamp')
    """
    kinds = pa.types
    if isinstance(arrow, pa.BaseExtensionType):
        named = {"arrow.uuid": "uuid", "arrow.json": "json"}.get(arrow.extension_name)
        return Type(named) if named else type_of_arrow(arrow.storage_type)
    if kinds.is_dictionary(arrow) or kinds.is_run_end_encoded(arrow):
        return type_of_arrow(arrow.value_type)
    if kinds.is_integer(arrow):
        return Type("integer", bits=arrow.bit_width, signed=kinds.is_signed_integer(arrow))
    if kinds.is_floating(arrow):
        return Type("float", bits=max(arrow.bit_width, 32))
    if kinds.is_decimal(arrow):
        return Type("decimal", precision=arrow.precision, scale=arrow.scale)
    if kinds.is_timestamp(arrow):
        return Type("timestamp", zone=arrow.tz is not None)
    tests = {
        "boolean": (kinds.is_boolean,),
        "date": (kinds.is_date,),
        "time": (kinds.is_time,),
        "text": (kinds.is_string, kinds.is_large_string, kinds.is_string_view),
        "bytes": (kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view, kinds.is_fixed_size_binary),
        "array": (
            kinds.is_list,
            kinds.is_large_list,
            kinds.is_fixed_size_list,
            kinds.is_list_view,
            kinds.is_large_list_view,
        ),
    }
    return next(
        (Type(kind) for kind, is_kind in tests.items() if any(test(arrow) for test in is_kind)), Type("unknown")
    )
