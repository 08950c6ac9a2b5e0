"""Opening every kind of source: what it hands out, what it refuses, and what its errors never say."""

from __future__ import annotations

import sqlite3

import duckdb
import ibis
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpweave.engines.duckdb.source import SPARE_NUMBERS
from dpweave.engines.opening import open_source
from dpweave.engines.source_base import ROW
from dpweave.errors import SourceError
from dpweave.schema.database import Database, Table
from tests.backends import columns

SECRET = "hunter2secret"


def make_duckdb(path, *statements: str):
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


def make_sqlite(path, script: str):
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()
    return path


def rows(source, name: str) -> list[dict]:
    return pa.Table.from_batches(source.read(name)).to_pylist()


def test_an_open_source_is_returned_as_it_is() -> None:
    with open_source({"t": pa.table({"a": [1]})}) as source:
        assert open_source(source) is source


def test_frames_of_every_library() -> None:
    frames = {
        "p": pd.DataFrame({"id": [1, 2], "c": pd.Categorical(["x", None]), "t": pd.to_datetime(["2020-01-01", None])}),
        "q": pl.DataFrame({"id": [1], "c": pl.Series(["x"], dtype=pl.Categorical), "l": [[1, 2]]}),
        "r": pa.table({"id": [1], "nothing": pa.nulls(1), "half": pa.array([0.5], pa.float16())}),
    }
    with open_source(frames) as source:
        types = {t.name: [str(c.type) for c in t.columns] for t in source.database}
        assert types == {
            "p": ["int64", "text", "timestamp"],  # categories are read off the rows, so they are not an enum
            "q": ["int64", "text", "array"],
            "r": ["int64", "unknown", "float32"],
        }
        assert rows(source, "p")[1] == {"id": 2, "c": None, "t": None}
        assert rows(source, "q") == [{"id": 1, "c": "x", "l": "[1, 2]"}]
        assert not source.proves_unique("p", ("id",))
        assert not source.declares_keys
        assert source.embedded


@pytest.mark.parametrize(
    ("frame", "names"),
    [
        (pd.DataFrame({"ok": [1, 2], "bad": [SECRET, 3]}, dtype=object), "column 'bad' of 't'"),
        (pa.table({"a": [1], "A": [2]}), "'a' and 'A'"),
        ([1, 2, 3], "list"),
    ],
)
def test_frames_that_cannot_be_read(frame, names: str) -> None:
    with pytest.raises(SourceError) as caught:
        open_source({"t": frame})
    assert names in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nowhere.duckdb", "there is no file"),
        (f"oracle://zelda:{SECRET}@host/db", "known are postgresql"),
        (f"mysql://zelda:{SECRET}@127.0.0.1:1/shop", "cannot be reached"),
        (42, "not int"),
        (f"postgresql://zelda:{SECRET}@127.0.0.1:1/shop", "cannot be reached"),
        (f"postgresql://zelda:{SECRET}@[oops/shop", "postgresql"),
    ],
)
def test_sources_that_are_not_there(source, words: str) -> None:
    with pytest.raises(SourceError) as caught:
        open_source(source)
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)
    assert "zelda" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_files_that_are_something_else(tmp_path) -> None:
    (tmp_path / "notes.db").write_text("not a database at all")
    with pytest.raises(SourceError, match="neither a DuckDB nor a SQLite file"):
        open_source(tmp_path / "notes.db")
    (tmp_path / "broken.duckdb").write_bytes(b"\0" * 8 + b"DUCK" + b"\1" * 5000)
    with pytest.raises(SourceError, match="cannot be opened"):
        open_source(tmp_path / "broken.duckdb")
    (tmp_path / "broken.sqlite").write_bytes(b"SQLite format 3\0" + b"\1" * 5000)
    with pytest.raises(SourceError, match="cannot be opened"):
        open_source(tmp_path / "broken.sqlite")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match=r"no \.parquet and no \.csv"):
        open_source(tmp_path / "empty")


def test_a_suffix_does_not_matter_where_the_file_says_what_it_is(tmp_path) -> None:
    make_duckdb(tmp_path / "a.db", "CREATE TABLE t (id INT)")
    make_sqlite(tmp_path / "b.data", "CREATE TABLE t (id INT)")
    assert [open_source(tmp_path / n).connection.name for n in ("a.db", "b.data")] == ["duckdb", "sqlite"]


def test_views_and_missing_tables_are_refused_by_name(tmp_path) -> None:
    script = "CREATE TABLE orders (id INTEGER PRIMARY KEY); CREATE VIEW latest AS SELECT * FROM orders;"
    for path in (make_duckdb(tmp_path / "a.duckdb", script), make_sqlite(tmp_path / "a.sqlite", script)):
        with open_source(path) as source:
            with pytest.raises(SourceError, match=r"'latest' of .* is a view"):
                source.table("latest")
            with pytest.raises(SourceError, match="did you mean 'orders'"):
                source.table("order")


