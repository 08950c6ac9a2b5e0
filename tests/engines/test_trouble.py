"""Trouble with a server, as the command line meets it: one sentence, exit code 5,
nothing half-written, a ledger that is true.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from dpweave.cli import commands
from dpweave.engines.mysql import sink as mysql_sink
from dpweave.engines.mysql.connection import connect, run
from dpweave.engines.mysql.source import MySQLSource
from dpweave.engines.opening import open_source
from dpweave.engines.postgres import sink
from dpweave.engines.postgres.source import PostgresSource
from dpweave.errors import SourceError

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "hunter2secret"
PLAN = """
protect = ["patients"]
[tables.patients]
primary_key = ["id"]
mechanism = "independent"
[tables.patients.columns]
id = { type = "int64", nullable = false, domain = "key" }
name = { type = "text", domain = "learn" }
age = { type = "int64", domain = { low = 0, high = 99, bins = 10 } }
"""
KILL = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE pid <> pg_backend_pid() AND datname = current_database()"
)


@pytest.fixture
def call(monkeypatch, capsys):
    """Run the command line in this process; return its exit code and what it said about errors."""

    def run(*args: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["dpweave", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            commands.main()
        return int(stop.value.code or 0), capsys.readouterr().err

    return run


@pytest.fixture
def clinic(postgres, tmp_path) -> str:
    """A database with one table of patients, and a plan for it beside the test's other files."""
    url = postgres.fresh()
    postgres.run(
        "CREATE TABLE patients (id bigint PRIMARY KEY, name text, age bigint)",
        "INSERT INTO patients SELECT i, 'n' || i % 3, i % 90 FROM generate_series(1, 300) AS i",
        url=url,
    )
    (tmp_path / "plan.toml").write_text(PLAN)
    return url


def fit(call: Any, url: str, folder: Path) -> tuple[int, str]:
    return call(
        *("fit", url, "-p", folder / "plan.toml", "-e", "1", "-q"),
        *("-o", folder / "m.dpw", "--ledger", folder / "l.jsonl"),
    )


def charges(folder: Path) -> int:
    ledger = folder / "l.jsonl"
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return sum(json.loads(line)["kind"] == "charge" for line in lines)


def assert_one_sentence(code: int, said: str, words: str) -> None:
    assert code == 5, said
    assert words in said.replace("\n", " "), said
    assert "Traceback" not in said
    assert SECRET not in said


def assert_nothing_spent(folder: Path) -> None:
    assert charges(folder) == 0
    assert not (folder / "m.dpw").exists()


def test_a_host_that_is_not_there(call, clinic, tmp_path) -> None:
    found = fit(call, f"postgresql://ann:{SECRET}@127.0.0.1:1/shop", tmp_path)
    assert_one_sentence(*found, "cannot be reached")
    assert_nothing_spent(tmp_path)


def test_a_variable_of_the_shell_that_is_not_set(call, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    for folder in (tmp_path, tmp_path / "shop"):  # the current folder would do as a source
        (folder / "people.csv").write_text("id,age\n1,30\n")
    assert_one_sentence(*call("draft", "", "-o", tmp_path / "p.toml"), "the source is empty")
    assert not (tmp_path / "p.toml").exists()
    first_look = ("run", tmp_path / "shop", "--protect", "people", "--epsilon", "1", "--yes", "-o", "")
    assert_one_sentence(*call(*first_look), "the target is empty")
    assert_nothing_spent(tmp_path)


def test_a_wrong_password(call, postgres, clinic, tmp_path) -> None:
    name = clinic.split("?")[0].split("/")[-1]
    postgres.run(f"CREATE ROLE bob_{name} LOGIN PASSWORD 'right'")
    postgres.ask_for_password(name)
    found = fit(call, clinic.replace("postgres:@", f"bob_{name}:{SECRET}@"), tmp_path)
    assert_one_sentence(*found, "refused the user name or password")
    assert_nothing_spent(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("DROP TABLE patients", "has no table 'patients'"),
        ("ALTER TABLE patients RENAME TO p; CREATE VIEW patients AS SELECT * FROM p", "is a view and not a table"),
    ],
)
def test_a_table_that_is_none(call, postgres, clinic, tmp_path, change, words) -> None:
    postgres.run(*change.split("; "), url=clinic)
    assert_one_sentence(*fit(call, clinic, tmp_path), words)
    assert_nothing_spent(tmp_path)


def test_permission_denied_on_one_table(call, postgres, clinic, tmp_path) -> None:
    name = clinic.split("?")[0].split("/")[-1]
    postgres.run(f"CREATE ROLE eve_{name} LOGIN PASSWORD '{SECRET}'", url=clinic)
    found = fit(call, clinic.replace("postgres:@", f"eve_{name}:{SECRET}@"), tmp_path)
    assert_one_sentence(*found, "permission to read table 'patients'")
    assert_nothing_spent(tmp_path)


