"""Catalogue to model: what DuckDB, SQLite, PostgreSQL and Ibis say about tables, types and keys. No row is read."""

# ruff: noqa: S608 - statements are built from constants and quoted names

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from dpweave.schema.model import Column, Database, ForeignKey, Table, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

TEMPORARY = "_dpweave_"
"""Begins the name of everything that we store in an engine for the time of a session."""

UNDECLARED_KEYS = "dpweave foreign keys:"
"""Begins the comment on a DuckDB table that lists, as JSON, keys which DuckDB cannot hold: those that close a cycle."""

_QUOTED = re.compile(r"'((?:[^']|'')*)'")
_NUMBERS = re.compile(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


def reflect(connection: Any) -> Database:
    """Read the catalogue behind an Ibis connection.

    DuckDB, SQLite and PostgreSQL declare keys, and all of them are found: composite, self-referential, circular, to
    unique columns. Other engines give columns and types only; the plan adds the keys. Views are not tables.
    """
    readers: Mapping[str, Callable[[Any], Database]] = {
        "duckdb": lambda c: reflect_duckdb(c.con),
        "sqlite": lambda c: reflect_sqlite(c.con),
        "postgres": lambda c: reflect_postgres(c.con),
    }
    return readers.get(connection.name, reflect_columns)(connection)


# DuckDB ---------------------------------------------------------------------------------------------------------------


def reflect_duckdb(connection: Any) -> Database:
    """Read DuckDB's catalogue functions."""
    mine = "database_name = current_database()"
    default = _rows(connection, "SELECT current_schema()")[0][0]
    tables = _rows(
        connection,
        f"SELECT schema_name, table_name, comment FROM duckdb_tables() WHERE NOT internal AND NOT temporary AND {mine} "
        "ORDER BY table_oid",
    )
    columns: dict[tuple[str, str], list[Column]] = {}
    for schema, table, name, text, nullable in _rows(
        connection,
        f"SELECT schema_name, table_name, column_name, data_type, is_nullable FROM duckdb_columns() WHERE {mine} "
        "ORDER BY table_oid, column_index",
    ):
        columns.setdefault((schema, table), []).append(Column(name, duckdb_type(text), nullable=nullable))
    keys = _Keys()
    for schema, table, kind, names, target, target_names in _rows(
        connection,
        "SELECT schema_name, table_name, constraint_type, constraint_column_names, referenced_table, "
        f"referenced_column_names FROM duckdb_constraints() WHERE {mine} ORDER BY constraint_index",
    ):
        match kind:
            case "PRIMARY KEY":
                keys.primary[schema, table] = tuple(names)
            case "UNIQUE":
                keys.add_unique((schema, table), tuple(names))
            case "FOREIGN KEY":  # DuckDB keeps a foreign key inside one schema
                keys.add_foreign((schema, table), tuple(names), (schema, target), tuple(target_names))
            case _:
                pass
    for schema, table, expressions in _rows(
        connection,
        "SELECT schema_name, table_name, expressions FROM duckdb_indexes() "
        f"WHERE is_unique AND NOT is_primary AND {mine}",
    ):
        names = tuple(
            e.strip().strip("'").removeprefix('"').removesuffix('"') for e in expressions.strip("[]").split(", ")
        )
        if set(names) <= {c.name for c in columns.get((schema, table), ())}:
            keys.add_unique((schema, table), names)
    for schema, table, comment in tables:
        for key in _undeclared(comment):
            target = key["target"].removeprefix(f"{schema}.") if schema != default else key["target"]
            keys.add_foreign((schema, table), tuple(key["columns"]), (schema, target), tuple(key["target_columns"]))
    return keys.database({(s, t): columns[s, t] for s, t, _ in tables}, default=default)


def _undeclared(comment: str | None) -> list[dict[str, Any]]:
    if not comment or not comment.startswith(UNDECLARED_KEYS):
        return []
    try:
        return list(json.loads(comment.removeprefix(UNDECLARED_KEYS)))
    except json.JSONDecodeError:
        return []


def duckdb_type(text: str) -> Type:
    """Return the model's type of a DuckDB type name.

    >>> str(duckdb_type("DECIMAL(10,2)")), str(duckdb_type("INTEGER[]")), str(duckdb_type("ENUM('a', 'b')"))
    ('decimal(10,2)', 'array', 'enum("a","b")')
    """
    if text.endswith("]"):
        return Type("array")
    name = text.split("(", maxsplit=1)[0].strip().upper()
    if name == "ENUM":
        return Type("enum", values=tuple(v.replace("''", "'") for v in _QUOTED.findall(text)))
    if name == "DECIMAL":
        precision, scale = _sizes(text)
        return Type("decimal", precision=precision or 18, scale=3 if precision is None else scale or 0)
    return _DUCKDB.get(name, Type("unknown"))


_DUCKDB = {
    **{n: Type("integer", bits=b) for n, b in (("TINYINT", 8), ("SMALLINT", 16), ("INTEGER", 32), ("BIGINT", 64))},
    **{
        n: Type("integer", bits=b, signed=False)
        for n, b in (("UTINYINT", 8), ("USMALLINT", 16), ("UINTEGER", 32), ("UBIGINT", 64))
    },
    "HUGEINT": Type("decimal", precision=38, scale=0),
    "UHUGEINT": Type("decimal", precision=38, scale=0),
    "FLOAT": Type("float", bits=32),
    "DOUBLE": Type("float", bits=64),
    "BOOLEAN": Type("boolean"),
    "DATE": Type("date"),
    "TIME": Type("time"),
    "TIME_NS": Type("time"),
    "TIME WITH TIME ZONE": Type("time"),
    **{n: Type("timestamp") for n in ("TIMESTAMP", "DATETIME", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")},
    "TIMESTAMP WITH TIME ZONE": Type("timestamp", zone=True),
    "VARCHAR": Type("text"),
    "UUID": Type("uuid"),
    "BLOB": Type("bytes"),
    "JSON": Type("json"),
}


# SQLite ---------------------------------------------------------------------------------------------------------------


def reflect_sqlite(connection: Any) -> Database:
    """Read SQLite's pragmas. Names are matched without regard to case, as SQLite does."""
    tables = [
        (name, bool(without_rowid), bool(strict))
        for name, without_rowid, strict in _rows(
            connection,
            "SELECT l.name, l.wr, l.strict FROM pragma_table_list AS l JOIN sqlite_master AS m ON m.name = l.name "
            "WHERE l.schema = 'main' AND l.type = 'table' AND l.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
            "AND m.type = 'table' ORDER BY m.rowid",
        )
    ]
    spelled = {name.lower(): name for name, _, _ in tables}
    columns: dict[tuple[str, str], list[Column]] = {}
    keys = _Keys()
    for name, without_rowid, _ in tables:
        here = ("main", name)
        described = _rows(
            connection,
            'SELECT name, type, "notnull", pk FROM pragma_table_xinfo(?) WHERE hidden <> 1 ORDER BY cid',
            (name,),
        )
        primary = [(pk, column) for column, _, _, pk in described if pk]
        keys.primary[here] = tuple(column for _, column in sorted(primary))
        rowid = len(primary) == 1 and not without_rowid
        columns[here] = [
            Column(
                column,
                sqlite_type(text),
                nullable=not (notnull or (pk and (without_rowid or (rowid and text.upper() == "INTEGER")))),
            )
            for column, text, notnull, pk in described
        ]
    for name, _, _ in tables:
        here = ("main", name)
        for index, _origin in _rows(
            connection,
            'SELECT name, origin FROM pragma_index_list(?) WHERE "unique" AND NOT partial ORDER BY seq DESC',
            (name,),
        ):
            names = tuple(
                n for (n,) in _rows(connection, "SELECT name FROM pragma_index_info(?) ORDER BY seqno", (index,))
            )
            if None not in names:
                keys.add_unique(here, names)
        found: dict[int, list[tuple[str, str, str | None]]] = {}
        for number, target, column, target_column in _rows(
            connection,
            'SELECT id, "table", "from", "to" FROM pragma_foreign_key_list(?) ORDER BY id DESC, seq',
            (name,),
        ):
            found.setdefault(number, []).append((target, column, target_column))
        for parts in found.values():
            target = spelled.get(parts[0][0].lower(), parts[0][0])
            there = ("main", target)
            names = tuple(_spelling(column, columns[here]) for _, column, _ in parts)
            implicit = keys.primary.get(there, ()) if parts[0][2] is None else None
            target_names = implicit or tuple(_spelling(c or "", columns.get(there, ())) for _, _, c in parts)
            keys.add_foreign(here, names, there, target_names)
    return keys.database(columns, default="main")


def sqlite_type(text: str) -> Type:
    """Return the model's type of a declared SQLite type, which is free text.

    The name decides where it is a known one, else SQLite's own affinity rules do.

    >>> [str(sqlite_type(t)) for t in ("NVARCHAR(160)", "NUMERIC(10,2)", "DATETIME", "BIG INT", "BLOB SUB_TYPE TEXT")]
    ['text(160)', 'decimal(10,2)', 'timestamp', 'int64', 'text']
    """
    upper = " ".join(text.upper().split())
    name = _NUMBERS.sub("", upper).strip()
    precision, scale = _sizes(upper)
    if name in _SQLITE:
        return _SQLITE[name]
    if name in {"DECIMAL", "NUMERIC", "NUMBER", "MONEY", "DEC"}:
        return Type("decimal", precision=precision, scale=None if precision is None else scale or 0)
    if "INT" in name:
        return Type("integer", bits=64)
    if any(word in name for word in ("CHAR", "CLOB", "TEXT", "STRING")):
        return Type("text", length=precision)
    if "BLOB" in name or "BINARY" in name:
        return Type("bytes")
    if any(word in name for word in ("REAL", "FLOA", "DOUB")):
        return Type("float", bits=64)
    return Type("unknown")


_SQLITE = {
    "BOOLEAN": Type("boolean"),
    "BOOL": Type("boolean"),
    "TINYINT": Type("integer", bits=8),
    "SMALLINT": Type("integer", bits=16),
    "INT2": Type("integer", bits=16),
    "INT4": Type("integer", bits=32),
    "MEDIUMINT": Type("integer", bits=32),
    **{f"UINT{bits}": Type("integer", bits=bits, signed=False) for bits in (8, 16, 32)},
    "FLOAT4": Type("float", bits=32),
    "DATE": Type("date"),
    "TIME": Type("time"),
    "DATETIME": Type("timestamp"),
    "TIMESTAMP": Type("timestamp"),
    "TIMESTAMPTZ": Type("timestamp", zone=True),
    "TIMESTAMP WITH TIME ZONE": Type("timestamp", zone=True),
    "DATETIME WITH TIME ZONE": Type("timestamp", zone=True),
    "UUID": Type("uuid"),
    "GUID": Type("uuid"),
    "UNIQUEIDENTIFIER": Type("uuid"),
    "JSON": Type("json"),
    "JSONB": Type("json"),
}


# PostgreSQL -----------------------------------------------------------------------------------------------------------

_SYSTEM = "n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') AND n.nspname NOT LIKE 'pg\\_temp\\_%'"

_POSTGRES_TABLES = f"""
SELECT c.oid, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'f') AND NOT c.relispartition AND {_SYSTEM} ORDER BY c.oid
"""

_POSTGRES_COLUMNS = """
WITH RECURSIVE base AS (
  SELECT a.attrelid, a.attnum, a.attname, a.attnotnull, a.atttypmod AS typmod, t.oid AS typ FROM pg_attribute a
  JOIN pg_type t ON t.oid = a.atttypid WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attrelid = ANY(%s)
  UNION ALL
  SELECT b.attrelid, b.attnum, b.attname, b.attnotnull OR t.typnotnull, t.typtypmod, t.typbasetype FROM base b
  JOIN pg_type t ON t.oid = b.typ WHERE t.typtype = 'd'
)
SELECT b.attrelid, b.attname, t.typname, t.typtype, t.typcategory, b.typmod, b.attnotnull,
  ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder)
FROM base b JOIN pg_type t ON t.oid = b.typ WHERE t.typtype <> 'd' ORDER BY b.attrelid, b.attnum
"""

_POSTGRES_KEYS = """
SELECT k.conrelid, k.contype, k.confrelid,
  ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY u(n, i)
        JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.n ORDER BY i),
  ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY u(n, i)
        JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.n ORDER BY i)
FROM pg_constraint k WHERE k.contype IN ('p', 'u', 'f') AND k.conrelid = ANY(%s) AND k.conparentid = 0 ORDER BY k.oid
"""

_POSTGRES_INDEXES = """
SELECT x.indrelid, ARRAY(SELECT a.attname::text FROM unnest(x.indkey) WITH ORDINALITY u(n, i)
  JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = u.n WHERE i <= x.indnkeyatts ORDER BY i)
FROM pg_index x
WHERE x.indisunique AND x.indisvalid AND x.indpred IS NULL AND x.indexprs IS NULL AND x.indrelid = ANY(%s)
ORDER BY x.indexrelid
"""


def reflect_postgres(connection: Any) -> Database:
    """Read PostgreSQL's system catalogue; every schema counts, and tables outside the default one carry its name."""
    default = _rows(connection, "SELECT coalesce(current_schema(), 'public')")[0][0]
    tables = {oid: (schema, name) for oid, schema, name in _rows(connection, _POSTGRES_TABLES)}
    oids = (list(tables),)
    columns: dict[tuple[str, str], list[Column]] = {place: [] for place in tables.values()}
    for oid, name, kind, form, category, typmod, notnull, labels in _rows(connection, _POSTGRES_COLUMNS, oids):
        found = postgres_type(
            _text(kind), form=_text(form), category=_text(category), typmod=typmod, labels=tuple(labels)
        )
        columns[tables[oid]].append(Column(name, found, nullable=not notnull))
    keys = _Keys()
    for oid, kind, target, names, target_names in _rows(connection, _POSTGRES_KEYS, oids):
        match _text(kind):
            case "p":
                keys.primary[tables[oid]] = tuple(names)
            case "u":
                keys.add_unique(tables[oid], tuple(names))
            case _:
                keys.add_foreign(tables[oid], tuple(names), tables.get(target, ("", "")), tuple(target_names))
    for oid, names in _rows(connection, _POSTGRES_INDEXES, oids):
        keys.add_unique(tables[oid], tuple(names))
    return keys.database(columns, default=default)


def postgres_type(name: str, *, form: str, category: str, typmod: int, labels: tuple[str, ...]) -> Type:
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


# Any other engine -----------------------------------------------------------------------------------------------------


def reflect_columns(connection: Any) -> Database:
    """Read tables and columns through Ibis, for engines that declare no keys."""
    views = _views(connection)
    return Database(
        tuple(
            Table(
                name,
                tuple(
                    Column(n, type_of_ibis(t), nullable=t.nullable) for n, t in connection.table(name).schema().items()
                ),
            )
            for name in sorted(connection.list_tables())
            if name not in views and not name.startswith(TEMPORARY)
        )
    )


def _views(connection: Any) -> frozenset[str]:
    """Spark lists views among its tables; temporary views are how a session names its data, so those stay."""
    session = getattr(connection, "_session", None)
    if session is None:
        return frozenset()
    return frozenset(t.name for t in session.catalog.listTables() if t.tableType == "VIEW" and not t.isTemporary)


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


# Assembly -------------------------------------------------------------------------------------------------------------


class _Keys:
    """Collects keys by (schema, table), then names everything as the model does."""

    def __init__(self) -> None:
        self.primary: dict[tuple[str, str], tuple[str, ...]] = {}
        self.unique: dict[tuple[str, str], list[tuple[str, ...]]] = {}
        self.foreign: dict[tuple[str, str], list[tuple[tuple[str, ...], tuple[str, str], tuple[str, ...]]]] = {}

    def add_unique(self, place: tuple[str, str], columns: tuple[str, ...]) -> None:
        known = self.unique.setdefault(place, [])
        if columns not in known:
            known.append(columns)

    def add_foreign(
        self, place: tuple[str, str], columns: tuple[str, ...], target: tuple[str, str], target_columns: tuple[str, ...]
    ) -> None:
        known = self.foreign.setdefault(place, [])
        if (columns, target, target_columns) not in known:
            known.append((columns, target, target_columns))

    def database(self, columns: Mapping[tuple[str, str], Sequence[Column]], *, default: str) -> Database:
        def named(place: tuple[str, str]) -> str:
            return place[1] if place[0] == default else f"{place[0]}.{place[1]}"

        return Database(
            tuple(
                Table(
                    named(place),
                    tuple(described),
                    primary_key=self.primary.get(place, ()),
                    unique=tuple(u for u in self.unique.get(place, ()) if set(u) != set(self.primary.get(place, ()))),
                    foreign_keys=self._foreign_keys(place, named),
                    namespace=None if place[0] == default else place[0],
                )
                for place, described in columns.items()
            )
        )

    def _foreign_keys(self, place: tuple[str, str], named: Callable[[tuple[str, str]], str]) -> tuple[ForeignKey, ...]:
        found = self.foreign.get(place, [])
        often = [names for names, _, _ in found]
        return tuple(
            ForeignKey(
                names,
                named(target),
                target_names,
                name=f"{'+'.join(names)} to {named(target)}" if often.count(names) > 1 else "",
            )
            for names, target, target_names in found
        )


def _rows(connection: Any, query: str, arguments: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
    cursor = connection.cursor()
    try:
        return list(
            cursor.execute(query, tuple(arguments)).fetchall() if arguments else cursor.execute(query).fetchall()
        )
    finally:
        cursor.close()


def _spelling(name: str, columns: Sequence[Column]) -> str:
    return next((c.name for c in columns if c.name.lower() == name.lower()), name)


def _sizes(text: str) -> tuple[int | None, int | None]:
    match = _NUMBERS.search(text)
    if match is None:
        return None, None
    return int(match[1]), int(match[2]) if match[2] else None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