def test_sources_cannot_be_written(tmp_path) -> None:
    with open_source(make_duckdb(tmp_path / "a.duckdb", "CREATE TABLE t (id INT)")) as source:
        with pytest.raises(duckdb.Error, match="read-only"):
            source.connection.con.execute("INSERT INTO t VALUES (1)")
        assert source.fetch(source.materialise(source.table("t")).count())[0][0].as_py() == 0
    with open_source(make_sqlite(tmp_path / "a.sqlite", "CREATE TABLE t (id INT)")) as source:
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            source.connection.con.execute("INSERT INTO t VALUES (1)")
        assert source.fetch(source.materialise(source.table("t")).count())[0][0].as_py() == 0


def test_a_failing_query_does_not_quote_values() -> None:
    with open_source({"t": pa.table({"a": [SECRET]})}) as source:
        table = source.table("t")
        with pytest.raises(SourceError) as caught:
            source.fetch(table.select(x=table.a.cast("int64")))
    assert SECRET not in str(caught.value)
    assert "ConversionException" in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_values_that_sqlite_should_not_hold_are_null(tmp_path) -> None:
    path = make_sqlite(
        tmp_path / "odd.sqlite",
        """
        CREATE TABLE t (id INTEGER PRIMARY KEY, n INT, x REAL, d DATE, ts DATETIME, b BLOB, flag BOOLEAN, s TEXT,
          tod TIME);
        INSERT INTO t VALUES (1, 5, 1.5, '2020-02-29', '2020-02-29 12:30:15', x'00', 1, 'a', '10:20:30');
        INSERT INTO t VALUES (2, 'five', 'x', 'soon', 'later', 'text', 'yes', x'ff', 'noon');
        INSERT INTO t VALUES (3, 2.5, 7, 86400, 86400, 1, 0, 12, 3600);
        INSERT INTO t VALUES (4, NULL, NULL, 2440588.5, '2020-01-01T00:00:00.250Z', NULL, NULL, NULL, NULL);
        """,
    )
    with open_source(path) as source:
        checked = source.fetch(source.table("t").order_by("id")).to_pydict()
        assert checked["n"] == [5, None, None, None]
        assert checked["x"] == [1.5, None, 7.0, None]
        assert [str(d) for d in checked["d"]] == ["2020-02-29", "None", "1970-01-02", "1970-01-02"]
        assert [str(d) for d in checked["ts"]] == [
            "2020-02-29 12:30:15",
            "None",
            "1970-01-02 00:00:00",
            "2020-01-01 00:00:00",
        ]
        assert checked["flag"] == [True, None, False, None]
        assert checked["b"] == [b"\0", None, None, None]
        assert [str(d) for d in checked["tod"]] == ["10:20:30", "None", "01:00:00", "None"]
        verbatim = pa.Table.from_batches(source.read("t")).to_pydict()
        assert verbatim["n"][:2] == [5, None]
        assert str(verbatim["ts"][3]) == "2020-01-01 00:00:00.250000"


def test_hash_orders_by_the_text_alone(tmp_path) -> None:
    make_sqlite(
        tmp_path / "a.sqlite", "CREATE TABLE t (x TEXT); INSERT INTO t VALUES ('a'), ('b'), ('a'), (NULL), ('ü😀')"
    )
    for given in ({"t": pa.table({"x": ["a", "b", "a", None, "ü😀"]})}, tmp_path / "a.sqlite"):
        with open_source(given) as source:
            table = source.table("t")
            found = source.fetch(table.select(table.x, h=source.hash(table.x))).to_pylist()
        by_text = {r["x"]: r["h"] for r in found}
        assert all(by_text[r["x"]] == r["h"] for r in found)
        assert len({h for x, h in by_text.items() if x is not None}) == 3


def test_folder_of_parquet_and_csv(tmp_path) -> None:
    pq.write_table(
        pa.table({"id": pa.array([1], pa.int16()), "when": pa.array([0], pa.timestamp("ns"))}), tmp_path / "a b.parquet"
    )
    (tmp_path / "parts").mkdir()
    for i in range(2):
        pq.write_table(pa.table({"x": [i]}), tmp_path / "parts" / f"{i}.parquet")
    (tmp_path / "c.csv").write_text('id,"say ""x"""\n1,\n2,""\n3,"a,\nb"\n', encoding="utf-8")
    with open_source(tmp_path) as source:
        assert {t.name: [(c.name, str(c.type)) for c in t.columns] for t in source.database} == {
            "a b": [("id", "int16"), ("when", "timestamp")],
            "c": [("id", "text"), ('say "x"', "text")],
            "parts": [("x", "int64")],
        }
        assert [r['say "x"'] for r in rows(source, "c")] == [None, "", "a,\nb"]
        assert sorted(r["x"] for r in rows(source, "parts")) == [0, 1]
        source.declare(Database((Table("c", columns(**{"id": "int32", 'say "x"': "date"}), primary_key=("id",)),)))
        assert [r["id"] for r in rows(source, "c")] == [1, 2, 3]
        assert [r['say "x"'] for r in rows(source, "c")] == [None, None, None]


