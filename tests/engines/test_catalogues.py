"""Catalogues of DuckDB, SQLite and PostgreSQL, and proposals for sources that have none."""

from __future__ import annotations

import sqlite3

import duckdb
import pytest

from dpweave.engines.duckdb.catalogue import left_out_by_duckdb, reflect_duckdb
from dpweave.engines.duckdb.types import type_of_duckdb
from dpweave.engines.postgres.catalogue import left_out_by_postgres, reflect_postgres
from dpweave.engines.sqlite.catalogue import left_out_by_sqlite, reflect_sqlite
from dpweave.engines.sqlite.types import type_of_sqlite
from dpweave.schema.database import Column, Database, ForeignKey, Table, Type
from dpweave.schema.proposed_keys import propose_keys
from tests.backends import columns


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("TINYINT", "int8"),
        ("UBIGINT", "uint64"),
        ("HUGEINT", "decimal(38,0)"),
        ("FLOAT", "float32"),
        ("DECIMAL(4,1)", "decimal(4,1)"),
        ("TIMESTAMP WITH TIME ZONE", "timestamptz"),
        ("TIMESTAMP_NS", "timestamp"),
        ("INTEGER[3]", "array"),
        ("STRUCT(a INTEGER)", "unknown"),
        ("ENUM('it''s', 'a, b')", 'enum("it\'s","a, b")'),
        ("UUID", "uuid"),
    ],
)
def test_types_of_duckdb(declared: str, expected: str) -> None:
    assert str(type_of_duckdb(declared)) == expected


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("INTEGER", "int64"),
        ("int", "int64"),
        ("SMALLINT", "int16"),
        ("VARCHAR(20)", "text(20)"),
        ("nvarchar (160)", "text(160)"),
        ("BLOB SUB_TYPE TEXT", "text"),
        ("BLOB", "bytes"),
        ("DECIMAL(4,2)", "decimal(4,2)"),
        ("NUMERIC", "decimal"),
        ("DOUBLE PRECISION", "float64"),
        ("DATETIME", "timestamp"),
        ("DATE", "date"),
        ("BOOLEAN", "boolean"),
        ("UNIQUEIDENTIFIER", "uuid"),
        ("", "unknown"),
    ],
)
def test_types_of_sqlite(declared: str, expected: str) -> None:
    assert str(type_of_sqlite(declared)) == expected


def test_duckdb_keys_of_every_shape() -> None:
    with duckdb.connect() as connection:
        connection.execute("""
            CREATE TABLE parent (a INT, b TEXT, c INT UNIQUE, PRIMARY KEY (a, b));
            CREATE TABLE "Child" ("I d" INT PRIMARY KEY, a INT NOT NULL, b TEXT, c INT REFERENCES parent (c),
                boss INT REFERENCES "Child" ("I d"), FOREIGN KEY (a, b) REFERENCES parent (a, b));
            CREATE UNIQUE INDEX twice ON parent (b, c);
            CREATE SCHEMA other; CREATE TABLE other.t (id INT PRIMARY KEY, up INT REFERENCES other.t (id));
            CREATE VIEW seen AS SELECT * FROM parent; CREATE TEMP TABLE gone (x INT);
            """)
        found = reflect_duckdb(connection)
    assert found.names == ("parent", "Child", "other.t")
    assert found["parent"].primary_key == ("a", "b")
    assert set(found["parent"].unique) == {("c",), ("b", "c")}
    assert set(found["Child"].foreign_keys) == {
        ForeignKey(("c",), "parent", ("c",)),
        ForeignKey(("boss",), "Child", ("I d",)),
        ForeignKey(("a", "b"), "parent", ("a", "b")),
    }
    assert [c.nullable for c in found["Child"].columns] == [False, False, True, True, True]
    assert found["other.t"].namespace == "other"
    assert found["other.t"].foreign_keys[0].target == "other.t"


