"""Servers that are stopped while a fit asks them: what was paid for is kept, and the fit goes on when they are back."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

import dpweave as dw
from dpweave.budget.spending import read
from dpweave.engines.mysql import catalogue as mysql_catalogue
from dpweave.engines.mysql.source import MySQLSource
from dpweave.engines.postgres import catalogue as postgres_catalogue
from dpweave.engines.postgres.source import PostgresSource
from dpweave.errors import SourceError

if TYPE_CHECKING:
    from pathlib import Path

PLAN = dw.Plan.from_toml("""
protect = ["patients"]
[tables.patients]
primary_key = ["id"]
mechanism = "independent"
[tables.patients.columns]
id = { type = "int64", nullable = false, domain = "key" }
ward = { type = "text", domain = ["A", "B", "C"] }
age = { type = "int64", domain = { low = 0, high = 99, bins = 10 } }
[tables.visits]
primary_key = ["id"]
mechanism = "independent"
[tables.visits.columns]
id = { type = "int64", nullable = false, domain = "key" }
patient = { type = "int64", nullable = false, domain = "key" }
days = { type = "int64", domain = { low = 0, high = 9, bins = 5 } }
[tables.visits.keys.patient]
columns = ["patient"]
references = "patients"
target = ["id"]
role = "owning"
max_degree = 4
""")
TABLES = (
    "CREATE TABLE patients (id bigint PRIMARY KEY, ward text, age bigint)",
    "CREATE TABLE visits (id bigint PRIMARY KEY, patient bigint NOT NULL REFERENCES patients (id), days bigint)",
)
PATIENTS = ", ".join(f"({i}, '{'ABC'[i % 3]}', {i % 90})" for i in range(300))
VISITS = ", ".join(f"({i}, {i * i % 300}, {i % 10})" for i in range(400))
ROWS = (f"INSERT INTO patients VALUES {PATIENTS}", f"INSERT INTO visits VALUES {VISITS}")


@pytest.fixture(params=[("postgres", PostgresSource), ("mariadb", MySQLSource)], ids=lambda p: p[0])
def hospital(request) -> tuple[Any, str, type]:
    """A server, the URL of a database on it, and what asks it."""
    name, source = request.param
    server = request.getfixturevalue(name)
    url = server.fresh()
    server.run(*TABLES, *ROWS, url=url)
    return server, url, source


def fit(url: str, folder: Path, *, resume: bool = False) -> None:
    ledger = folder / "ledger.jsonl"
    dw.fit(url, PLAN, epsilon=3.0, ledger=ledger, insecure_seed=5, resume=resume).save(folder / "model.dpw")


def content(folder: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Everything in the model but its certificate, and that."""
    with zipfile.ZipFile(folder / "model.dpw") as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    return found, json.loads(found.pop("certificate.json"))


def charges(folder: Path) -> int:
    ledger = folder / "ledger.jsonl"
    found = read(ledger).databases.values() if ledger.exists() else ()
    return sum(e.kind == "charge" for d in found for e in d.entries)


def stopping(monkeypatch, server: Any, place: Any, name: str, *, when: Any) -> None:
    """Stop the server for good just before something is done, as soon as ``when`` says so."""
    does, stopped = getattr(place, name), []

    def stop(*args: Any, **options: Any) -> Any:
        if not stopped and when():
            stopped.append(server.crash())
        return does(*args, **options)

    monkeypatch.setattr(place, name, stop)


def test_a_server_that_is_stopped_in_the_middle_costs_one_question(hospital, tmp_path, monkeypatch) -> None:
    server, url, source = hospital
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    fit(url, whole)
    for at in (1, 4):
        with monkeypatch.context() as patched:
            stopping(patched, server, source, "_run", when=lambda at=at: charges(broken) >= at)
            try:
                with pytest.raises(SourceError, match=r"connection|cannot be reached"):
                    fit(url, broken, resume=at > 1)
            finally:
                server.restart()
        assert charges(broken) >= at
        assert not (broken / "model.dpw").exists()
    fit(url, broken, resume=True)
    (made, certificate), (after, paid) = content(whole), content(broken)
    assert after == made
    assert len(paid["events"]) == len(certificate["events"]) + 2  # one question for each time
    assert charges(broken) == len(paid["events"])
    assert sorted(p.name for p in broken.iterdir()) == ["ledger.jsonl", "ledger.jsonl.lock", "model.dpw"]


def test_a_server_that_is_stopped_while_its_catalogue_is_read_is_named(hospital, tmp_path, monkeypatch) -> None:
    server, url, source = hospital
    place, name = (mysql_catalogue, "run") if source is MySQLSource else (postgres_catalogue, "catalogue_rows")
    asked = iter([False, True])
    stopping(monkeypatch, server, place, name, when=lambda: next(asked, False))
    try:
        with pytest.raises(SourceError, match=r"connection|cannot be reached"):
            fit(url, tmp_path)
    finally:
        server.restart()
    assert [*tmp_path.iterdir()] == []


def test_a_server_that_cancels_what_takes_long_is_named(hospital, tmp_path, monkeypatch) -> None:
    _, url, source = hospital
    run = source._run
    limit, sleep = (
        ("SET SESSION max_statement_time = 0.05", "SELECT SLEEP(9) AS `n`")
        if source is MySQLSource
        else ("SET statement_timeout = 50", "SELECT pg_sleep(9) AS n")
    )

    def too_long(self: Any, query: str, schema: Any) -> Any:
        if charges(tmp_path):
            with self.connection.con.cursor() as cursor:
                cursor.execute(limit)
            return run(self, sleep, schema)
        return run(self, query, schema)

    monkeypatch.setattr(source, "_run", too_long)
    with pytest.raises(SourceError, match="the server cancelled a statement that took too long"):
        fit(url, tmp_path)
    assert charges(tmp_path) == 1
    assert not (tmp_path / "model.dpw").exists()


def test_rows_that_change_in_the_middle_end_no_fit(hospital, tmp_path, monkeypatch) -> None:
    """Rows are stored for the session when they are bounded; what comes, changes or goes later is read or not."""
    server, url, source = hospital
    run, changes = source._run, iter(range(4))

    def changing(self: Any, query: str, schema: Any) -> Any:
        if charges(tmp_path) and (i := next(changes, None)) is not None:
            server.run(
                f"DELETE FROM visits WHERE id % 5 = {i}",
                f"UPDATE patients SET ward = NULL, age = 1000 WHERE id % 7 = {i}",
                f"INSERT INTO patients VALUES ({1000 + i}, 'new', -1)",
                f"INSERT INTO visits VALUES ({1000 + i}, {1000 + i}, 99)",
                url=url,
            )
        return run(self, query, schema)

    monkeypatch.setattr(source, "_run", changing)
    fit(url, tmp_path)
    assert next(changes, None) is None
    assert dw.load(tmp_path / "model.dpw").sample(seed=1)["patients"].num_rows > 100
