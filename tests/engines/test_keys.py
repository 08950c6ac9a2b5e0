"""Which keys an engine proves for just the rows that are read; all others are checked,
so that no join multiplies rows.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import dpweave as dw
from dpweave.engines.opening import open_source
from dpweave.errors import SourceError
from dpweave.plan.plan import draft_plan
from dpweave.privacy.accounting import Budget
from dpweave.privacy.curator import Curator
from dpweave.privacy.ledger import Ledger
from dpweave.schema.database import Database, ForeignKey, Table
from dpweave.schema.domain import View
from tests.backends import columns
from tests.engines.test_sources import make_duckdb, make_sqlite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ITEMS = View.of_table("item", ())


@contextmanager
def curated(given: Any, plan: dw.Plan) -> Iterator[Curator]:
    with open_source(given) as source:
        source.declare(plan.database)
        ledger = Ledger.open(None, database=source.name, limit=Budget(1e12), tables=plan.protect)
        yield Curator(source, plan.promise, ledger=ledger)


def moved(one: Any, other: Any, plan: dw.Plan) -> tuple[int, float]:
    """By how much the number of items differs, and by how much one unit may move it."""
    totals = []
    for given in (one, other):
        with curated(given, plan) as curator:
            totals.append(int(curator.measure(ITEMS, [()], what="items", rho=1e9)[0].counts))
            claimed = max(curator.l1(ITEMS, ()).values())
    return abs(totals[0] - totals[1]), claimed


def refused(given: Any, plan: dw.Plan, words: str, folder: Path) -> None:
    ledger = folder / "ledger.jsonl"
    with curated(given, plan) as curator, pytest.raises(SourceError, match=words):
        curator.check()
    with pytest.raises(SourceError, match=words):
        dw.fit(given, plan, epsilon=1.0, delta=1e-6, ledger=ledger)
    assert '"charge"' not in ledger.read_text()


# -- PostgreSQL --------------------------------------------------------------------------------------------------------

SHOP = (
    "CREATE TABLE owner (id int PRIMARY KEY)",
    "CREATE TABLE thing (id int PRIMARY KEY, kind int)",
    "CREATE TABLE old_thing () INHERITS (thing)",
    "CREATE TABLE item (id int PRIMARY KEY, owner int NOT NULL REFERENCES owner, thing int NOT NULL REFERENCES thing)",
    "INSERT INTO owner VALUES (1), (2)",
    "INSERT INTO thing VALUES (7, 0), (8, 0)",
    "INSERT INTO old_thing SELECT 7, 0 FROM generate_series(1, 100)",
    "INSERT INTO item VALUES (1, 1, 8)",
)


def test_rows_of_tables_that_inherit_do_not_multiply_rows(postgres, tmp_path) -> None:
    """A primary key does not hold for rows of tables that inherit, which a query gives too: here 101 rows are number 7.

    An owner with one item of it is claimed to move one row, and would move 101.
    """
    with_it, without = postgres.fresh(), postgres.fresh()
    postgres.run(*SHOP, "INSERT INTO item VALUES (2, 2, 7)", url=with_it)
    postgres.run(*SHOP, url=without)
    with open_source(with_it) as source:
        tables = Database(tuple(t for t in source.catalogue if t.name != "old_thing"))  # its rows are read with thing's
    plan = draft_plan(tables, protect=("owner",), public=("thing",), neighbours="entity", max_degree=1)
    assert moved(with_it, without, plan) == (101, 1)
    refused(with_it, plan, "rows of table 'thing' share the same id", tmp_path)


def test_tables_with_rows_in_common_are_not_in_one_plan(postgres) -> None:
    """A public table would show the rows of the private ones that inherit from it."""
    url = postgres.fresh()
    postgres.run(
        "CREATE SCHEMA s",
        "CREATE TABLE base (made date)",
        "CREATE TABLE s.between () INHERITS (base)",
        "CREATE TABLE person (id int PRIMARY KEY) INHERITS (s.between)",
        url=url,
    )
    with open_source(url) as source:
        for left_out in ("base", "s.between", None):
            tables = tuple(t for t in source.catalogue if t.name != left_out)
            with pytest.raises(SourceError, match=r"inherits from .* its rows are rows of both"):
                source.declare(Database(tables))
        source.declare(Database((source.catalogue["person"],)))


def test_keys_that_postgres_proves(postgres) -> None:
    url = postgres.fresh()
    postgres.run(
        "CREATE TABLE plain (a int, b uuid, c int UNIQUE, PRIMARY KEY (a, b))",
        "CREATE TABLE parent (a int PRIMARY KEY)",
        "CREATE TABLE child (PRIMARY KEY (a)) INHERITS (parent)",
        "CREATE TABLE childless (a int PRIMARY KEY)",
        "CREATE TABLE gone () INHERITS (childless)",
        "CREATE TABLE parts (a int PRIMARY KEY) PARTITION BY LIST (a)",
        "CREATE TABLE part PARTITION OF parts DEFAULT",
        "CREATE TABLE own_keys (a int) PARTITION BY LIST (a)",
        "CREATE TABLE own_key PARTITION OF own_keys (PRIMARY KEY (a)) DEFAULT",
        "CREATE TABLE later (a int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)",
        "CREATE TABLE nullable (a int UNIQUE)",
        "CREATE TABLE words (a text PRIMARY KEY)",
        "CREATE TABLE broken (a int PRIMARY KEY)",
        "UPDATE pg_index SET indisvalid = false WHERE indrelid = 'broken'::regclass",
        url=url,
    )
    with open_source(url) as source:
        proven = {t.name for t in source.catalogue if source.proves_unique(t.name, t.primary_key or ("a",))}
        assert proven == {"plain", "child"}
        assert source.proves_unique("plain", ("b", "a", "c"))
        assert not source.proves_unique("plain", ("a",))
        assert not source.proves_unique("plain", ("c",))
        source.declare(Database((Table("plain", columns(a="float64", b="uuid"), primary_key=("a", "b")),)))
        assert not source.proves_unique("plain", ("a", "b"))  # not as it is read


# -- MariaDB -----------------------------------------------------------------------------------------------------------


def test_keys_that_mariadb_proves(mariadb) -> None:
    url = mariadb.fresh()
    mariadb.run(
        "CREATE TABLE plain (a int, b uuid, c int UNIQUE, PRIMARY KEY (a, b))",
        "CREATE TABLE nullable (a int UNIQUE)",
        "CREATE TABLE words (a varchar(9) PRIMARY KEY)",
        "CREATE TABLE part (a int PRIMARY KEY) ENGINE=MyISAM",
        "INSERT INTO part VALUES (1)",
        "CREATE TABLE twin LIKE part",
        "INSERT INTO twin SELECT * FROM part",
        "CREATE TABLE both_ (a int PRIMARY KEY) ENGINE=MRG_MyISAM UNION=(part, twin)",
        "CREATE TABLE parts (a int PRIMARY KEY) PARTITION BY HASH (a) PARTITIONS 3",
        url=url,
    )
    assert mariadb.run("SELECT COUNT(*) FROM both_ WHERE a + 0 = 1", url=url) == [(2,)]  # its key is not kept
    with open_source(url) as source:
        proven = {t.name for t in source.catalogue if source.proves_unique(t.name, t.primary_key or ("a",))}
        assert proven == {"plain", "part", "twin", "parts"}
        assert not source.proves_unique("plain", ("a",))
        both = Database((source.catalogue["both_"],))
    plan = draft_plan(both, protect=("both_",), public=(), neighbours="entity", max_degree=1)
    with curated(url, plan) as curator, pytest.raises(SourceError, match="rows of table 'both_' share the same a"):
        curator.check()


# -- embedded engines --------------------------------------------------------------------------------------------------


def test_keys_that_embedded_engines_prove(tmp_path) -> None:
    tables = """
        CREATE TABLE plain (a INTEGER PRIMARY KEY);
        CREATE TABLE words (a TEXT PRIMARY KEY NOT NULL);
        CREATE TABLE pair (a INTEGER NOT NULL, b INTEGER NOT NULL, PRIMARY KEY (a, b));
        CREATE TABLE nullable (a INTEGER UNIQUE);
    """
    odd = """
        CREATE TABLE reverse (a INTEGER PRIMARY KEY DESC);
        CREATE TABLE short (a INT PRIMARY KEY NOT NULL);
        CREATE TABLE untyped (a PRIMARY KEY NOT NULL);
        CREATE TABLE bare (a INTEGER PRIMARY KEY) WITHOUT ROWID;
    """
    stored = make_duckdb(tmp_path / "a.duckdb", tables), make_sqlite(tmp_path / "a.sqlite", tables + odd)
    for given, expected in zip(stored, ({"plain", "pair"}, {"plain"}), strict=True):
        with open_source(given) as source:
            proven = {t.name for t in source.catalogue if source.proves_unique(t.name, t.primary_key or ("a",))}
        assert proven == expected
    with open_source({"t": pa.table({"a": [1]})}) as source:
        source.declare(Database((Table("t", columns(a="int64!"), primary_key=("a",)),)))
        assert not source.proves_unique("t", ("a",))
        assert not source.proves_unique("nowhere", ("a",))


@pytest.mark.parametrize(
    ("kind", "same"),
    [
        ("", ("1", "'1'", "x'31'")),
        ("TEXT", ("'1'", "x'31'")),
        ("UUID", ("'ab'", "x'6162'")),
        ("JSON", ("'{}'", "x'7b7d'")),
    ],
)
def test_sqlite_keys_are_checked_as_they_are_read(tmp_path, kind: str, same: tuple[str, ...]) -> None:
    """Keys that are distinct as stored and equal as read: they would be one owner, and
    its rows those of each of them.
    """
    path = make_sqlite(
        tmp_path / "a.sqlite",
        f"""
        CREATE TABLE owner (id {kind} PRIMARY KEY NOT NULL);
        CREATE TABLE item (id INTEGER PRIMARY KEY, owner {kind} NOT NULL REFERENCES owner);
        INSERT INTO owner VALUES ('other'), {", ".join(f"({x})" for x in same)};
        INSERT INTO item VALUES (1, 'other'), (2, {same[0]});
        """,
    )
    plan = dw.Plan.draft(path, protect=["owner"], max_degree=1)
    refused(path, plan, "rows of table 'owner' share the same id", tmp_path)


def test_links_between_public_tables_lead_to_one_row(tmp_path) -> None:
    """By a collation, a public row may lead to two others; whoever leads to it would count twice beyond it."""
    path = make_duckdb(
        tmp_path / "shop.duckdb",
        "CREATE TABLE owner (id INTEGER PRIMARY KEY, thing INTEGER)",
        "CREATE TABLE kind (code TEXT PRIMARY KEY)",
        "CREATE TABLE thing (id INTEGER PRIMARY KEY, kind TEXT COLLATE NOCASE)",
        "INSERT INTO kind VALUES ('a'), ('A')",
        "INSERT INTO thing VALUES (1, 'a')",
        "INSERT INTO owner VALUES (1, 1)",
    )
    tables = Database(
        (
            Table(
                "owner",
                columns(id="int32!", thing="int32"),
                ("id",),
                foreign_keys=(ForeignKey(("thing",), "thing", ("id",)),),
            ),
            Table("kind", columns(code="text!"), ("code",)),
            Table(
                "thing",
                columns(id="int32!", kind="text"),
                ("id",),
                foreign_keys=(ForeignKey(("kind",), "kind", ("code",)),),
            ),
        )
    )
    plan = draft_plan(tables, protect=("owner",), public=("thing", "kind"), neighbours="entity", max_degree=1)
    with curated(path, plan) as curator, pytest.raises(SourceError, match="lead to several rows of 'kind' at once"):
        curator.check()
