"""SQLite: a file, opened read-only. Its columns hold values of any type, so every value is checked on the way out."""

from __future__ import annotations

import datetime as dt
import decimal
import hashlib
import sqlite3
from functools import cache, partial
from typing import TYPE_CHECKING, Any, final
from urllib.parse import quote

from dpweave.engines.source_base import BATCH_ROWS, Source, batches_of_rows, database_table, ibis_type, raw_schema
from dpweave.engines.sqlite.catalogue import left_out_by_sqlite, reflect_sqlite
from dpweave.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import ibis
    import pyarrow as pa

    from dpweave.schema.database import Database, Table, Type

_HASH = "_dpweave_hash"
_NUMBER = "_dpweave_number"
_MOMENTS = {"date": "%Y-%m-%d", "time": "%H:%M:%S", "timestamp": "%Y-%m-%d %H:%M:%S"}


@final
class SQLiteSource(Source):
    """Tables of a SQLite connection."""

    embedded = True
    declares_keys = True
    can_materialise = True

    def __init__(self, connection: Any, *, name: str, owned: bool = True) -> None:
        super().__init__(connection, name=name, owned=owned)
        connection.con.create_function(_HASH, 1, _blake, deterministic=True)
        (encoding,) = connection.con.execute("PRAGMA encoding").fetchone()
        connection.con.create_function(_NUMBER, 1, partial(_number, encoding=encoding), deterministic=True)

    def hash(self, expression: ibis.expr.types.StringValue) -> ibis.expr.types.IntegerValue:
        """BLAKE2b, registered as a function. It is given bytes: Python refuses a text that is not UTF-8."""
        return _functions()[_HASH](expression.cast("binary"))

    def _disconnect(self) -> None:
        self.connection.con.close()

    def _drop_temporary(self, name: str) -> None:
        self.connection.con.execute(f'DROP TABLE "{name}"')

    def _reflect(self) -> Database:
        return reflect_sqlite(self.connection.con)

    def _not_copied(self) -> tuple[str, ...]:
        return left_out_by_sqlite(self.connection.con)

    def _engine_table(self, name: str) -> Table:
        return self.catalogue[name]

    def _with_lookups(self, expression: ibis.Table) -> ibis.Table:
        return expression

    def _is_view(self, name: str) -> bool:
        query = "SELECT count(*) FROM sqlite_master WHERE type = 'view' AND lower(name) = lower(?)"
        return bool(self.connection.con.execute(query, (name,)).fetchone()[0])

    def _proves_primary_key(self, stored: Table) -> bool:
        """Whether the key is the ``rowid``: any other may hold nulls, and values of any type that are equal when cast.

        Such a key has no index of its own.
        """
        query = "SELECT count(*) FROM pragma_index_list(?) WHERE origin = 'pk'"
        with self.masked("its catalogue cannot be read"):
            return not self.connection.con.execute(query, (stored.bare_name,)).fetchone()[0]

    def _require_readable(self, table: Table) -> None:
        pass

    def _require_whole(self, table: Table) -> None:
        for column in self._shown(table.name).columns:
            if column.name.lower() in {"true", "false"}:  # in a query within a query SQLite forgets such a name
                raise SourceError(
                    f"column {column.name!r} of {table.name!r} has a name that SQLite cannot read; rename it"
                )

    def _raw(self, stored: Table, declared: Table) -> ibis.Table:
        return database_table(self.connection, stored.bare_name, raw_schema(declared, loose=frozenset({"text"})))

    def _typed(self, column: Any, stored: Type, declared: Type, *, verbatim: bool) -> Any:
        if verbatim and column.type().is_unknown():
            # A column keeps its collation even through a cast, and one that ignores case could match two keys.
            return column.cast("string") + ""
        return column if verbatim else _checked(column, stored, declared)

    def _can_cast(self, stored: Type, declared: Type) -> bool:  # noqa: ARG002
        return True

    def _run(self, query: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        return batches_of_rows(_converted(self._rows(query), schema), schema)

    def _rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        """Return rows of a query; bytes that are not UTF-8 become marks, on a connection that was handed in too."""
        cursor = self.connection.con.execute(query)
        chunk: list[tuple[Any, ...]] = [()]
        while chunk:
            before, self.connection.con.text_factory = self.connection.con.text_factory, _decoded
            try:
                chunk = cursor.fetchmany(BATCH_ROWS)
            finally:
                self.connection.con.text_factory = before
            yield from chunk

    def _create_temporary(self, name: str, query: str) -> None:
        self.connection.con.execute(f'CREATE TEMPORARY TABLE "{name}" AS {query}')

    def _reason(self, error: Exception) -> str | None:
        return reason(error)


def open_sqlite(path: Path) -> SQLiteSource:
    """Open a SQLite file read-only."""
    import ibis

    try:
        connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True, check_same_thread=False)
        connection.text_factory = _decoded
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        raise SourceError(f"{path} cannot be opened: {reason(error) or 'it is damaged or not a SQLite file'}") from None
    return SQLiteSource(ibis.sqlite.from_connection(connection), name=path.name)


def wrap_sqlite(connection: Any) -> SQLiteSource:
    """Use a live Ibis connection to SQLite."""
    return SQLiteSource(connection, name="sqlite", owned=False)