@pytest.mark.parametrize("header", ["a,a", "name,name", "Name,name", "a,b,A"])
def test_a_header_that_repeats_a_name_is_refused_in_words(tmp_path, header) -> None:
    (tmp_path / "t.csv").write_text(f"{header}\n")
    with pytest.raises(SourceError, match=r"two columns of 't' are named .* rename one of them"):
        open_source(tmp_path)


def _numbers(source, name: str) -> dict[int, int]:
    numbered = source.numbered(name)
    found = source.fetch(numbered.select("x", ROW))
    return dict(zip(found[ROW].to_pylist(), found["x"].to_pylist(), strict=True))


def _numbered_sources(folder):
    x = list(range(10))
    yield {"t": pa.table({"x": x})}
    yield make_duckdb(folder / "a.duckdb", "CREATE TABLE t AS SELECT range AS x FROM range(10)")
    yield make_duckdb(folder / "b.duckdb", "CREATE TABLE t AS SELECT range AS x, 7 AS RowID FROM range(10)")
    yield make_duckdb(
        folder / "c.duckdb",
        "CREATE TABLE t AS SELECT range AS x FROM range(1300000)",
        "DELETE FROM t WHERE x < 1299990",
    )
    yield make_sqlite(
        folder / "d.sqlite",
        "CREATE TABLE t (x INTEGER PRIMARY KEY);" + "".join(f"INSERT INTO t VALUES ({10**12 + i});" for i in x),
    )
    for name, parts in (("parts", ([], x[:3], x[3:])), ("odd", (x[:4], x[4:]))):
        (folder / name / "t").mkdir(parents=True)
        for i, part in enumerate(parts):
            own = {"file_index": [5] * len(part)} if name == "odd" else {}
            pq.write_table(pa.table({"x": pa.array(part, pa.int64()), **own}), folder / name / "t" / f"{i}.parquet")
        yield folder / name
    (folder / "csv").mkdir()
    (folder / "csv" / "t.csv").write_text("x\n" + "".join(f"{i}\n" for i in x))
    yield folder / "csv"


def test_rows_keep_their_numbers_from_query_to_query(tmp_path) -> None:
    for given in _numbered_sources(tmp_path):
        with open_source(given) as source:
            first = _numbers(source, "t")
            assert first == _numbers(source, "t")
            assert len(first) == len(set(first.values())) == 10
            assert min(first) >= 0
            assert max(first) < 2 * 10 + SPARE_NUMBERS
            assert ROW not in source.database["t"].column
            assert all(len(batch.schema) == len(source.database["t"].columns) for batch in source.read("t"))


def test_rows_keep_their_numbers_where_a_query_leaves_files_out(tmp_path) -> None:
    """Of folders named ``key=value``, DuckDB opens those alone that a query asks for, and counts the files anew."""
    for i, kind in enumerate(["__HIVE_DEFAULT_PARTITION__", "a", "b"]):
        (tmp_path / "t" / f"kind={kind}").mkdir(parents=True)
        pq.write_table(pa.table({"x": [2 * i, 2 * i + 1]}), tmp_path / "t" / f"kind={kind}" / "part.parquet")
    with open_source(tmp_path) as source:
        every, numbered = _numbers(source, "t"), source.numbered("t")
        for some in (numbered.filter(numbered.kind.notnull()), numbered.filter(numbered.kind == "b")):
            found = source.fetch(some).to_pylist()
            assert 0 < len(found) < 6
            assert all(every[r[ROW]] == r["x"] for r in found)


def test_a_part_that_is_no_parquet_file_is_told_in_our_words(tmp_path) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "t" / "0.parquet")
    (tmp_path / "t" / "1.parquet").write_bytes(b"PAR1 torn PAR1")
    with pytest.raises(SourceError), open_source(tmp_path) as source:  # when it is opened, or read by an old DuckDB
        rows(source, "t")


def test_our_name_for_row_numbers_is_refused(tmp_path) -> None:
    frames = {"t": pa.table({"x": [1], ROW.upper(): [0]})}
    stored = make_duckdb(tmp_path / "a.duckdb", f'CREATE TABLE t (x INT, "{ROW.upper()}" INT)')
    for given in (frames, stored):
        with open_source(given) as source, pytest.raises(SourceError, match="a name that is ours"):
            source.numbered("t")


