"""The schema as a value: databases, tables, columns, keys. Engine-neutral, frozen, validated at birth."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from dpweave.errors import SchemaError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import date

KINDS = (
    "boolean",
    "integer",
    "float",
    "decimal",
    "date",
    "time",
    "timestamp",
    "text",
    "uuid",
    "bytes",
    "json",
    "array",
    "enum",
    "unknown",
)
_SIZED = re.compile(r"^(?P<name>[a-z]+)(?P<bits>8|16|32|64)?(?:\((?P<args>.*)\))?$")


@dataclass(frozen=True)
class Type:
    """A column's type, the same for every engine, with a short spelling used in plans.

    >>> Type.parse("decimal(10,2)")
    Type(kind='decimal', precision=10, scale=2)
    >>> str(Type("integer", bits=16)), str(Type("timestamp", zone=True)), str(Type("text", length=20))
    ('int16', 'timestamptz', 'text(20)')
    """

    kind: str
    bits: int | None = field(default=None, repr=False)
    signed: bool = field(default=True, repr=False)
    precision: int | None = None
    scale: int | None = None
    length: int | None = field(default=None, repr=False)
    zone: bool = field(default=False, repr=False)
    values: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise SchemaError(f"there is no column type {self.kind!r}: {nearest(self.kind, KINDS)}")
        if self.kind == "integer" and self.bits is None:
            object.__setattr__(self, "bits", 64)
        if self.kind == "float" and self.bits is None:
            object.__setattr__(self, "bits", 64)

    def __str__(self) -> str:
        match self.kind:
            case "integer":
                return f"{'int' if self.signed else 'uint'}{self.bits}"
            case "float":
                return f"float{self.bits}"
            case "decimal":
                return f"decimal({self.precision},{self.scale})" if self.precision is not None else "decimal"
            case "timestamp":
                return "timestamptz" if self.zone else "timestamp"
            case "text":
                return f"text({self.length})" if self.length else "text"
            case "enum":
                return f"enum({','.join(json.dumps(v, ensure_ascii=False) for v in self.values)})"
            case _:
                return self.kind

    @classmethod
    def parse(cls, spelling: str) -> Type:
        """Read the spelling that ``str`` writes."""
        text = spelling.strip()
        if text.startswith("enum(") and text.endswith(")"):
            try:
                return cls("enum", values=tuple(json.loads(f"[{text[5:-1]}]")))
            except json.JSONDecodeError:
                raise SchemaError(f'the type {spelling!r} is not of the form enum("a","b")') from None
        match = _SIZED.match(text)
        if match is None:
            raise SchemaError(f"there is no column type {spelling!r}: {nearest(text, KINDS)}")
        name, bits, args = match["name"], match["bits"], match["args"]
        width = int(bits) if bits else None
        try:
            numbers = [int(a) for a in args.split(",")] if args else []
        except ValueError:
            raise SchemaError(f"the type {spelling!r} takes whole numbers in its parentheses") from None
        match name:
            case "int" | "integer" | "uint":
                return cls("integer", bits=width or 64, signed=name != "uint")
            case "float":
                return cls("float", bits=width or 64)
            case "decimal":
                precision, scale = (*numbers, 0)[:2] if numbers else (None, None)
                return cls("decimal", precision=precision, scale=scale)
            case "text":
                return cls("text", length=numbers[0] if numbers else None)
            case "timestamptz":
                return cls("timestamp", zone=True)
            case _:
                return cls(name)

    @property
    def ordered(self) -> bool:
        """Whether values can be put into bins."""
        return self.kind in {"integer", "float", "decimal", "date", "timestamp", "time"}


@dataclass(frozen=True)
class Gathered:
    """What rows that lead here by a ``key`` of another ``table`` say: how many there are, or with a ``column`` of that
    table, or of one that it leads to (``genre_id.name``), whether any of them has a ``value``.
    """

    table: str
    key: str
    column: str | None = None
    value: str | int | bool | date | None = None

    def __post_init__(self) -> None:
        if (self.column is None) != (self.value is None):
            raise SchemaError(
                f"what is gathered from {self.table!r} needs both a column and a value, such as"
                ' column = "genre_id.name", value = "Drama", or neither: then rows are counted'
            )


@dataclass(frozen=True)
class Column:
    """A named, typed column; ``nullable`` unless the catalogue says otherwise."""

    name: str
    type: Type
    nullable: bool = True
    gathered: Gathered | None = None
    """Of a column that no table holds: where its values come from."""

    def __post_init__(self) -> None:
        if self.gathered is None:
            return
        kind = "integer" if self.gathered.column is None else "boolean"
        if self.type.kind != kind or self.nullable:
            raise SchemaError(
                f"the column {self.name!r} is gathered, so it is of type {'int64' if kind == 'integer' else kind} with"
                f" nullable = false, not {self.type}{' and nullable' if self.nullable else ''}"
            )


@dataclass(frozen=True)
class ForeignKey:
    """``columns`` of the table that holds this key name one row of ``target`` by its ``target_columns``."""

    columns: tuple[str, ...]
    target: str
    target_columns: tuple[str, ...]
    name: str = ""

    def __post_init__(self) -> None:
        if not self.columns or len(self.columns) != len(self.target_columns):
            raise SchemaError(
                f"a foreign key to {self.target!r} has {len(self.columns)} columns for "
                f"{len(self.target_columns)} target columns; give one for each"
            )
        if not self.name:
            object.__setattr__(self, "name", "+".join(self.columns))


@dataclass(frozen=True)
class Table:
    """A table: columns in order, an optional primary key, unique constraints and foreign keys."""

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    namespace: str | None = None
    """The engine's schema, where it is not the default one; ``name`` is then ``namespace.table``."""

    def __post_init__(self) -> None:
        names = [c.name for c in self.columns]
        for duplicate in {n for n in names if names.count(n) > 1}:
            raise SchemaError(f"table {self.name!r} has two columns named {duplicate!r}")
        if not names:
            raise SchemaError(f"table {self.name!r} has no columns")
        for what, unique in [("primary key", self.primary_key), *(("unique constraint", u) for u in self.unique)]:
            for column in unique:
                if column not in names:
                    raise SchemaError(
                        f"the {what} of {self.name!r} names a column {column!r} that is not there:"
                        f" {nearest(column, names)}"
                    )
        keys = [k.name for k in self.foreign_keys]
        for duplicate in {k for k in keys if keys.count(k) > 1}:
            raise SchemaError(
                f"table {self.name!r} has two foreign keys named {duplicate!r}; give each a name of its own"
            )
        for key in self.foreign_keys:
            for column in key.columns:
                if column not in names:
                    raise SchemaError(
                        f"the foreign key {key.name!r} of {self.name!r} names a column {column!r} "
                        f"that is not there: {nearest(column, names)}"
                    )

    @cached_property
    def column(self) -> Mapping[str, Column]:
        """Columns by name."""
        return {c.name: c for c in self.columns}

    @cached_property
    def key(self) -> Mapping[str, ForeignKey]:
        """Foreign keys by name."""
        return {k.name: k for k in self.foreign_keys}

    @cached_property
    def stored(self) -> Table:
        """The table as databases hold it: without columns that are gathered."""
        return replace(self, columns=tuple(c for c in self.columns if c.gathered is None)) if self.gathered else self

    @cached_property
    def gathered(self) -> tuple[Column, ...]:
        """Columns whose values come from rows that lead here."""
        return tuple(c for c in self.columns if c.gathered is not None)

    @property
    def bare_name(self) -> str:
        """The name inside its namespace."""
        return self.name.removeprefix(f"{self.namespace}.") if self.namespace else self.name

    def is_unique(self, columns: tuple[str, ...]) -> bool:
        """Whether no two rows may agree on all of ``columns`` (declared, for a subset of them)."""
        have = set(columns)
        return any(set(u) <= have for u in (self.primary_key, *self.unique) if u)

    def is_nullable(self, key: ForeignKey) -> bool:
        """Whether a row may point nowhere through ``key``."""
        return any(self.column[c].nullable for c in key.columns) and not set(key.columns) <= set(self.primary_key)

    @cached_property
    def key_columns(self) -> frozenset[str]:
        """Columns whose values are dictated by keys: primary, foreign."""
        return frozenset(self.primary_key) | {c for k in self.foreign_keys for c in k.columns}


