"""A fit that is killed at every durable step, and goes on, ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import duckdb
import pytest

import dpweave as dw
from dpweave.budget.spending import read
from dpweave.errors import SourceError
from dpweave.privacy import noise
from dpweave.privacy.accounting import Cost, epsilon_of_rho
from tests.faults import kills

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux")]

DDL = """
CREATE TABLE people (id INTEGER PRIMARY KEY, town TEXT, age INTEGER);
INSERT INTO people SELECT i, ['Ulm', 'Rom', 'Bern'][1 + i % 3], 20 + i % 50 FROM range(300) t(i);
CREATE TABLE orders (id INTEGER PRIMARY KEY, person INTEGER NOT NULL REFERENCES people, paid BOOLEAN NOT NULL);
INSERT INTO orders SELECT i, (i * i) % 300, i % 3 = 0 FROM range(900) t(i);
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    with duckdb.connect(str(folder / "shop.duckdb")) as connection:
        connection.execute(DDL)
    plan = dw.Plan.draft(folder / "shop.duckdb", protect=["people"], max_degree=4)
    plan = replace(plan, tables=tuple(replace(t, mechanism="independent") for t in plan.tables))
    plan.save(folder / "plan.toml")
    run("whole", folder)
    return folder


def run(*args: object) -> int:
    return int(run_module("tests.faults.kills", *args))


