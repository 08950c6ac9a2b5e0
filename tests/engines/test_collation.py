"""Keys are compared byte by byte, whatever collation a SQLite column declares: one key never matches two rows."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING

import duckdb
import pytest

import dpweave as dw
from dpweave.engines.opening import open_source
from dpweave.errors import SourceError
from dpweave.plan.entries import KeyPlan
from dpweave.privacy.accounting import Budget
from dpweave.privacy.bounding import Bounding
from dpweave.privacy.counts import Counts
from dpweave.privacy.curator import Curator
from dpweave.privacy.ledger import Ledger
from dpweave.schema.codec import Codec
from dpweave.schema.database import ForeignKey
from dpweave.schema.domain import Categories, View
from tests.backends import postgres  # noqa: F401 - a fixture
from tests.mariadb_server import mariadb  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from pathlib import Path


def test_a_key_that_ignores_case_does_not_multiply_rows(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            """
            CREATE TABLE owner (code TEXT PRIMARY KEY NOT NULL, kind TEXT);
            CREATE TABLE pet (id INTEGER PRIMARY KEY, owner TEXT NOT NULL COLLATE NOCASE REFERENCES owner(code));
            INSERT INTO owner VALUES ('A', 'x'), ('a', 'x');
            INSERT INTO pet VALUES (1, 'a'), (2, 'A'), (3, 'a');
            """
        )
    connection.close()
    plan = dw.Plan.draft(path, protect=["owner"])
    with open_source(path) as source:
        source.declare(plan.database)
        ledger = Ledger.open(None, database=source.name, limit=Budget(1e9), tables=plan.protect)
        curator = Curator(source, plan.promise, ledger=ledger)
        view = View("pet", (), (("owner",),))
        (total,) = curator.measure(view, [()], what="pets", rho=1e6)
    assert int(total.counts) == 3


def test_a_key_that_leads_to_two_rows_at_once_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    """DuckDB compares by the collation of either side, so that a unique key of the target is no protection."""
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            """
            CREATE TABLE owner (id INTEGER PRIMARY KEY);
            CREATE TABLE product (code TEXT PRIMARY KEY);
            CREATE TABLE item (id INTEGER PRIMARY KEY, owner INTEGER REFERENCES owner, product TEXT COLLATE NOCASE);
            INSERT INTO owner VALUES (1), (2);
            INSERT INTO product VALUES ('a'), ('A'), ('b');
            INSERT INTO item VALUES (1, 1, 'b'), (2, 2, 'b');
            """
        )
    drafted = dw.Plan.draft(path, protect=["owner"], public=["product"])
    key = KeyPlan(ForeignKey(("product",), "product", ("code",)), role="attribute")
    item = drafted.table["item"]
    plan = replace(drafted, tables=tuple(replace(t, keys=(*t.keys, key)) if t is item else t for t in drafted.tables))

    def check() -> None:
        with open_source(path) as source:
            source.declare(plan.database)
            ledger = Ledger.open(None, database=source.name, limit=Budget(1e9), tables=plan.protect)
            Curator(source, plan.promise, ledger=ledger).check()

    check()  # nobody leads to 'a'
    with duckdb.connect(str(path)) as connection:
        connection.execute("INSERT INTO item VALUES (3, 1, 'a')")
    with pytest.raises(SourceError, match="lead to several rows of 'product' at once by 'product'"):
        check()


def test_postgresql_hashes_texts_of_several_collations(postgres) -> None:  # noqa: F811
    """Without a primary key rows are ordered by a hash of all columns, which PostgreSQL
    refuses where collations differ.
    """
    url = postgres.fresh()
    postgres.run(
        'CREATE TABLE owner (id int PRIMARY KEY, "kind%" text COLLATE "POSIX" NOT NULL)',
        'CREATE TABLE pet (owner int REFERENCES owner, one text COLLATE "C", two text COLLATE "POSIX", three text)',
        "INSERT INTO owner SELECT i, 'x' FROM generate_series(1, 30) i",
        "INSERT INTO pet SELECT i, 'a', 'b', 'c' FROM generate_series(1, 30) i",
        url=url,
    )
    plan = dw.Plan.draft(url, protect=["owner"])
    with open_source(url) as source:
        source.declare(plan.database)
        ledger = Ledger.open(None, database=source.name, limit=Budget(1e9), tables=plan.protect)
        curator = Curator(source, plan.promise, ledger=ledger)
        curator.check()
        (total,) = curator.measure(View("pet", (), (("owner",),)), [()], what="pets", rho=1e6)
    assert int(total.counts) == 30


@pytest.mark.parametrize("engine", ["duckdb", "sqlite"])
def test_categories_are_told_apart_byte_by_byte(engine, tmp_path: Path) -> None:
    """Else one row would decide under which spelling all others are counted."""
    path = tmp_path / f"shop.{engine}"
    texts = ["A", "a", "a", "b", "B"]
    statements = [
        "CREATE TABLE owner (id INTEGER PRIMARY KEY, kind TEXT COLLATE NOCASE)",
        "CREATE TABLE pet (id INTEGER PRIMARY KEY, owner INTEGER REFERENCES owner(id), kind TEXT COLLATE NOCASE)",
        *(f"INSERT INTO owner VALUES ({i}, '{text}')" for i, text in enumerate(texts)),
        *(f"INSERT INTO pet VALUES ({i}, 0, '{text}')" for i, text in enumerate(texts)),
    ]
    connection = duckdb.connect(str(path)) if engine == "duckdb" else sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    plan = dw.Plan.draft(path, protect=["owner"], max_degree=9)
    with open_source(path) as source:
        source.declare(plan.database)
        counts = Counts(Bounding(source, plan.promise))
        assert counts.categories("owner", "kind", length=1) == {"A": 1, "a": 2, "b": 1, "B": 1}
        assert counts.categories("pet", "kind", length=100) == dict.fromkeys("AabB", 50)


def test_postgresql_texts_that_differ_in_trailing_blanks_are_read_as_one(postgres) -> None:  # noqa: F811 - the fixture
    """In bpchar 'a' equals 'a  ', so that one row's spelling must not stand for all of them."""
    url = postgres.fresh()
    postgres.run(
        "CREATE DOMAIN padded AS bpchar",
        "CREATE TABLE owner (id INT PRIMARY KEY)",
        "CREATE TABLE pet (id INT PRIMARY KEY, owner INT NOT NULL REFERENCES owner, kind bpchar, colour padded)",
        "INSERT INTO owner SELECT generate_series(1, 20)",
        "INSERT INTO pet SELECT i, i, CASE i WHEN 1 THEN 'a' ELSE 'a  ' END, CASE i WHEN 1 THEN 'b' ELSE 'b ' END"
        " FROM generate_series(1, 20) i",
        url=url,
    )
    plan = dw.Plan.draft(url, protect=["owner"])
    for salt in ("1", "2"):
        with open_source(url) as source:
            source.declare(plan.database)
            ledger = Ledger.open(None, database=source.name, limit=Budget(1e9, 0.9), tables=plan.protect)
            curator = Curator(source, plan.promise, ledger=ledger, salt=salt)
            for column, text in (("kind", "a"), ("colour", "b")):
                assert list(curator.discover("pet", column, what=column, rho=1e6, delta=1e-6)) == [text]


