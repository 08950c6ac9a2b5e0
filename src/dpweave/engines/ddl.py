"""Data definition: the model's types and keys as SQL of DuckDB, SQLite, PostgreSQL and MySQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpweave.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dpweave.schema.database import Column, Database, ForeignKey, Table, Type


def quoted(name: str) -> str:
    """Quote an identifier, as standard SQL and all engines do.

    >>> quoted('a"b c')
    '"a""b c"'
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a text."""
    return "'" + text.replace("'", "''") + "'"


def names(columns: Iterable[str]) -> str:
    """Quote identifiers and put commas between them."""
    return ", ".join(quoted(c) for c in columns)


def stored_types(database: Database, table: Table) -> dict[str, Type]:
    """Return the type of each column; a foreign key takes the type of what it points at, since engines insist."""

    def resolved(owner: Table, column: str, seen: frozenset[tuple[str, str]]) -> Type:
        for key in owner.foreign_keys:
            if column in key.columns and (owner.name, column) not in seen:
                target = key.target_columns[key.columns.index(column)]
                return resolved(database[key.target], target, seen | {(owner.name, column)})
        return owner.column[column].type

    return {c.name: resolved(table, c.name, frozenset()) for c in table.columns}


def unique_sets(database: Database, table: Table) -> list[tuple[str, ...]]:
    """Return the unique constraints, with those that foreign keys to this table need exactly."""
    wanted = [*table.unique, *(k.target_columns for t in database for k in t.foreign_keys if k.target == table.name)]
    kept: list[tuple[str, ...]] = []
    for columns in wanted:
        if columns != table.primary_key and columns not in kept:
            kept.append(columns)
    return kept


def create_table(
    database: Database,
    table: Table,
    *,
    name: str,
    spell: Callable[[Column, Type], str],
    inline_keys: Sequence[ForeignKey] = (),
    references: Callable[[str], str] = quoted,
    deferred: str = "",
    constrained: bool = True,
) -> str:
    """Return ``CREATE TABLE`` with columns in order, nullability and the given foreign keys.

    Primary key and uniqueness are part of it if ``constrained``; a writer that adds them after the load says not.
    """
    types = stored_types(database, table)
    required = {c.name for c in table.columns if not c.nullable} | set(table.primary_key)
    lines = [
        f"{quoted(c.name)} {spell(c, types[c.name])}{' NOT NULL' if c.name in required else ''}" for c in table.columns
    ]
    if constrained and table.primary_key:
        lines.append(f"PRIMARY KEY ({names(table.primary_key)})")
    lines += [f"UNIQUE ({names(u)})" for u in unique_sets(database, table) if constrained]
    lines += [f"{foreign_key(k, references)}{deferred}" for k in inline_keys]
    return f"CREATE TABLE {name} (\n  " + ",\n  ".join(lines) + "\n)"


def foreign_key(key: ForeignKey, references: Callable[[str], str]) -> str:
    """Return the clause of one foreign key."""
    return f"FOREIGN KEY ({names(key.columns)}) REFERENCES {references(key.target)} ({names(key.target_columns)})"


def refuse_twins(database: Database, *, engine: str) -> None:
    """Refuse names that differ in case only, which the engine takes for one."""
    groups = [
        ("tables", list(database.names)),
        *((f"columns of {t.name!r}", [c.name for c in t.columns]) for t in database),
    ]
    for what, held in groups:
        seen: dict[str, str] = {}
        for name in held:
            twin = seen.setdefault(name.lower(), name)
            if twin != name:
                raise TargetError(f"two {what} are named {twin!r} and {name!r}, which {engine} takes for one")
