"""Values for columns that are not modelled: fresh keys, and text of the same form as what it stands for."""

from __future__ import annotations

import re
import uuid
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.schema.arrow_types import arrow_type

if TYPE_CHECKING:
    import pyarrow as pa

    from dpweave.arrays import IntArray
    from dpweave.schema.database import Column

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
FORMS = (
    (re.compile(r"e_?mail", re.IGNORECASE), ("person", 1, "@example.com")),
    (re.compile(r"phone|mobile|fax", re.IGNORECASE), ("+1-555-", 7, "")),
    (re.compile(r"url|uri|website", re.IGNORECASE), ("https://example.com/", 1, "")),
)
"""What stands before a number, the least number of its digits, and what stands behind it."""


def room(column: Column) -> int | None:
    """How many different values can be made up for a column; None where there is no end to them.

    >>> from dpweave.schema.database import Column, Type
    >>> types = Type("text", length=2), Type("integer", bits=8), Type("uuid")
    >>> tuple(room(Column("x", each)) for each in types)
    (1295, 127, None)
    """
    kind = column.type
    match kind.kind:
        case "integer":
            return int(2 ** ((kind.bits or 64) - kind.signed)) - 1
        case "float":
            return 2**24 if kind.bits == 32 else 2**53
        case "text":
            return None if kind.length is None else len(DIGITS) ** min(kind.length, 12) - 1
        case "decimal":
            return None if kind.precision is None else int(10 ** (kind.precision - (kind.scale or 0))) - 1
        case "date":
            return (date.max - date(2000, 1, 1)).days
        case "time":
            return 24 * 3600
        case "boolean":
            return 2
        case "enum":
            return len(kind.values)
        case "array":
            return 1
        case _:
            return None


def placeholders(
    column: Column, number: IntArray, *, null: np.ndarray[Any, Any], rng: np.random.Generator, unique: bool = False
) -> pa.Array:
    """Return one made-up value for each number; equal numbers give equal values where the type allows for it.

    ``unique`` asks that different numbers give different values, as keys need.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    target = arrow_type(kind)
    most = room(column)
    number = number if most is None or most >= 2**62 else number % max(most, 1)
    count = number + 1
    match kind.kind:
        case "integer":
            return pa.array(count, pa.int64(), mask=null).cast(target)
        case "float":
            return pa.array(count.astype(np.float64), pa.float64(), mask=null).cast(target)
        case "uuid":
            made: list[Any] = [str(uuid.UUID(bytes=rng.bytes(16), version=4)) for _ in number]
        case "text":
            return pc.if_else(pa.array(null), pa.scalar(None, pa.string()), texts_for(column, count)).cast(target)
        case "decimal":
            made = [Decimal(int(n)).scaleb(-(kind.scale or 0) if not unique else 0) for n in count]
        case "date":
            made = [date(2000, 1, 1) + timedelta(days=int(n)) for n in number]
        case "timestamp":
            made = [datetime(2000, 1, 1) + timedelta(seconds=int(n)) for n in number]
        case "time":
            made = [time(int(n) // 3600 % 24, int(n) // 60 % 60, int(n) % 60) for n in number]
        case "boolean":
            made = [bool(n % 2) for n in number]
        case "bytes":
            made = [int(n).to_bytes(8, "big") for n in count]
        case "enum":
            made = [kind.values[int(n) % len(kind.values)] for n in number]
        case "json":
            made = ["{}" if not unique else f'{{"n": {n}}}' for n in count]
        case "array":
            made = ["[]" for _ in number]
        case _:
            made = [str(n) for n in count]
    return pa.array([None if hole else v for v, hole in zip(made, null, strict=True)], target)


def texts_for(column: Column, numbers: IntArray) -> pa.Array:
    """Return made-up texts that fit the column's length.

    >>> from dpweave.schema.database import Column, Type
    >>> texts_for(Column("email", Type("text")), np.array([7])).to_pylist()
    ['person7@example.com']
    >>> texts_for(Column("code", Type("text", length=4)), np.array([7, 36])).to_pylist()
    ['0007', '0010']
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    form = next((f for pattern, f in FORMS if pattern.search(column.name)), (f"{column.name} ", 1, ""))
    before, width, after = form
    digits = pc.utf8_lpad(pa.array(numbers, pa.int64()).cast(pa.string()), width, "0")
    texts = pc.binary_join_element_wise(before, digits, after, "")
    length = column.type.length
    if length is None:
        return texts
    is_long = pc.greater(pc.utf8_length(texts), length)
    short = [short_form(int(n), length) for n in numbers[is_long.to_numpy(zero_copy_only=False)]]
    return pc.replace_with_mask(texts, is_long, pa.array(short, pa.string()))


def short_form(number: int, length: int) -> str:
    """Return a number in as few characters as it takes, cut to a length."""
    short = ""
    while number:
        number, digit = divmod(number, len(DIGITS))
        short = DIGITS[digit] + short
    return short.rjust(min(length, 4), "0")[-length:]