def test_a_connection_that_drops_after_a_charge(call, postgres, clinic, tmp_path, monkeypatch) -> None:
    """What was charged before the connection went stays charged, the ledger can be read, and no model is left."""
    run, asked = PostgresSource._run, 0

    def dropped(self, query, schema):
        nonlocal asked
        asked += charges(tmp_path) > 0
        if asked >= 2:
            postgres.run(KILL, url=clinic)
        return run(self, query, schema)

    monkeypatch.setattr(PostgresSource, "_run", dropped)
    assert_one_sentence(*fit(call, clinic, tmp_path), "connection")
    assert charges(tmp_path) >= 1
    assert not (tmp_path / "m.dpw").exists()
    code, _ = call("ledger", tmp_path / "l.jsonl")
    assert code == 0


def test_a_target_that_is_there_is_refused_before_anything_is_spent(call, postgres, clinic, tmp_path) -> None:
    found = call(
        *("run", clinic, "-p", tmp_path / "plan.toml", "-e", "1", "-q"),
        *(
            "-o",
            clinic,
            "--model",
            tmp_path / "m.dpw",
            "--report",
            tmp_path / "r.html",
            "--ledger",
            tmp_path / "l.jsonl",
        ),
    )
    assert_one_sentence(*found, "is the private source itself")
    assert_nothing_spent(tmp_path)


def test_a_target_that_is_there_or_drops_in_the_middle(call, postgres, clinic, tmp_path, monkeypatch) -> None:
    assert fit(call, clinic, tmp_path)[0] == 0
    assert_one_sentence(*call("sample", tmp_path / "m.dpw", "-o", clinic, "-q"), "patients")
    with psycopg.connect(clinic) as connection:
        assert connection.execute("SELECT count(*) FROM patients").fetchone() == (300,)

    empty = postgres.fresh()
    copy = sink._copy

    def dropped(connection, stream):
        postgres.run(KILL, url=empty)
        copy(connection, stream)

    monkeypatch.setattr(sink, "_copy", dropped)
    assert_one_sentence(*call("sample", tmp_path / "m.dpw", "-o", empty, "-q"), "connection")
    monkeypatch.undo()
    with psycopg.connect(empty) as connection:
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)