@dataclass(frozen=True)
class Database:
    """Tables whose foreign keys all lead somewhere."""

    tables: tuple[Table, ...]

    def __post_init__(self) -> None:
        names = [t.name for t in self.tables]
        for duplicate in {n for n in names if names.count(n) > 1}:
            raise SchemaError(f"two tables are named {duplicate!r}")
        for table in self.tables:
            for key in table.foreign_keys:
                where = f"the foreign key {key.name!r} of {table.name!r}"
                if key.target not in names:
                    raise SchemaError(
                        f"{where} leads to a table {key.target!r} that is not there: {nearest(key.target, names)}"
                    )
                target = self[key.target]
                for column in key.target_columns:
                    if column not in target.column:
                        raise SchemaError(
                            f"{where} leads to a column {column!r} that {key.target!r} does not have: "
                            f"{nearest(column, target.column)}"
                        )
                if not target.is_unique(key.target_columns):
                    raise SchemaError(
                        f"{where} leads to {', '.join(key.target_columns)} of {key.target!r}, which no primary key or "
                        f"unique constraint makes unique; declare primary_key or unique for {key.target!r}"
                    )

    @cached_property
    def _by_name(self) -> Mapping[str, Table]:
        return {t.name: t for t in self.tables}

    def __getitem__(self, name: str) -> Table:
        try:
            return self._by_name[name]
        except KeyError:
            raise SchemaError(f"there is no table {name!r}: {nearest(name, self._by_name)}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Table]:
        return iter(self.tables)

    @cached_property
    def stored(self) -> Database:
        """The database as it is held and written: without columns that are gathered."""
        return Database(tuple(t.stored for t in self.tables))

    @property
    def names(self) -> tuple[str, ...]:
        """Table names, in the catalogue's order."""
        return tuple(t.name for t in self.tables)