def test_sqlite_keys_of_every_shape_without_reading_a_row() -> None:
    connection = sqlite3.connect(":memory:")
    connection.executescript("""
        CREATE TABLE Parent (Id INTEGER PRIMARY KEY, "x y" TEXT UNIQUE, made INT AS (Id + 1));
        CREATE TABLE child (id INT PRIMARY KEY, up references parent, other INTEGER REFERENCES PARENT (ID),
            seen TEXT REFERENCES parent ("X Y"), me INT REFERENCES child);
        CREATE TABLE husband (id INTEGER PRIMARY KEY, wife INT NOT NULL REFERENCES wife);
        CREATE TABLE wife (id INTEGER PRIMARY KEY, husband INT REFERENCES husband);
        CREATE TABLE pair (a TEXT, b TEXT, n INT, PRIMARY KEY (b, a)) WITHOUT ROWID;
        CREATE UNIQUE INDEX some ON pair (n) WHERE n > 0; CREATE UNIQUE INDEX low ON pair (lower(a));
        CREATE VIEW seen AS SELECT 1 AS one; CREATE VIRTUAL TABLE words USING fts5 (t);
        INSERT INTO Parent (Id) VALUES (1);
        """)
    touched: list[str] = []

    def watch(action: int, table: str | None, *_: object) -> int:
        if action == sqlite3.SQLITE_READ and table in {"Parent", "child", "husband", "wife", "pair"}:
            touched.append(table)
        return sqlite3.SQLITE_OK

    connection.set_authorizer(watch)
    found = reflect_sqlite(connection)
    connection.set_authorizer(None)
    connection.close()
    assert touched == []
    assert found.names == ("Parent", "child", "husband", "wife", "pair")
    assert [c.name for c in found["Parent"].columns] == ["Id", "x y", "made"]
    assert set(found["child"].foreign_keys) == {
        ForeignKey(("up",), "Parent", ("Id",)),
        ForeignKey(("other",), "Parent", ("Id",)),
        ForeignKey(("seen",), "Parent", ("x y",)),
        ForeignKey(("me",), "child", ("id",)),
    }
    assert found["husband"].foreign_keys[0].target == "wife"
    assert found["pair"].primary_key == ("b", "a")
    assert found["pair"].unique == ()
    assert not found["Parent"].column["Id"].nullable
    assert found["child"].column["id"].nullable  # INT is not INTEGER: SQLite lets its nulls repeat
    assert not found["pair"].column["a"].nullable


def test_postgres_catalogue_without_permission_to_read_a_row(postgres) -> None:
    import psycopg

    url = postgres.fresh()
    postgres.run(
        """
        CREATE TYPE mood AS ENUM ('sad', 'it''s ok');
        CREATE DOMAIN age AS smallint NOT NULL;
        CREATE TABLE "Parent" (a int, b varchar(5), c bigint UNIQUE, PRIMARY KEY (b, a));
        CREATE TABLE child (id bigint PRIMARY KEY, a int, b varchar(5), c bigint REFERENCES "Parent" (c), m mood,
          how_old age,
          money numeric(10,2), free numeric, tags text[], t timestamptz, d date, u uuid, j jsonb, raw bytea,
            fixed char(3),
          f real CHECK (f > 0), b2 boolean, net inet, clock time, FOREIGN KEY (b, a) REFERENCES "Parent" (b, a));
        CREATE SCHEMA other;
        CREATE TABLE other.child (id int PRIMARY KEY, up bigint REFERENCES public.child,
          loop int REFERENCES other.child);
        CREATE UNIQUE INDEX lone ON other.child (up); CREATE UNIQUE INDEX partial ON other.child (loop) WHERE loop > 0;
        CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id);
        CREATE TABLE parted1 PARTITION OF parted FOR VALUES FROM (0) TO (9);
        CREATE VIEW seen AS SELECT 1; CREATE MATERIALIZED VIEW kept AS SELECT 1;
        DROP ROLE IF EXISTS nobody;
        CREATE ROLE nobody;
        """,
        url=url,
    )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET ROLE nobody")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM child")
        found = reflect_postgres(connection)
        left_out = left_out_by_postgres(connection)
    assert left_out == ("child: CHECK ((f > (0)::double precision))", "view seen", "view kept")
    assert found.names == ("Parent", "child", "other.child", "parted")
    assert found["Parent"].primary_key == ("b", "a")
    assert set(found["child"].foreign_keys) == {
        ForeignKey(("c",), "Parent", ("c",)),
        ForeignKey(("b", "a"), "Parent", ("b", "a")),
    }
    assert {k.target for k in found["other.child"].foreign_keys} == {"child", "other.child"}
    assert found["other.child"].unique == (("up",),)
    expected = (
        'id int64, a int32, b text(5), c int64, m enum("sad","it\'s ok"), how_old int16, money decimal(10,2), free'
        " decimal, tags array, t timestamptz, d date, u uuid, j json, raw bytes, fixed text(3), f float32, b2 boolean,"
        " net unknown, clock time"
    )
    assert ", ".join(f"{c.name} {c.type}" for c in found["child"].columns) == expected
    assert not found["child"].column["how_old"].nullable