def test_texts_that_are_not_utf8(call, postgres, clinic, tmp_path) -> None:
    """A database encoded as SQL_ASCII may hold any bytes, at which a fit would stop when it has paid already."""
    name = f"ascii_{clinic.split('?')[0].split('/')[-1]}"
    postgres.run(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    url = clinic.replace(clinic.split("?")[0].split("/")[-1], name)
    postgres.run(
        "CREATE TABLE patients (id bigint PRIMARY KEY, name text, age bigint)",
        r"INSERT INTO patients SELECT i, CASE WHEN i % 2 = 0 THEN E'caf\xe9' ELSE E'na\xc3\xafve' END, 5 "
        "FROM generate_series(1, 300) AS i",
        url=url,
    )
    assert_one_sentence(*fit(call, url, tmp_path), "encoded as SQL_ASCII")
    assert_nothing_spent(tmp_path)


# -- MariaDB -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def ward(mariadb, tmp_path) -> str:
    """The clinic on MariaDB."""
    url = mariadb.fresh()
    mariadb.run(
        "CREATE TABLE patients (id bigint PRIMARY KEY, name text, age bigint)",
        "INSERT INTO patients SELECT seq, CONCAT('n', seq % 3), seq % 90 FROM seq_1_to_300",
        url=url,
    )
    (tmp_path / "plan.toml").write_text(PLAN)
    return url


def of_user(mariadb, url: str, rights: str, *, password: str = SECRET) -> str:
    """The URL of a user of this database alone, who has these rights."""
    name = database(url)
    mariadb.run(f"CREATE USER u_{name}@localhost IDENTIFIED BY '{SECRET}'", f"GRANT {rights} TO u_{name}@localhost")
    return mariadb.url(name, user=f"u_{name}:{password}")


def database(url: str) -> str:
    return url.split("?", 1)[0].rsplit("/", 1)[-1]


def test_mariadb_that_is_not_there_or_refuses(call, mariadb, ward, tmp_path) -> None:
    assert_one_sentence(*fit(call, f"mysql://ann:{SECRET}@127.0.0.1:1/shop", tmp_path), "cannot be reached")
    wrong = of_user(mariadb, ward, f"SELECT ON {database(ward)}.*", password=f"{SECRET}x")
    assert_one_sentence(*fit(call, wrong, tmp_path), "refused the user name or password")
    assert_one_sentence(*fit(call, mariadb.url("nowhere"), tmp_path), "there is no such database")
    for url in (f"mysql://ann:{SECRET}@h", f"mysql://ann:{SECRET}@h/db?pass={SECRET}", f"mysql://ann:{SECRET}@h:x/db"):
        assert_one_sentence(*fit(call, url, tmp_path), "not of the form mysql://user:password@host:port/database")
    assert_one_sentence(*fit(call, f"mysql:/ann:{SECRET}@h/db", tmp_path), "looks like the address of a server")
    assert_nothing_spent(tmp_path)


def test_mariadb_rights(call, mariadb, ward, tmp_path) -> None:
    """SELECT is enough, foreign keys included; without it a table is refused; without temporary tables a fit works."""
    mariadb.run(
        "CREATE TABLE visits (id int PRIMARY KEY, patient bigint, FOREIGN KEY (patient) REFERENCES patients (id))",
        url=ward,
    )
    reader = of_user(mariadb, ward, f"SELECT ON {database(ward)}.patients")
    code, _ = fit(call, reader, tmp_path)
    assert code == 0
    for place in (tmp_path / "m.dpw", tmp_path / "l.jsonl"):
        assert SECRET.encode() not in place.read_bytes()
        place.unlink()
    with open_source(reader) as source:
        assert not source.can_materialise
        assert source.catalogue.names == ("patients",)
    mariadb.run(f"GRANT SELECT ON {database(ward)}.visits TO u_{database(ward)}@localhost", url=ward)
    with open_source(reader) as source:
        assert [k.target for k in source.catalogue["visits"].foreign_keys] == ["patients"]
    mariadb.run(
        f"REVOKE SELECT ON {database(ward)}.patients FROM u_{database(ward)}@localhost",
        f"GRANT SELECT (id, name), INSERT ON {database(ward)}.patients TO u_{database(ward)}@localhost",
        url=ward,
    )
    assert_one_sentence(*fit(call, reader, tmp_path), "permission to read table 'patients'")
    assert_nothing_spent(tmp_path)


def test_a_session_of_mariadb_cannot_write(mariadb, ward) -> None:
    import pymysql

    with open_source(ward) as source:
        assert source.can_materialise
        for statement in ("DELETE FROM patients", "CREATE TABLE t (a int)", "DROP TABLE patients"):
            with pytest.raises(pymysql.MySQLError, match="READ ONLY"):
                source._ask(statement)
        source.materialise(source.table("patients"))
        with pytest.raises(pymysql.MySQLError, match="READ ONLY"):
            source._ask("DELETE FROM patients")


def test_two_results_of_mariadb_at_once(ward) -> None:
    """A connection carries one result: what is left of the first is kept when the second is asked for."""
    with open_source(ward) as source:
        source.declare(source.catalogue)
        whole = source.stream(source.table("patients").order_by("id"))
        first = next(whole)
        assert source.fetch(source.table("patients").count())[0][0].as_py() == 300
        assert [*first["id"].to_pylist(), *(x for b in whole for x in b["id"].to_pylist())] == list(range(1, 301))


def test_mariadb_that_drops_after_a_charge(call, mariadb, ward, tmp_path, monkeypatch) -> None:
    run, asked = MySQLSource._run, 0

    def dropped(self, query, schema):
        nonlocal asked
        asked += charges(tmp_path) > 0
        if asked >= 2:
            mariadb.run(f"KILL CONNECTION {self.connection.con.thread_id()}")
        return run(self, query, schema)

    monkeypatch.setattr(MySQLSource, "_run", dropped)
    assert_one_sentence(*fit(call, ward, tmp_path), "connection")
    assert charges(tmp_path) >= 1
    assert not (tmp_path / "m.dpw").exists()


def test_a_target_of_mariadb_that_is_there_or_drops_in_the_middle(call, mariadb, ward, tmp_path, monkeypatch) -> None:
    assert fit(call, ward, tmp_path)[0] == 0
    assert_one_sentence(*call("sample", tmp_path / "m.dpw", "-o", ward, "-q"), "patients")
    empty = mariadb.fresh()
    fill = mysql_sink._Writer.fill

    def dropped(self, stream):
        mariadb.run(f"KILL CONNECTION {self._connection.thread_id()}")
        fill(self, stream)

    monkeypatch.setattr(mysql_sink._Writer, "fill", dropped)
    assert_one_sentence(*call("sample", tmp_path / "m.dpw", "-o", empty, "-q"), "connection")
    monkeypatch.undo()
    assert mariadb.run("SHOW TABLES", url=empty) == []

    # What a dead process left is dropped; what a living one makes is not.
    mariadb.run("CREATE TABLE _dpweave_0123abcd_new0 (a int)", "CREATE TABLE _dpweave_0123abcd (a int)", url=empty)
    with closing(connect(empty, modes="", error=SourceError)) as other:
        run(other, "SELECT GET_LOCK('_dpweave_89abcdef', 0)")
        mariadb.run("CREATE TABLE _dpweave_89abcdef_new0 (a int)", url=empty)
        assert call("sample", tmp_path / "m.dpw", "-o", empty, "-q")[0] == 0
    left = {name for (name,) in mariadb.run("SHOW TABLES", url=empty)}
    assert left == {"_dpweave_0123abcd", "_dpweave_89abcdef_new0", "patients"}
    mariadb.run("CREATE TABLE note (patient bigint, FOREIGN KEY (patient) REFERENCES patients (id))", url=empty)
    assert_one_sentence(*call("sample", tmp_path / "m.dpw", "-o", empty, "-q", "-f"), "table 'note', which the copy")
    mariadb.run("DROP TABLE note", "DROP TABLE patients", "CREATE VIEW patients AS SELECT 1 AS a", url=empty)
    assert_one_sentence(*call("sample", tmp_path / "m.dpw", "-o", empty, "-q", "-f"), "has a view 'patients'")
