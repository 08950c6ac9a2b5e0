"""Keys that names and types suggest, for sources that declare none."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from dpweave.schema.database import Column, Database, ForeignKey, Table

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_KEY_KINDS = {"integer", "text", "uuid", "decimal", "enum"}
_KIN = {"parent", "father", "mother", "spouse", "partner"}
_STAFF = {"employee", "staff", "person", "people", "worker", "member", "user"}
_BOSS = {"manager", "supervisor", "boss", "reports_to", "chief"}


def propose_keys_of(database: Database, names: Collection[str]) -> Database:
    """Propose keys of some tables alone: those of which the catalogue says none, such as views."""
    proposed = propose_keys(database) if names else database
    return Database(tuple(proposed[t.name] if t.name in names else t for t in database))


def propose_keys(database: Database) -> Database:
    """Propose primary and foreign keys from names and types, for sources that declare none.

    A table keeps what it declares. Otherwise its primary key is the column ``id`` or ``<table>_id`` (singular or
    plural, with or without underscore), a column ``<table>_id`` elsewhere points at it, and so does one with a role in
    front (``original_language_id``); ``parent_id`` points at its own table. A table without such a column and with
    exactly two foreign keys and no date is taken for a junction, whose pair is its key. The user decides: these are
    entries of a plan.
    """
    tables = [t if t.primary_key else _with_primary(t) for t in database]
    found = tuple(t if t.foreign_keys else replace(t, foreign_keys=_foreign(t, tables)) for t in tables)
    return Database(tuple(_with_pair(t) for t in found))


def _with_primary(table: Table) -> Table:
    forms = _forms(table.bare_name)
    wanted = [
        "id",
        *(f"{f}{s}" for f in forms for s in ("_id", "id", "_key", "key", "_no", "_code")),
        *(f"id_{f}" for f in forms),
    ]
    columns = {_snake(c.name): c for c in reversed(table.columns) if c.type.kind in _KEY_KINDS}
    name = next((columns[w].name for w in wanted if w in columns), None)
    return table if name is None else replace(table, primary_key=(name,))


def _foreign(table: Table, tables: Sequence[Table]) -> tuple[ForeignKey, ...]:
    keys = []
    for column in table.columns:
        if (column.name,) == table.primary_key or column.type.kind not in _KEY_KINDS:
            continue
        target = _target(column, table, tables)
        if target is not None:
            keys.append(ForeignKey((column.name,), target.name, target.primary_key))
    return tuple(keys)


def _target(column: Column, table: Table, tables: Sequence[Table]) -> Table | None:
    """Return the one table that the column's name means, exact names before names with a role in front."""
    name = _snake(column.name)
    fits = [t for t in tables if len(t.primary_key) == 1 and t.column[t.primary_key[0]].type.kind == column.type.kind]
    spellings = {t.name: _reference_names(t) for t in fits}
    exact = [t for t in fits if name in spellings[t.name]]
    role = [t for t in fits if any(name.endswith(f"_{s}") for s in spellings[t.name])]
    stem = name.removesuffix("_id")
    singular = _forms(table.bare_name)
    own = table in fits and (stem in _KIN or (stem in _BOSS and bool(_STAFF & set(singular))))
    for candidates in (exact, role, [table] if own else []):
        if len(candidates) == 1:
            return candidates[0]
    return None


def _reference_names(table: Table) -> set[str]:
    key = _snake(table.primary_key[0])
    names = {f"{form}_{key}" for form in _forms(table.bare_name)} | {f"{form}_id" for form in _forms(table.bare_name)}
    return (
        names
        | {f"id_{form}" for form in _forms(table.bare_name)}
        | (set() if key in {"id", "key", "code", "name"} else {key})
    )


def _with_pair(table: Table) -> Table:
    dated = any(c.type.kind in {"date", "timestamp"} for c in table.columns)
    if table.primary_key or len(table.foreign_keys) != 2 or dated:
        return table
    return replace(table, primary_key=tuple(c for k in table.foreign_keys for c in k.columns))


def _snake(name: str) -> str:
    """Lower case with underscores.

    >>> _snake("CustomerId"), _snake("userID"), _snake("Order No")
    ('customer_id', 'user_id', 'order_no')
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"[^0-9a-z]+", "_", spaced.lower()).strip("_")


def _forms(name: str) -> tuple[str, ...]:
    """Spellings of a table's name in a key's name: as it is, and what may be its singular.

    >>> _forms("movies"), _forms("addresses"), _forms("people")
    (('movies', 'movy', 'movie'), ('addresses', 'address', 'addresse'), ('people', 'person'))
    """
    snake = _snake(name)
    forms = [snake, *({"people": "person", "children": "child"}.get(snake, ""),)]
    if snake.endswith("ies"):
        forms.append(f"{snake[:-3]}y")
    if snake.endswith(("sses", "xes", "ches", "shes")):
        forms.append(snake[:-2])
    if snake.endswith("s") and not snake.endswith("ss"):
        forms.append(snake[:-1])
    return tuple(dict.fromkeys(f for f in forms if f))
