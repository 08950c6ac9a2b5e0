"""Every sink through one matrix: types, names and keys survive, and a failed write leaves nothing behind."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from dpweave.engines.opening import open_source
from dpweave.engines.writing import write
from dpweave.errors import SchemaError, TargetError, UsageError
from dpweave.schema.database import Database, ForeignKey, Table, Type
from tests.backends import columns, every_type, knotted

KINDS = ["duckdb", "sqlite", "postgresql", "mariadb", "parquet", "csv"]
SERVERS = {"postgresql": "postgres", "mariadb": "mariadb"}
ON_DISK = [k for k in KINDS if k not in SERVERS]


@pytest.fixture(params=KINDS)
def target(request, tmp_path):
    if request.param in SERVERS:
        return request.getfixturevalue(SERVERS[request.param]).fresh()
    return str(tmp_path / f"copy.{request.param}")


def kind_of(target: str) -> str:
    return target.split("://", 1)[0] if "://" in target else Path(target).suffix[1:]


def rows(source, name: str, by: str) -> list[dict]:
    return sorted(pa.Table.from_batches(source.read(name)).to_pylist(), key=lambda r: str(r[by]))


REPLACED = {
    "duckdb": {"text(20)": "text"},
    "sqlite": {'enum("so so","it\'s \\"ok\\"")': "text", "array": "text"},
    "postgresql": {"int8": "int16", "uint8": "int16", "uint16": "int32", "uint32": "int64"},
    "mariadb": {"timestamptz": "timestamp", "array": "text"},
    "parquet": {},
    "csv": {},
}
"""Types that an engine does not have come back as the next wider one."""


def test_every_type_survives(target) -> None:
    table, given = every_type()
    write(Database((table,)), {table.name: given}, target)
    with open_source(target) as source:
        found = source.database[table.name]
        replaced = REPLACED[kind_of(target)]
        assert {c.name: str(c.type) for c in found.columns} == {
            c.name: replaced.get(str(c.type), str(c.type)) for c in table.columns
        }
        assert [c.name for c in found.columns] == [c.name for c in table.columns]
        assert found.primary_key == ("id",)
        assert [c.nullable for c in found.columns] == [c.nullable for c in table.columns]
        back = rows(source, table.name, "id")
    expected = given.to_pylist()
    if kind_of(target) == "mariadb":
        expected = [{**r, "instant": r["instant"] and r["instant"].replace(tzinfo=None)} for r in expected]
    if kind_of(target) == "postgresql":
        expected = [{**r, "list": None if r["list"] is None else "{}"} for r in expected]
    assert back == expected


def test_keys_of_every_shape_survive(target) -> None:
    database, tables = knotted()
    write(database, tables, target)
    with open_source(target) as source:
        found = source.database
        assert {t.name: [c.name for c in t.columns] for t in found} == {
            t.name: [c.name for c in t.columns] for t in database
        }
        for table in database:
            assert found[table.name].primary_key == table.primary_key
            assert set(found[table.name].foreign_keys) == set(table.foreign_keys)
            assert set(table.unique) <= set(found[table.name].unique)
            first = table.columns[0].name
            assert rows(source, table.name, first) == sorted(
                tables[table.name].to_pylist(), key=lambda r: str(r[first])
            )


def test_foreign_keys_are_enforced_after_the_load(target, request) -> None:
    database, tables = knotted()
    write(database, tables, target)
    dangling = "INSERT INTO link (a, b, staff_id) VALUES ('zz', 99, 1)"
    match kind_of(target):
        case "duckdb":
            with duckdb.connect(target) as connection, pytest.raises(duckdb.ConstraintException):
                connection.execute(dangling)
        case "sqlite":
            connection = sqlite3.connect(target)
            connection.execute("PRAGMA foreign_keys = ON")
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
            connection.execute(dangling)
            with pytest.raises(sqlite3.IntegrityError):
                connection.commit()
            connection.close()
        case "postgresql":
            import psycopg

            with psycopg.connect(target, autocommit=True) as connection:
                for statement in (
                    dangling,
                    "UPDATE store SET manager_id = 99",
                    "UPDATE tree SET parent_id = 99 WHERE id = 2",
                ):
                    with pytest.raises(psycopg.errors.ForeignKeyViolation):
                        connection.execute(statement)
        case "mariadb":
            import pymysql

            server = request.getfixturevalue("mariadb")
            for statement in (
                dangling,
                "UPDATE store SET manager_id = 99",
                "UPDATE tree SET parent_id = 99 WHERE id = 2",
            ):
                with pytest.raises(pymysql.err.IntegrityError, match="foreign key constraint fails"):
                    server.run(statement, url=target)


def test_dangling_keys_are_refused_and_nothing_is_left(target) -> None:
    database, tables = knotted()
    broken = {**tables, "staff": tables["staff"].set_column(1, "store_id", pa.array([1, 99, None], pa.int64()))}
    if kind_of(target) in {"parquet", "csv"}:
        pytest.skip("files have no constraints")
    with pytest.raises(TargetError):
        write(database, broken, target)
    nothing_is_left(target)
    write(database, tables, target)


def test_a_namespace_survives(target) -> None:
    table = Table(
        "sales.orders",
        columns(id="int64!", up="int64"),
        primary_key=("id",),
        foreign_keys=(ForeignKey(("up",), "sales.orders", ("id",)),),
        namespace="sales",
    )
    given = pa.table({"id": pa.array([2, 1], pa.int64()), "up": pa.array([1, None], pa.int64())})
    write(Database((table,)), {table.name: given}, target)
    with open_source(target) as source:
        assert source.database.names == ("sales.orders",)
        assert source.database["sales.orders"].foreign_keys == table.foreign_keys
        assert rows(source, "sales.orders", "id") == [{"id": 1, "up": None}, {"id": 2, "up": 1}]


def test_an_existing_target_is_refused_unless_told(target) -> None:
    database, tables = knotted()
    write(database, tables, target)
    with pytest.raises(TargetError, match="already"):
        write(database, tables, target)
    fewer = {**tables, "link": tables["link"].slice(0, 1)}
    write(database, fewer, target, overwrite=True)
    with open_source(target) as source:
        assert source.fetch(source.table("link").count())[0][0].as_py() == 1


def test_a_failed_overwrite_keeps_the_old_target(target) -> None:
    database, tables = knotted()
    write(database, tables, target)

    def failing():
        yield tables["link"].to_batches()[0]
        raise KeyError("the sampler broke")

    with pytest.raises(KeyError, match="the sampler broke"):
        write(database, {**tables, "link": failing()}, target, overwrite=True)
    with open_source(target) as source:
        assert source.fetch(source.table("link").count())[0][0].as_py() == 2
    if "://" not in target:
        assert [p.name for p in Path(target).parent.iterdir()] == [Path(target).name]


def test_rows_are_pulled_batch_by_batch(target) -> None:
    table = Table("t", columns(id="int64!", x="text"), primary_key=("id",))
    batch_rows, batches = 1000, 40
    made = 0

    def batch(i: int) -> pa.RecordBatch:
        nonlocal made
        made += 1
        first = i * batch_rows
        return pa.record_batch({"id": pa.array(range(first, first + batch_rows), pa.int64()), "x": ["v"] * batch_rows})

    shares: list[float] = []
    write(Database((table,)), {"t": map(batch, range(batches))}, target, progress=lambda _, share: shares.append(share))
    assert made == batches
    assert shares == [0.0, 1.0]
    with open_source(target) as source:
        assert source.fetch(source.table("t").count())[0][0].as_py() == batches * batch_rows


def test_progress_rises_to_one(tmp_path) -> None:
    table = Table("t", columns(id="int64!"), primary_key=("id",))
    shares: list[float] = []
    given = pa.table({"id": pa.array(range(200_000), pa.int64())})
    write(Database((table,)), {"t": given}, tmp_path / "x.duckdb", progress=lambda _, share: shares.append(share))
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[-1] == 1.0
    assert len(shares) > 3


def nothing_is_left(target: str) -> None:
    if "://" not in target:
        assert list(Path(target).parent.iterdir()) == []
        return
    with open_source(target) as source:
        assert source.database.names == ()


@pytest.mark.parametrize("kind", ON_DISK)
def test_a_full_disk_leaves_nothing(kind: str, tmp_path) -> None:
    script = """
        import resource, sys
        import pyarrow as pa
        from dpweave.errors import TargetError
        from dpweave.schema.database import Column, Database, Table, Type
        from dpweave.engines.writing import write
        import numpy as np, duckdb, pyarrow.parquet, pyarrow.csv
        table = Table("t", (Column("id", Type("integer"), nullable=False), Column("x", Type("text"))), primary_key=("id",))
        rng = np.random.default_rng(0)
        text = [rng.bytes(40).hex() for _ in range(100_000)]
        given = pa.table({"id": pa.array(range(100_000), pa.int64()), "x": text})
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        try:
            write(Database((table,)), {"t": given}, sys.argv[1])
        except TargetError as error:
            assert error.exit_code == 5
            print("refused:", error)
    """  # noqa: E501
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / f"copy.{kind}")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.stdout.startswith("refused:"), done.stderr[-2000:]
    assert list(tmp_path.iterdir()) == []


def test_wrong_targets(tmp_path) -> None:
    database, tables = knotted()
    with pytest.raises(TargetError, match="there is no folder"):
        write(database, tables, tmp_path / "no" / "copy.duckdb")
    with pytest.raises(TargetError, match="known are postgresql, mysql and mariadb"):
        write(database, tables, "oracle://ann:hunter2@host/db")
    with pytest.raises(TargetError, match="cannot be reached") as caught:
        write(database, tables, "postgresql://ann:hunter2@127.0.0.1:1/db")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(UsageError, match="no format 'xlsx'"):
        write(database, tables, tmp_path / "x", format="xlsx")
    with pytest.raises(TargetError, match="no rows were given for"):
        write(database, {}, tmp_path / "x")
    with pytest.raises(SchemaError, match="there is no table 'extra'"):
        write(database, {**tables, "extra": tables["tree"]}, tmp_path / "x")
    with pytest.raises(TargetError, match="have the columns"):
        write(database, {**tables, "tree": tables["link"]}, tmp_path / "x.duckdb")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_someone_else_is_never_replaced(tmp_path) -> None:
    database, tables = knotted()
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.txt").write_text("years of work")
    with pytest.raises(TargetError, match="was not written by dpweave"):
        write(database, tables, home, overwrite=True)
    assert (home / "thesis.txt").read_text() == "years of work"


def test_names_that_differ_in_case_only(tmp_path) -> None:
    table = Table("t", columns(a="int64", A="int64"))
    given = {"t": pa.table({"a": pa.array([1], pa.int64()), "A": pa.array([2], pa.int64())})}
    for name in ("x.duckdb", "x.sqlite"):
        with pytest.raises(TargetError, match="'a' and 'A'"):
            write(Database((table,)), given, tmp_path / name)


def test_sqlite_says_which_numbers_it_cannot_store(tmp_path) -> None:
    table = Table("t", columns(n="uint64"))
    with pytest.raises(TargetError, match=r"column 'n' of 't' holds integers past 2\^63"):
        write(Database((table,)), {"t": pa.table({"n": pa.array([2**63], pa.uint64())})}, tmp_path / "x.sqlite")


def test_foreign_keys_take_the_type_of_their_target(tmp_path) -> None:
    database = Database(
        (
            Table("a", columns(id="int64!"), primary_key=("id",)),
            Table("b", columns(a_id="int16"), foreign_keys=(ForeignKey(("a_id",), "a", ("id",)),)),
        )
    )
    given = {"a": pa.table({"id": pa.array([1], pa.int64())}), "b": pa.table({"a_id": pa.array([1], pa.int16())})}
    write(database, given, tmp_path / "x.duckdb")
    with open_source(tmp_path / "x.duckdb") as source:
        assert source.database["b"].column["a_id"].type == Type("integer", bits=64)


# -- real databases ----------------------------------------------------------------------------------------------------


def data_folder() -> Path:
    return Path(os.environ.get("DPWEAVE_DATA", Path(__file__).parents[2].parent / "shared" / "data"))


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", ["sakila", "chinook", "oulad", "census", "pedigree"])
@pytest.mark.parametrize("kind", ["duckdb", "postgresql"])
def test_real_databases_move_with_all_their_keys(name: str, kind: str, request, tmp_path) -> None:
    path = data_folder() / f"{name}.sqlite"
    if not path.exists():
        pytest.skip(f"{path} is not there; set DPWEAVE_DATA")
    target = request.getfixturevalue("postgres").fresh() if kind == "postgresql" else str(tmp_path / "copy.duckdb")
    with open_source(path) as source:
        database = source.database
        write(database, {n: source.read(n) for n in database.names}, target)
        with open_source(target) as copy:
            for table in database:
                assert set(copy.database[table.name].foreign_keys) == set(table.foreign_keys)
                assert copy.database[table.name].primary_key == table.primary_key
                key = [(c, "ascending") for c in table.primary_key]
                original = pa.Table.from_batches(source.read(table.name)).sort_by(key)
                again = pa.Table.from_batches(copy.read(table.name)).sort_by(key)
                assert again.cast(original.schema).equals(original), table.name
                for foreign in table.foreign_keys:
                    assert not dangling(copy, table, foreign)


def dangling(source, table: Table, key: ForeignKey) -> int:
    child, parent = source.table(table.name), source.table(key.target).view()
    pairs = list(zip(key.columns, key.target_columns, strict=True))
    present = child.filter(*(child[c].notnull() for c, _ in pairs))
    lost = present.anti_join(parent, [present[c] == parent[t] for c, t in pairs])
    return source.fetch(lost.count())[0][0].as_py()
