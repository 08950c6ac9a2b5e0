"""How inputs are broken: plain values by what people and programs write, bytes by what disks and strangers do."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 1.5, -0.0, 1e308, -1e308, math.nan, math.inf, 2**31, 2**63, -(2**63), 10**40,
    10**400, "", "a", " ", "true", "x" * 5000, "\x00", "\ud800", "é\u202e", "../../x", "'; DROP TABLE t; --", "nan",
    "1e999", "key", "learn", [], {}, [[]], [None], ["a"], ["a", "a"], {"a": 1}, {"": {}}, [1] * 2000,
)  # fmt: skip


def spoilt(value: Any, rng: random.Random, *, times: int) -> Any:
    """Return plain values with a few places changed: replaced, removed, doubled, renamed or moved."""
    out = copy.deepcopy(value)
    for _ in range(times):
        place, at = _place(out, rng)
        if place is None:
            return rng.choice(ODD)
        match rng.randrange(6):
            case 0:
                del place[at]
            case 1 if isinstance(place, dict):
                place[rng.choice((*map(str, ODD[20:30]), *place))] = place[at]
            case 1 | 2 if isinstance(place, list):
                place.insert(rng.randrange(len(place) + 1), copy.deepcopy(place[at]))
            case 3:
                other, there = _place(out, rng)
                place[at] = copy.deepcopy(other[there]) if other is not None else None
            case 4 if _is_number(place[at]):
                place[at] = rng.choice((-place[at], place[at] * 1000, place[at] + 1, place[at] / 3, float(place[at])))
            case _:
                place[at] = copy.deepcopy(rng.choice(ODD))
    return out


def _is_number(value: Any) -> bool:
    """Whether one can reckon with it, as with neither infinity nor integers that no float holds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e300


def _place(value: Any, rng: random.Random) -> tuple[Any, Any]:
    """A container inside ``value`` and a key or position in it; the deeper, the likelier."""
    found = []
    queue = [value]
    while queue and len(found) < 5000:
        one = queue.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else []
        for key in keys:
            found.append((one, key))
            queue.append(one[key])
    return rng.choice(found) if found else (None, None)


def torn(content: bytes, rng: random.Random) -> bytes:
    """Return bytes with something changed, cut off, doubled, moved or put in."""
    out = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        if not out:
            return bytes(rng.randrange(256) for _ in range(rng.randrange(40)))
        at, length = rng.randrange(len(out)), rng.choice((1, 2, 8, 64, 512))
        match rng.randrange(6):
            case 0:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                del out[at : at + length]
            case 2:
                out[at:at] = out[at : at + length]
            case 3:
                out[at : at + length] = bytes(rng.choice((0, 255, 0x7F, 0x80)) for _ in range(length))
            case 4:
                out = out[:at]
            case _:
                there = rng.randrange(len(out))
                out[at:at] = out[there : there + length]
    return bytes(out)