def test_declared_columns_must_be_there() -> None:
    with open_source({"t": pa.table({"id": [1]})}) as source, pytest.raises(SourceError, match="did you mean 'id'"):
        source.declare(Database((Table("t", columns(idd="int64")),)))


def test_live_connections_stay_open(tmp_path) -> None:
    path = make_duckdb(tmp_path / "a.duckdb", "CREATE TABLE t (id INT PRIMARY KEY)")
    connection = ibis.duckdb.from_connection(duckdb.connect(str(path)))
    with open_source(connection) as source, open_source(connection) as other:
        assert source.database["t"].primary_key == ("id",)
        one, two = (s.materialise(s.table("t").mutate(x=ibis.literal(n))) for s, n in ((source, 1), (other, 2)))
        assert one.get_name() != two.get_name()
    assert connection.con.execute("SELECT count(*) FROM duckdb_tables() WHERE temporary").fetchone() == (0,)
    assert connection.con.execute("SELECT count(*) FROM t").fetchone() == (0,)


# -- PostgreSQL --------------------------------------------------------------------------------------------------------


def test_postgres_counts_on_the_server_and_cannot_write(postgres) -> None:
    import psycopg

    url = postgres.fresh()
    postgres.run(
        "CREATE TYPE mood AS ENUM ('a', 'b')",
        "CREATE TABLE t (id int PRIMARY KEY, m mood, u uuid, d date, n numeric)",
        "INSERT INTO t VALUES (1, 'a', gen_random_uuid(), 'infinity', 'NaN'), (2, 'a', NULL, '0044-03-15 BC', 1.5), "
        "(3, NULL, NULL, '1582-10-15', NULL)",
        url=url,
    )
    with open_source(url) as source:
        table = source.table("t")
        assert source.fetch(table.filter(table.m == "zebra").count())[0][0].as_py() == 0
        kept = source.materialise(table.group_by("m").agg(n=table.count()))
        assert {(r["m"], r["n"]) for r in source.fetch(kept).to_pylist()} == {("a", 2), (None, 1)}
        assert [str(r["d"]) for r in rows(source, "t")] == ["None", "None", "1582-10-15"]
        lookup = ibis.memtable(pa.table({"word": ["a", "it's"], "code": pa.array([7, 8], pa.int32())}))
        joined = table.join(lookup, table.m == lookup.word).select(table.id, lookup.code)
        assert {r["code"] for r in source.fetch(joined).to_pylist()} == {7}
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            source.connection.con.execute("DELETE FROM t")
        assert source.name.startswith("postgresql://localhost")
        assert not source.embedded
        with pytest.raises(SourceError, match="no cast that is safe"):
            source.declare(Database((Table("t", columns(id="int32", m="date")),)))


def test_postgres_refusals_say_what_to_do(postgres) -> None:
    url = postgres.fresh()
    name = url.split("?")[0].split("/")[-1]
    postgres.run(
        "CREATE TABLE open_one (id int PRIMARY KEY)",
        "CREATE TABLE closed (id int PRIMARY KEY)",
        f"CREATE ROLE ann_{name} LOGIN PASSWORD '{SECRET}'",
        f"GRANT SELECT ON open_one TO ann_{name}",
        f"REVOKE TEMP ON DATABASE {name} FROM PUBLIC",
        url=url,
    )
    postgres.ask_for_password(name)
    ann = url.replace("postgres:@", f"ann_{name}:{SECRET}@")
    with open_source(ann) as source:
        assert not source.can_materialise
        assert source.fetch(source.materialise(source.table("open_one")).count())[0][0].as_py() == 0
        with pytest.raises(SourceError, match="permission to read table 'closed'"):
            source.table("closed")
        with pytest.raises(SourceError, match="permission to read table 'closed'"):
            source.declare(source.catalogue)  # as fit does, before it opens the ledger
    with pytest.raises(SourceError, match="refused the user name or password") as caught:
        open_source(ann.replace(SECRET, f"{SECRET}wrong"))
    assert SECRET not in str(caught.value)
    with pytest.raises(SourceError, match="no such database"):
        open_source(url.replace(name, "nowhere"))


def test_a_connection_that_drops_in_the_middle(postgres) -> None:
    url = postgres.fresh()
    postgres.run("CREATE TABLE t (id int PRIMARY KEY)", url=url)
    source = open_source(url)
    table = source.table("t")
    postgres.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname ="
        " current_database()",
        url=url,
    )
    with pytest.raises(SourceError, match="connection"):
        source.fetch(table.count())
    source.close()


def test_columns_may_have_the_names_of_arguments() -> None:
    frame = pa.table({"id": [1, 2], "self": [3, 4], "exprs": [5, 6]})
    with open_source({"t": frame}) as source:
        assert source.whole("t").to_pydict() == frame.to_pydict()
