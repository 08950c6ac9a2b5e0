"""What kinds of values a plan may hold in which place, checked before anything is made of them."""

from __future__ import annotations

from reprlib import repr as short
from typing import TYPE_CHECKING, Any

from dpweave.errors import PlanError
from dpweave.schema.fake_values import LOCALE

if TYPE_CHECKING:
    from collections.abc import Mapping

DEEPEST = 12
"""Tables and lists inside each other; a plan has seven."""
WIDEST = 128
"""Bits of a whole number; no column has more."""

KINDS: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "text": ("a text in quotes", (str,)),
    "flag": ("true or false", (bool,)),
    "whole": ("a whole number", (int,)),
    "number": ("a number", (int, float)),
    "list": ("a list", (list, tuple)),
}

PLAN = {"constraints": "list", "workloads": "list"}
TABLE = {"unique": "list", "mechanism": "text", "namespace": "text", "rows_public": "flag"}
COLUMN = {"type": "text", "nullable": "flag", "placeholder": "text", "locale": "text"}
GATHERED = {"table": "text", "key": "text", "column": "text"}
DOMAIN = {
    "learn": "flag",
    "bins": "whole",
    "step": "number",
    "values": "list",
    "other": "flag",
    "edges": "list",
    "spots": "list",
}
KEY = {"references": "text", "role": "text", "method": "text", "degree_edges": "list", "order_by": "text"}
"""Keys that are not here are checked, with their bounds, where they mean something."""


def require_kinds(where: str, data: Mapping[str, Any], kinds: Mapping[str, str]) -> None:
    """Refuse values of another kind than their keys ask for.

    >>> require_kinds("tables.users", {"mechanism": 7}, TABLE)
    Traceback (most recent call last):
    dpweave.errors.PlanError: tables.users.mechanism must be a text in quotes, not 7
    """
    for key, value in data.items():
        if key in kinds:
            require_kind(f"{where}.{key}" if where else key, value, kinds[key])


def require_kind(where: str, value: object, kind: str) -> None:
    """Refuse one value of another kind."""
    words, types = KINDS[kind]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise PlanError(f"{where} must be {words}, not {short(value)}")


def require_locale(locale: object) -> None:
    """Refuse what cannot name a language and a country."""
    if not isinstance(locale, str) or not LOCALE.fullmatch(locale):
        raise PlanError(f"locale must be a language and a country such as de_DE, not {locale!r}")


def require_plain(value: object, *, where: str = "the plan", depth: int = 0) -> None:
    """Refuse numbers that nothing counts so far, and what lies inside each other without end."""
    if depth > DEEPEST:
        raise PlanError(f"{where} lies too deep: a plan has no more than {DEEPEST} tables and lists inside each other")
    if isinstance(value, int) and value.bit_length() > WIDEST:
        raise PlanError(f"{where} is a whole number of {value.bit_length()} bits; no more than {WIDEST} are allowed")
    if isinstance(value, dict | list | tuple):
        inside = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in inside:
            require_plain(part, where=f"{where}.{key}" if depth else str(key), depth=depth + 1)