def run_module(*args: object) -> str:
    # Another hash seed in every process: what is learned may not hang on the order of sets.
    done = subprocess.run(
        [sys.executable, "-m", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def content(folder: Path) -> tuple[dict[str, bytes], dict]:
    """Everything in the model but its certificate, and that."""
    with zipfile.ZipFile(folder / "model.dpw") as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    return found, json.loads(found.pop("certificate.json"))


@pytest.fixture
def again(shop, tmp_path) -> Path:
    for name in ("shop.duckdb", "plan.toml"):
        shutil.copy(shop / name, tmp_path)
    return tmp_path


def test_a_fit_that_is_killed_at_every_durable_step_ends_as_if_nothing_had_happened(shop, again):
    died = run("every", again)
    whole, certificate = content(shop)
    resumed, after = content(again)
    assert resumed == whole
    questions = len(certificate["events"])
    assert died >= 4 * questions

    # What was charged and not answered is charged again, and said so; nothing is forgotten.
    (summary,) = read(again / "ledger.jsonl").databases.values()
    assert len(after["events"]) >= 2.5 * questions
    assert after["rho"] == summary.total.rho["people"] > 2 * certificate["rho"]
    spent = sum((Cost(e["rho"], e["delta"]) for e in after["events"]), Cost.zero())
    (column,) = after["tables"]
    assert column["epsilon"] >= epsilon_of_rho(spent.rho["people"], delta=kills.DELTA)
    assert any(c.startswith("charged twice") for c in after["caveats"])
    # Nothing lies about that the next start does not remove.
    left = sorted(p.name for p in again.iterdir())
    assert left == ["ledger.jsonl", "ledger.jsonl.lock", "model.dpw", "plan.toml", "shop.duckdb"]


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_is_killed_and_whenever_it_ends_as_if_nothing_had_happened(tmp_path, seed):
    """200 kills over everything that writes; ``make faults`` kills 2,000 (docs/faults.md)."""
    counts = tmp_path / "counts"
    run_module("tests.faults", "--kills", 100, "--seed", seed, "--counts", counts)
    lines = [json.loads(line) for line in counts.read_text().splitlines()]
    assert sum(n for line in lines for *_, n in line["kills"]) >= 100
    assert sum(n for line in lines for n in line["ends"].values()) >= 10


def test_a_disk_that_fills_up_loses_nothing_and_leaves_no_half(shop, again):
    """Files may grow a little more at each attempt, so ledger, answers and model are each cut off in the middle."""
    assert run("room", again) >= 5
    assert content(again)[0] == content(shop)[0]


def test_too_little_memory_loses_nothing_and_leaves_no_half(shop, again):
    """A fit, a copy and a report may take a little more of memory at each attempt; whatever fails says so."""
    assert run("memory", again) >= 8
    assert content(again)[0] == content(shop)[0]
    left = sorted(p.name for p in again.iterdir())
    also = ["copy.sqlite", "report.html"]
    assert left == sorted(["ledger.jsonl", "ledger.jsonl.lock", "model.dpw", "plan.toml", "shop.duckdb", *also])


def test_fits_at_the_same_time_make_as_many_models_as_the_cap_has_room_for(tmp_path):
    """100 fits under a cap for 37: ``python -m tests.faults.crowd`` (docs/faults.md)."""
    assert "exactly 5 models" in run_module("tests.faults.crowd", "--fits", 12, "--models", 5)


def test_clocks_that_jump_change_nothing_but_what_the_ledger_says_of_time(shop, again, monkeypatch):
    """The wall clock leaps over decades, back and forth, while a fit is cut off, goes on, and is saved and checked."""
    leaps = random.Random(1)

    class Leaping(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.fromtimestamp(leaps.uniform(0, 4e9), tz)

    plan, ledger = dw.Plan.load(again / "plan.toml"), again / "ledger.jsonl"
    asked = {"epsilon": kills.EPSILON, "delta": kills.DELTA, "ledger": ledger, "insecure_seed": kills.SEED}

    def cut_off(step: str, _: float) -> None:
        if step.startswith("fit table orders"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("dpweave.privacy.ledger.datetime", Leaping)
        patched.setattr(time, "time", lambda: leaps.uniform(0, 4e9))
        patched.setattr(time, "time_ns", lambda: int(leaps.uniform(0, 4e18)))
        with pytest.raises(KeyboardInterrupt):
            dw.fit(again / "shop.duckdb", plan, progress=cut_off, **asked)
        (other,) = again.glob("*.answers")
        os.utime(other, (0, 4e9))  # files of a time to come
        dw.fit(again / "shop.duckdb", plan, resume=True, **asked).save(again / "model.dpw")
        assert dw.verify(dw.load(again / "model.dpw"), ledger=ledger).true
    assert content(again)[0] == content(shop)[0]
    (found,) = read(ledger).databases.values()
    assert not found.reserved
    times = [e.time for e in found.entries]
    assert times != sorted(times)
    left = sorted(p.name for p in again.iterdir())
    assert left == ["ledger.jsonl", "ledger.jsonl.lock", "model.dpw", "plan.toml", "shop.duckdb"]


def test_noise_that_cannot_be_drawn_is_found_before_anything_is_charged(shop, again, monkeypatch):
    def fail():
        raise OSError("cannot allocate memory in static TLS block")

    noise._secure_gaussian.cache_clear()  # what an earlier test has drawn with
    monkeypatch.setattr("dpweave.privacy.noise._opendp", fail)
    with pytest.raises(SourceError, match="nothing was charged"):
        dw.fit(again / "shop.duckdb", dw.Plan.load(again / "plan.toml"), epsilon=1.0, ledger=again / "ledger.jsonl")
    assert not (again / "ledger.jsonl").exists()


def test_rows_that_change_between_questions_leave_the_ledger_sound(shop, again):
    """Somebody deletes rows, and then all of a table, while a fit asks. It ends, or says that its source is gone."""
    source, ledger = again / "shop.sqlite", again / "ledger.jsonl"
    other = sqlite3.connect(source)
    other.executescript(
        "CREATE TABLE people (id INTEGER PRIMARY KEY, town TEXT, age INTEGER);"
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, person INTEGER NOT NULL REFERENCES people, paid BOOLEAN);"
    )
    other.executemany("INSERT INTO people VALUES (?, 'Ulm', ?)", [(i, i % 50) for i in range(300)])
    other.executemany("INSERT INTO orders VALUES (?, ?, ?)", [(i, i % 300, i % 2) for i in range(900)])
    other.commit()
    plan = dw.Plan.draft(source, protect=["people"], max_degree=4)
    steps = iter(["DELETE FROM orders WHERE id % 2", "DELETE FROM people", "DROP TABLE orders"])

    def change(*_: object) -> None:
        for step in steps:
            other.execute(step)
            other.commit()
            break

    with suppress(SourceError):
        dw.fit(source, plan, epsilon=2.0, ledger=ledger, progress=change).save(again / "model.dpw")
    kills.require_sound(again)
    other.close()
