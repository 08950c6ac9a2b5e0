"""MySQL and MariaDB: tables are made and filled under names of ours, and take their own in one statement.

These servers cannot take back the making of a table, so there is no transaction around it. Until the last statement
nothing is there under a name that was asked for; that one renames all tables, or none. What a process leaves behind
that dies before is dropped by the next one that writes here.
"""

from __future__ import annotations

import re
import secrets
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from dpweave.engines.ddl import create_table, foreign_key, names, quoted, refuse_twins, unique_sets
from dpweave.engines.mysql.connection import connect, label, one, reason, run
from dpweave.engines.mysql.types import CHARACTER, WIDEST_KEY, WIDEST_ROW, mysql_type
from dpweave.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dpweave.engines.stream import Stream
    from dpweave.schema.database import Column, Database, Table, Type

# ruff: noqa: S608 - statements are built from constants and quoted names

MODES = "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,NO_AUTO_VALUE_ON_ZERO"
"""Standard quotes, as our statements have them, and an error where a value does not fit."""
DRAFT = "_dpweave_"
"""Begins the name of everything that is not finished."""
STATEMENT = 1 << 20
"""Bytes of an INSERT, about."""
NUMBER = 16
"""Bytes that a column of a key has at most if it is no text."""
WORDS = pa.large_string()
_OURS = re.compile(rf"{DRAFT}([0-9a-f]{{8}})_(?:new|old)\d+")
_BYTEWISE = """
SELECT collation_name FROM information_schema.collations
WHERE collation_name IN ('utf8mb4_nopad_bin', 'utf8mb4_0900_bin', 'utf8mb4_bin') ORDER BY collation_name = 'utf8mb4_bin'
"""
"""Collations by which two texts are equal where their bytes are. Trailing blanks count but in the last one."""


def write_mysql(database: Database, streams: Mapping[str, Stream], url: str, *, overwrite: bool) -> None:
    """Create the tables in the database that ``url`` names, fill them, and let them take their names."""
    with _writer(url) as writer:
        taken = writer.require_free(database, overwrite=overwrite)
        writer.create(database)
        for table in database:
            writer.fill(streams[table.name])
        for table in database:
            writer.add_keys(table)
        writer.rename(database, taken)


def require_room(database: Database, url: str, *, overwrite: bool) -> None:
    """Refuse a database that cannot be reached or has one of the tables already, or where they cannot be made: they
    are, and dropped.
    """
    with _writer(url) as writer:
        writer.require_free(database, overwrite=overwrite)
        writer.create(database)


@contextmanager
def _writer(url: str) -> Iterator[_Writer]:
    import pymysql

    connection = connect(url, modes=MODES, error=TargetError)
    try:
        writer = _Writer(connection, where=label(url))
        try:
            yield writer
        finally:
            _hang_up(connection)
            _sweep(url, writer.prefix)
    except pymysql.MySQLError as error:
        raise TargetError(f"{label(url)}: {reason(error) or 'the server refused a statement'}") from None
    finally:
        _hang_up(connection)


def _hang_up(connection: Any) -> None:
    import pymysql

    if connection.open:
        with suppress(pymysql.MySQLError):
            connection.close()


def _sweep(url: str, prefix: str) -> None:
    """Drop what is still under a name of ours, on a new connection: the old one may be amid a statement, or lost."""
    import pymysql

    with (
        suppress(pymysql.MySQLError, TargetError),
        closing(connect(url, modes=MODES, error=TargetError)) as connection,
    ):
        _drop(connection, [name for name in _ours(connection) if name.startswith(prefix)])


