"""Trouble with a server, as the command line meets it: one sentence, exit code 5,
nothing half-written, a ledger that is true.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from dpweave.cli import commands
from dpweave.engines.postgres import sink
from dpweave.engines.postgres.source import PostgresSource

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