def test_checks_and_views_that_no_copy_has() -> None:
    made = (
        "CREATE TABLE pay (id INTEGER PRIMARY KEY, amount INTEGER CHECK (amount > 0), word TEXT DEFAULT 'CHECK (x)')",
        "CREATE TABLE plain (id INTEGER PRIMARY KEY)",
        "CREATE VIEW large AS SELECT * FROM pay",
    )
    with duckdb.connect() as ducks:
        for statement in made:
            ducks.execute(statement)
        assert left_out_by_duckdb(ducks) == ("pay: CHECK((amount > 0))", "view large")
    lites = sqlite3.connect(":memory:")
    for statement in (
        *made,
        "CREATE TABLE two (a TEXT check(a <> ''), b TEXT, CONSTRAINT c CHECK (b <> a)) -- CHECK (",
    ):
        lites.execute(statement)
    assert left_out_by_sqlite(lites) == ("pay: 1 CHECK", "two: 2 CHECK", "view large")
    lites.close()


def bare(**tables: dict[str, str]) -> Database:
    return Database(tuple(Table(name, columns(**held)) for name, held in tables.items()))


def test_proposals_from_names() -> None:
    proposed = propose_keys(
        bare(
            movies={"movie_id": "int64", "title": "text"},
            Users={"UserId": "int64", "age": "int64"},
            ratings={"user_id": "int64", "movie_id": "int64", "stars": "int64"},
            languages={"id": "int32", "name": "text"},
            films={"id": "int64", "original_language_id": "int32", "language_id": "int32", "parent_id": "int64"},
            visits={"user_id": "int64", "movie_id": "int64", "day": "date"},
            notes={"language_id": "text", "text": "text"},
        )
    )
    assert {t.name: t.primary_key for t in proposed} == {
        "movies": ("movie_id",),
        "Users": ("UserId",),
        "ratings": ("user_id", "movie_id"),
        "languages": ("id",),
        "films": ("id",),
        "visits": (),  # dated, so a pair may well repeat
        "notes": (),
    }
    targets = {(t.name, k.columns[0]): k.target for t in proposed for k in t.foreign_keys}
    assert targets == {
        ("ratings", "user_id"): "Users",
        ("ratings", "movie_id"): "movies",
        ("films", "original_language_id"): "languages",
        ("films", "language_id"): "languages",
        ("films", "parent_id"): "films",
        ("visits", "user_id"): "Users",
        ("visits", "movie_id"): "movies",
    }  # notes.language_id is text where languages.id is a number


def test_proposals_keep_what_is_declared() -> None:
    table = Table("t", (Column("a", Type("integer")), Column("t_id", Type("integer"))), primary_key=("a",))
    assert propose_keys(Database((table,)))["t"].primary_key == ("a",)