class _Writer:
    """One session that writes one copy."""

    def __init__(self, connection: Any, *, where: str) -> None:
        self._connection, self._where = connection, where
        token = secrets.token_hex(4)
        self.prefix = f"{DRAFT}{token}_"
        run(connection, f"SELECT GET_LOCK('{DRAFT}{token}', 0)")  # ours until the session ends, however it ends
        left = [
            n
            for n in _ours(connection)
            if one(connection, f"SELECT IS_FREE_LOCK('{n[: len(self.prefix) - 1]}')") == "1"
        ]
        _drop(connection, left)
        self._collation = one(connection, _BYTEWISE)
        self._has_uuid = _takes(connection, "SELECT CAST(NULL AS UUID)")
        self._bytes = min(STATEMENT, int(one(connection, "SELECT @@max_allowed_packet") or STATEMENT) // 2)
        self._made: dict[str, str] = {}

    def require_free(self, database: Database, *, overwrite: bool) -> list[str]:
        """Return the tables that are there already, or refuse them."""
        refuse_twins(database, engine="MySQL")
        there = run(
            self._connection,
            "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = DATABASE()",
        )
        kinds = {str(name): kind for name, kind in there}
        taken = [t.name for t in database if t.name in kinds]
        for name in taken:
            if not overwrite:
                raise TargetError(
                    f"{self._where} has a table {name!r} already; choose another database, or overwrite it with --force"
                    " (overwrite=True in Python)"
                )
            if kinds[name] == "VIEW":
                raise TargetError(f"{self._where} has a view {name!r}, which will not be replaced by a table")
        self._require_alone(taken)
        return taken

    def _require_alone(self, taken: list[str]) -> None:
        leading = run(
            self._connection,
            "SELECT DISTINCT table_schema = DATABASE(), table_name, referenced_table_name"
            " FROM information_schema.key_column_usage WHERE referenced_table_schema = DATABASE()",
        )
        for here, name, target in leading:
            if target in taken and not (here == "1" and name in taken):
                raise TargetError(
                    f"{self._where}: table {name!r}, which the copy does not have, leads to {target!r}, which would be"
                    " replaced; drop that key first, or choose another database"
                )

    def create(self, database: Database) -> None:
        """Make all tables under names of ours, with primary and unique keys."""
        for number, table in enumerate(database):
            rooms, name = _rooms(database, table), f"{self.prefix}new{number}"

            def spell(column: Column, type: Type, rooms: dict[str, int | None] = rooms) -> str:  # noqa: A002
                return mysql_type(column, type, characters=rooms.get(column.name), has_uuid=self._has_uuid)

            made = create_table(database, table, name=quoted(name), spell=spell)
            run(self._connection, f"{made} ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE {self._collation}")
            self._made[table.name] = name

    def fill(self, stream: Stream) -> None:
        """Insert all rows of a table."""
        table = stream.table
        head = f"INSERT INTO {quoted(self._made[table.name])} ({names(c.name for c in table.columns)}) VALUES "
        run(self._connection, "START TRANSACTION")
        with self._connection.cursor() as cursor:
            for batch in stream:
                for rows in _statements(_spelled(batch, table), most=self._bytes):
                    cursor.execute(head + rows)
        run(self._connection, "COMMIT")

    def add_keys(self, table: Table) -> None:
        """Add and check the foreign keys of a table."""
        for key in table.foreign_keys:
            clause = foreign_key(key, lambda name: quoted(self._made[name]))
            run(self._connection, f"ALTER TABLE {quoted(self._made[table.name])} ADD {clause}")

    def rename(self, database: Database, taken: list[str]) -> None:
        """Let all tables take their names at once, and drop those that had them."""
        old = {name: f"{self.prefix}old{i}" for i, name in enumerate(taken)}
        moves = [f"{quoted(name)} TO {quoted(away)}" for name, away in old.items()]
        moves += [f"{quoted(self._made[name])} TO {quoted(name)}" for name in database.names]
        run(self._connection, f"RENAME TABLE {', '.join(moves)}")
        _drop(self._connection, list(old.values()))


def _takes(connection: Any, query: str) -> bool:
    import pymysql

    try:
        run(connection, query)
    except pymysql.MySQLError:
        return False
    return True


def _ours(connection: Any) -> list[str]:
    listed = run(
        connection,
        "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type <> 'VIEW'",
    )
    return [name for (name,) in listed if name and _OURS.fullmatch(name)]


def _drop(connection: Any, tables: list[str]) -> None:
    """Drop tables whatever leads to them: no table but those of one copy does."""
    if tables:
        run(connection, "SET SESSION foreign_key_checks = 0")
        run(connection, f"DROP TABLE IF EXISTS {names(tables)}")
        run(connection, "SET SESSION foreign_key_checks = 1")


def _rooms(database: Database, table: Table) -> dict[str, int | None]:
    """How many characters each text or bytes may have; None where it is stored apart, which no key allows.

    A text in a key gets as much as a key may have, shared with other texts in it, and no more than its own length.
    """
    texts = {c.name: c.type.length for c in table.columns if c.type.kind in ("text", "bytes", "array", "unknown")}
    rooms: dict[str, int | None] = {}
    for columns in (table.primary_key, *unique_sets(database, table), *(k.columns for k in table.foreign_keys)):
        inside = [c for c in columns if c in texts]
        for name in inside:
            free = (WIDEST_KEY - NUMBER * (len(columns) - len(inside))) // CHARACTER // len(inside)
            rooms[name] = min(free, rooms.get(name) or free, texts[name] or free)
    left = WIDEST_ROW - NUMBER * len(table.columns) - sum(CHARACTER * (n or 0) for n in rooms.values())
    lengths = sorted((length, name) for name, length in texts.items() if length and name not in rooms)
    for length, name in lengths:
        left -= CHARACTER * length + 2
        if left >= 0:
            rooms[name] = length
    return rooms


def _spelled(batch: pa.RecordBatch, table: Table) -> pa.Array:
    """Return each row as SQL, in brackets."""
    columns = [_literals(batch.column(c.name), table, c) for c in table.columns]
    filled = [pc.fill_null(column, pa.scalar("NULL", WORDS)) for column in columns]
    return _joined("(", _joined(*filled, between=","), ")")


def _joined(*parts: pa.Array | str, between: str = "") -> pa.Array:
    words = (pa.scalar(part, WORDS) if isinstance(part, str) else part for part in (*parts, between))
    return pc.binary_join_element_wise(*words)


def _literals(array: pa.Array, table: Table, column: Column) -> pa.Array:
    kind = array.type
    if pa.types.is_binary(kind):
        return pa.array([None if v is None else f"X'{v.hex()}'" for v in array.to_pylist()], WORDS)
    if pa.types.is_floating(kind) and not pc.all(pc.is_finite(array)).as_py() and array.null_count < len(array):
        raise TargetError(
            f"column {column.name!r} of {table.name!r} holds numbers that are not finite, which MySQL cannot store"
        )
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("us", kind.tz)).cast(pa.timestamp("us"))
    text = array.cast(WORDS)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return text
    return _joined("'", pc.replace_substring(text, "'", "''"), "'")


def _statements(rows: pa.Array, *, most: int) -> Iterator[str]:
    """Return rows with commas between them, about so many bytes at a time."""
    held: list[str] = []
    size = 0
    for row, length in zip(rows.to_pylist(), pc.binary_length(rows).to_pylist(), strict=True):
        if held and size + length > most:
            yield ",".join(held)
            held, size = [], 0
        held.append(row)
        size += length + 1
    if held:
        yield ",".join(held)