PADDED = ["A", "a", "a", "a ", "ä", "b"]
"""Texts of which MariaDB takes all but the last for equal by its usual collation."""


def merging(mariadb) -> str:  # noqa: F811 - the fixture
    """A database whose texts are compared by a collation that knows no case, no accents and no trailing blanks."""
    url = mariadb.fresh()
    texts = ", ".join(f"({i}, '{text}')" for i, text in enumerate(PADDED))
    mariadb.run(
        "CREATE TABLE owner (id INT PRIMARY KEY, kind VARCHAR(9)) COLLATE utf8mb4_general_ci",
        "CREATE TABLE pet (id INT PRIMARY KEY, owner INT NOT NULL, kind TEXT, FOREIGN KEY (owner) REFERENCES owner"
        " (id)) COLLATE utf8mb4_unicode_ci",
        f"INSERT INTO owner VALUES {texts}",
        "INSERT INTO pet SELECT id, 0, kind FROM owner",
        url=url,
    )
    assert mariadb.run("SELECT COUNT(DISTINCT kind) FROM owner", url=url) == [(2,)]
    return url


def test_mariadb_texts_are_told_apart_byte_by_byte(mariadb) -> None:  # noqa: F811 - the fixture
    """Else one row would decide under which spelling all others are counted."""
    url = merging(mariadb)
    plan = dw.Plan.draft(url, protect=["owner"], max_degree=9)
    with open_source(url) as source:
        source.declare(plan.database)
        counts = Counts(Bounding(source, plan.promise))
        assert counts.categories("owner", "kind", length=1) == {"A": 1, "a": 2, "a ": 1, "ä": 1, "b": 1}
        assert set(counts.categories("pet", "kind", length=100)) == set(PADDED)
        column = plan.table["owner"].column["kind"].column
        for words in (("a", "b"), (*(f"word {i}" for i in range(80)), "a", "b")):  # listed, and looked up
            counts.set_codec("owner", "kind", Codec(column, Categories(words, other=True)))
            (found,) = counts.marginals(View.of_table("owner", ("kind",)), [("kind",)])
            assert [found[words.index(w)] for w in "ab"] == [2, 1]
            assert found[len(words)] == 3  # of no spelling that is listed