def reason(error: Exception) -> str | None:
    """Name the kinds of SQLite errors that a user can do something about."""
    known = {
        "SQLITE_BUSY": "another program has locked it",
        "SQLITE_LOCKED": "another program has locked it",
        "SQLITE_NOTADB": "it is not a SQLite file",
        "SQLITE_CORRUPT": "the file is damaged",
        "SQLITE_FULL": "the disk is full",
        "SQLITE_CANTOPEN": "the file cannot be opened",
        "SQLITE_PERM": "permission is denied",
        "SQLITE_AUTH": "permission is denied",
    }
    code = getattr(error, "sqlite_errorname", "") or ""
    return next((words for name, words in known.items() if code.startswith(name)), None)


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _checked(column: Any, stored: Type, declared: Type) -> Any:
    """Return the column with null where the stored value is not of the declared type.

    Dates and times follow SQLite's own convention: text is ISO 8601, a real number a Julian day, a whole one seconds
    since 1970; they come out in whole seconds, so that they compare as text.
    """
    import ibis

    held = column.typeof()
    call = _functions()
    match declared.kind:
        case "integer" | "boolean" | "float" | "decimal" if stored.kind in {"text", "unknown"}:
            number = ibis.cases((held == "text", call[_NUMBER](call["hex"](column))), else_=call[_NUMBER](column))
            return number.cast(ibis_type(declared))
        case "integer" | "boolean":
            return ibis.cases((held == "integer", column))
        case "float" | "decimal":
            return ibis.cases((held.isin(["integer", "real"]), column))
        case "date" | "time" | "timestamp" as kind:
            form = _MOMENTS[kind]
            return ibis.cases(
                (held == "integer", call[f"{kind} of seconds"](form, column, "unixepoch")),
                else_=call[kind](form, column),
            )
        case "bytes":
            return ibis.cases((held == "blob", column))
        case _:
            return column.cast("string")


@cache
def _functions() -> dict[str, Any]:
    """Ibis names for SQLite's functions and our own, typed loosely: a column holds what it happens to hold."""
    import ibis.expr.datatypes as dt
    from ibis import udf

    def builtin(name: str, result: Any, *, arguments: int) -> Any:
        def one(a): ...  # type: ignore[no-untyped-def]
        def two(a, b): ...  # type: ignore[no-untyped-def]
        def three(a, b, c): ...  # type: ignore[no-untyped-def]

        body = (one, two, three)[arguments - 1]
        body.__annotations__["return"] = result
        return udf.scalar.builtin(body, name=name)

    results = {"date": dt.date, "time": dt.time, "timestamp": dt.Timestamp()}
    return {
        _HASH: builtin(_HASH, dt.int64, arguments=1),
        _NUMBER: builtin(_NUMBER, dt.float64, arguments=1),
        "hex": builtin("hex", dt.string, arguments=1),
        **{kind: builtin("strftime", result, arguments=2) for kind, result in results.items()},
        **{f"{kind} of seconds": builtin("strftime", result, arguments=3) for kind, result in results.items()},
    }


def _blake(data: bytes | None) -> int | None:
    if data is None:
        return None
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big", signed=True)


def _number(value: Any, *, encoding: str) -> float | None:
    """Return a number, or what a text spells, which comes as hexadecimal bytes: Python
    refuses a text that is not UTF-8.
    """
    try:
        return float(bytes.fromhex(value).decode(encoding) if isinstance(value, str) else value)
    except (TypeError, ValueError, OverflowError):
        return None


def _converted(rows: Any, schema: pa.Schema) -> Iterator[tuple[Any, ...]]:
    """Read dates, times and decimals, for which SQLite has no type of its own."""
    parsers = [_parser(f.type) for f in schema]
    if not any(parsers):
        return rows  # type: ignore[no-any-return]
    return (tuple(v if p is None or v is None else p(v) for v, p in zip(row, parsers, strict=True)) for row in rows)


def _parser(kind: pa.DataType) -> Callable[[Any], Any] | None:
    import pyarrow as pa

    def quietly(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def parsed(value: Any) -> Any:
            try:
                return parse(value)
            except (ValueError, TypeError, OverflowError, ArithmeticError):
                return None

        return parsed

    if pa.types.is_date(kind):
        return quietly(lambda v: dt.date.fromisoformat(v) if isinstance(v, str) and len(v) == 10 else _moment(v).date())
    if pa.types.is_time(kind):
        return quietly(lambda v: dt.time.fromisoformat(v) if isinstance(v, str) else _moment(v).time())
    if pa.types.is_timestamp(kind):
        return quietly(lambda v: _moment(v) if kind.tz else _moment(v).replace(tzinfo=None))
    if pa.types.is_decimal(kind):
        return quietly(lambda v: round(decimal.Decimal(str(v)), kind.scale))
    if pa.types.is_boolean(kind):
        return lambda v: bool(v) if isinstance(v, int) else None
    return None


def _moment(value: Any) -> dt.datetime:
    """Return the instant in UTC: text is ISO 8601, a real number a Julian day, a whole one seconds since 1970."""
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    if isinstance(value, str):
        found = dt.datetime.fromisoformat(value)
        return found.astimezone(dt.UTC) if found.tzinfo else found.replace(tzinfo=dt.UTC)
    return epoch + (dt.timedelta(days=value - 2440587.5) if isinstance(value, float) else dt.timedelta(seconds=value))
