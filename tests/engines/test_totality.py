"""One row must not stop a fit: what stopped one once, after a charge, by what the row held."""

from __future__ import annotations

import datetime as dt
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpweave as dw
from dpweave.errors import PlanError, SourceError
from dpweave.schema.database import Type
from dpweave.schema.domain import Categories
from tests.engines.test_sources import make_duckdb, make_sqlite

if TYPE_CHECKING:
    from pathlib import Path

BAD = "CAST(x'61ff' AS TEXT)"
"""A text of SQLite that is not UTF-8."""


def fit(given: Any, *, kinds: dict[str, str] | None = None, ledger: Path | None = None) -> dw.Model:
    """Fit a drafted plan for table ``t``, with some columns read in other types, so that all domains are learned."""
    drafted = dw.Plan.draft(given, protect=["t"])
    table = drafted.table["t"]
    columns = tuple(
        replace(c, column=replace(c.column, type=Type.parse(kinds[c.name]))) if c.name in (kinds or {}) else c
        for c in table.columns
    )
    changed = replace(table, columns=columns, mechanism="independent")
    others = (replace(t, mechanism="independent") for t in drafted.tables if t is not table)
    plan = replace(drafted, tables=(changed, *others))
    return dw.fit(given, plan, epsilon=50.0, delta=1e-6, insecure_seed=0, ledger=ledger)


SQLITE = {
    "a text key": (
        "CREATE TABLE t (id TEXT PRIMARY KEY NOT NULL, v INT); INSERT INTO t SELECT value, 1 FROM n;"
        f"INSERT INTO t VALUES ({BAD}, 1);"
    ),
    "a table without a key": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t SELECT value FROM n;"
        "CREATE TABLE u (owner INT REFERENCES t, v TEXT); INSERT INTO u SELECT value, value % 3 FROM n;"
        f"INSERT INTO u VALUES (1, {BAD}), (1, x'ff'), (1, 7);"
    ),
    "bytes in a text key": (
        "CREATE TABLE t (id TEXT PRIMARY KEY NOT NULL, v INT); INSERT INTO t SELECT value, 1 FROM n;"
        "INSERT INTO t VALUES (x'ff00', 1), (x'fe', 2);"
    ),
    "bytes as UUIDs": (
        "CREATE TABLE t (id UUID PRIMARY KEY NOT NULL, v INT); INSERT INTO t SELECT randomblob(16), 1 FROM n;"
    ),
    "a text of a number": (
        f"CREATE TABLE t (id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES (1, {BAD}), (2, 5), (3, '7');"
    ),
    "NUL in a category": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT);INSERT INTO t SELECT value, 'a' || char(0) || 'b' FROM n;"
    ),
}


@pytest.mark.parametrize("what", SQLITE)
@pytest.mark.parametrize("live", [False, True], ids=["a file", "a connection"])
def test_sqlite(tmp_path, what: str, live: bool) -> None:
    numbers = (
        "CREATE TEMPORARY TABLE n AS WITH RECURSIVE c(value) AS (VALUES (1) UNION ALL SELECT value + 1 FROM c LIMIT"
        " 300) SELECT * FROM c;"
    )
    path = make_sqlite(tmp_path / "a.sqlite", numbers + SQLITE[what])
    kinds = {"v": "int64"} if what == "a text of a number" else None
    if not live:
        fit(path, kinds=kinds)
        return
    connection = sqlite3.connect(path)
    fit(ibis.sqlite.from_connection(connection), kinds=kinds)
    assert connection.text_factory is str  # what was handed in stays as it was
    connection.close()


@pytest.mark.parametrize(
    ("kind", "usual", "odd"),
    [
        ("HUGEINT", "range", f"{10**38}::HUGEINT"),
        ("UHUGEINT", "range", f"'{2**128 - 1}'::UHUGEINT"),
        ("TIMETZ", "'10:00:00+02'::TIMETZ", "'24:00:00-15:59'::TIMETZ"),
        ("TIMESTAMP_NS", "'2116-06-01'::TIMESTAMP_NS", "'2262-01-01'::TIMESTAMP_NS"),
        ("INTERVAL", "INTERVAL 1 DAY", "INTERVAL 178000 YEARS"),
        ("BIT", "'01'::BIT", "repeat('1', 999)::BIT"),
        ("STRUCT(a INT)", "{'a': 1}", "{'a': NULL}"),
    ],
)
def test_duckdb(tmp_path, kind: str, usual: str, odd: str) -> None:
    path = make_duckdb(
        tmp_path / "a.duckdb",
        f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {kind})",
        f"INSERT INTO t SELECT range, {usual} FROM range(300)",
        f"INSERT INTO t VALUES (1000, {odd})",
    )
    fit(path)


def test_nanoseconds_of_a_frame() -> None:
    """A domain is learned up to years that are no nanoseconds."""
    moments = [dt.datetime(2116, 6, 1 + i % 28) for i in range(300)]
    fit({"t": pa.table({"id": range(300), "v": pa.array(moments, pa.timestamp("ns"))})})


