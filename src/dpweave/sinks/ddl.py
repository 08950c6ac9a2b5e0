"""Data definition: the model's types and keys as SQL of DuckDB, SQLite and PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpweave.errors import TargetError
from dpweave.schema.arrow import decimal_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dpweave.schema.model import Column, Database, ForeignKey, Table, Type


def quoted(name: str) -> str:
    """Quote an identifier, as standard SQL and all three engines do.

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