def test_mariadb_texts_that_differ_late_are_told_apart(mariadb) -> None:  # noqa: F811 - the fixture
    """It sorts and groups by the beginning of long texts alone."""
    url, start = mariadb.fresh(), "x" * 5000
    mariadb.run(
        "CREATE TABLE owner (id INT PRIMARY KEY, kind LONGTEXT)",
        f"INSERT INTO owner VALUES (1, '{start}a'), (2, '{start}b'), (3, '{start}b')",
        url=url,
    )
    plan = dw.Plan.draft(url, protect=["owner"])
    with open_source(url) as source:
        source.declare(plan.database)
        found = Counts(Bounding(source, plan.promise)).categories("owner", "kind", length=1)
    assert found == {start + "a": 1, start + "b": 2}


@pytest.mark.parametrize("collation", ["utf8mb4_general_ci", "utf8mb4_bin", "latin1_swedish_ci"])
def test_mariadb_keys_are_compared_byte_by_byte(mariadb, collation) -> None:  # noqa: F811 - the fixture
    """A key that ignores case or pads with blanks leads to one row of the server's and to none by its bytes."""
    url = mariadb.fresh()
    mariadb.run(
        f"CREATE TABLE owner (code VARCHAR(9) COLLATE {collation} PRIMARY KEY) CHARSET {collation.split('_')[0]}",
        f"CREATE TABLE pet (id INT PRIMARY KEY, owner VARCHAR(9) COLLATE {collation} NOT NULL,"
        f" FOREIGN KEY (owner) REFERENCES owner (code)) CHARSET {collation.split('_')[0]}",
        "INSERT INTO owner VALUES ('a'), ('é')",
        "INSERT INTO pet VALUES (1, 'a'), (2, 'a '), (3, 'é')",
        url=url,
    )
    plan = dw.Plan.draft(url, protect=["owner"])
    with open_source(url) as source:
        source.declare(plan.database)
        ledger = Ledger.open(None, database=source.name, limit=Budget(1e9), tables=plan.protect)
        curator = Curator(source, plan.promise, ledger=ledger)
        curator.check()
        (total,) = curator.measure(View("pet", (), (("owner",),)), [()], what="pets that lead somewhere", rho=1e6)
    assert int(total.counts) == 2