@pytest.mark.parametrize("engine", ["duckdb", "sqlite", "csv", "parquet", "frames", "postgresql", "mariadb"])
def test_columns_named_like_words_of_sql(tmp_path, engine: str, request) -> None:
    names = ["true", "false", "null", "select", "default", "rowid", "a b", 'say "x"', "%s", ":x", "{x}", "user"]
    rows = pa.table({"id": range(50), **{n: [str(i % 2) for i in range(50)] for n in names}})
    given: Any = {"t": rows}
    if engine in ("csv", "parquet"):
        from pyarrow import csv

        (csv.write_csv if engine == "csv" else pq.write_table)(rows, tmp_path / f"t.{engine}")
        given = tmp_path
    elif engine != "frames":
        typed = ", ".join('"' + n.replace('"', '""') + '" TEXT' for n in names)
        script = [f"CREATE TABLE t (id INT PRIMARY KEY, {typed})"]
        script += [f"INSERT INTO t VALUES ({i}{f', {i % 2}' * len(names)})" for i in range(50)]
        if engine == "mariadb":
            server = request.getfixturevalue("mariadb")
            given = server.fresh()
            server.run(*script, url=given, modes="ANSI_QUOTES")
        elif engine == "postgresql":
            postgres = request.getfixturevalue("postgres")
            given = postgres.fresh()
            postgres.run(*script, url=given)
        else:
            path = tmp_path / f"a.{engine}"
            given = make_duckdb(path, *script) if engine == "duckdb" else make_sqlite(path, ";".join(script))
    if engine == "sqlite":  # it forgets the names of columns called true or false
        ledger = tmp_path / "ledger.jsonl"
        with pytest.raises(SourceError, match="column 'true' of 't' has a name that SQLite cannot read"):
            fit(given, ledger=ledger)
        assert '"charge"' not in ledger.read_text()
        return
    model = fit(given)
    assert set(names) <= set(model.plan.database["t"].column)


@pytest.mark.parametrize(
    ("kind", "usual", "odd", "read"),
    [
        ("numeric", "1", "1e400", "float64"),
        ("numeric", "1", "1e-400", "float64"),
        ("numeric", "1", "NaN", "float64"),
        ("numeric(200,100)", "1", "2", None),
        ("numeric(2,-3)", "5000", "1000", None),
        ("timetz", "10:00+02", "24:00:00-15:59", None),
        ("time", "10:00", "24:00:00", None),
        ("oid", "1", "4294967295", None),
    ],
)
def test_postgresql(postgres, kind: str, usual: str, odd: str, read: str | None) -> None:
    url = postgres.fresh()
    postgres.run(
        f"CREATE TABLE t (id int PRIMARY KEY, v {kind})",
        f"INSERT INTO t SELECT i, '{usual}' FROM generate_series(1, 300) AS i",
        f"INSERT INTO t VALUES (1000, '{odd}')",
        url=url,
    )
    fit(url, kinds={"v": read} if read else None)


@pytest.mark.parametrize(
    ("kind", "usual", "odd"),
    [
        ("date", "2020-01-02", "0000-00-00"),
        ("date", "2020-01-02", "2020-02-31"),
        ("datetime", "2020-01-02 10:00", "2020-00-10"),
        ("time", "10:00", "-800:00:00"),
        ("bigint unsigned", "7", "18446744073709551615"),
        ("decimal(65,0)", "7", "9" * 65),
        ("varchar(20)", "a", "A "),
        ("enum('a','b')", "a", "c"),
    ],
)
def test_mariadb(mariadb, kind: str, usual: str, odd: str) -> None:
    url = mariadb.fresh()
    mariadb.run(
        f"CREATE TABLE t (id int PRIMARY KEY, v {kind})",
        f"INSERT INTO t SELECT seq, '{usual}' FROM seq_1_to_300",
        f"INSERT INTO t VALUES (1000, '{odd}')",
        url=url,
        modes="ALLOW_INVALID_DATES",
    )
    fit(url)


def test_moments_that_cannot_be_read_are_refused_before_anything_is_charged(tmp_path) -> None:
    """Any 64 bits may be stored as a moment; DuckDB stops where it has to count them in microseconds."""
    far = np.array([0] * 99 + [2**62])
    for i, kind in enumerate((pa.timestamp("s", "UTC"), pa.timestamp("us"), pa.duration("s"))):
        given = {
            "t": pa.table({"id": range(100), "v": pa.array(far if i != 1 else [-(2**63)] * 100, pa.int64()).cast(kind)})
        }
        ledger = tmp_path / f"{i}.jsonl"
        with pytest.raises(SourceError, match="'t' cannot be read to their end"):
            fit(given, ledger=ledger)
        assert '"charge"' not in ledger.read_text()


def test_frames_with_texts_that_are_not_utf8_are_refused_when_they_are_opened() -> None:
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")])
    with pytest.raises(SourceError, match="texts that are not UTF-8"):
        fit({"t": pa.table({"v": bad})})


@pytest.mark.parametrize("word", ["a\0b", "\ud800"])
def test_categories_that_no_engine_can_be_asked_for_are_refused_with_the_plan(word: str) -> None:
    plan = dw.Plan.draft({"t": pa.table({"id": [1], "v": ["a"]})}, protect=["t"])
    with pytest.raises(PlanError, match="is no value of type text"):
        plan.replace_domain("t", "v", Categories((word,)))
