"""What the doctor finds is there, and what to do stands beside it; where all is well it says so."""

from __future__ import annotations

import pytest
from filelock import FileLock

from dpweave.budget.kept_answers import KeptAnswers
from dpweave.budget.running_fits import begin
from dpweave.explain.doctor import diagnose
from dpweave.privacy.accounting import Budget
from dpweave.privacy.ledger import Ledger
from tests.model.shops import PLAN


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


def opened(path):
    return Ledger.open(path, database="shop", limit=Budget(1.0, 0.0), tables=("people",))


def said(path, severity, **options):
    return {f.where: f.text for f in diagnose(ledger=path, **options).findings if f.severity == severity}


def test_a_healthy_place_has_nothing_but_notes(path):
    assert "the first fit makes it" in said(path, "note")["ledger"]
    with begin(path, database="shop", limit=Budget(1.0, 0.0), tables=("people",), delta=1e-6, label=None) as book:
        assert f"run {book.run} is going on" in said(path, "note")["shop"]
        assert not said(path, "risky")
    before = sorted(p.name for p in path.parent.iterdir())
    found = diagnose(ledger=path)
    assert found.well
    assert {f.severity for f in found.findings} == {"note"}
    assert "has 2 lines" in said(path, "note")["ledger"]
    assert sorted(p.name for p in path.parent.iterdir()) == before


def test_what_dead_processes_left_is_named_with_what_to_do(path):
    book = opened(path)
    kept = KeptAnswers(book, path)
    kept.begin({})
    (path.parent / ".copy.duckdb.abcdefgh.part").mkdir()
    (path.parent / "shop.dpw.unreadable").touch()
    found = said(path, "risky")
    assert f"--release {book.run}" in found["shop"]
    assert "--resume" in found[kept.path.name]
    assert "remove it" in found[".copy.duckdb.abcdefgh.part"]
    assert "report it" in found["shop.dpw.unreadable"]
    (path.parent / f"{path.name}.{book.run}.run").touch()
    assert "the next fit gives back" in said(path, "note")["shop"]


def test_a_writer_that_is_at_work_has_left_nothing(path):
    opened(path).close()
    place = path.parent / ".copy.duckdb.abcdefgh.part"
    place.mkdir()
    with FileLock(place / "lock"):
        assert place.name not in said(path, "risky")
    assert place.name in said(path, "risky")


def test_a_lock_that_is_held_is_said(path):
    opened(path).close()
    with FileLock(f"{path}.lock"):
        assert "wait for it" in said(path, "risky")["lock"]
    assert not said(path, "risky")


def test_a_ledger_that_was_edited_and_a_folder_that_is_missing_are_wrong(path):
    opened(path).close()
    path.write_text(path.read_text().replace('"people"', '"peoplE"'))
    assert "does not continue the line before it" in said(path, "wrong")["ledger"]
    assert not diagnose(ledger=path).well
    assert "make it" in said(path.parent / "missing" / "ledger.jsonl", "wrong")["folder of the ledger"]


def test_a_folder_that_cannot_be_written_is_wrong(path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert "nothing can be written" in said(path, "wrong")["folder of the ledger"]


def test_an_extra_is_there_only_whole(path, monkeypatch):
    monkeypatch.setattr("dpweave.explain.doctor.find_spec", lambda module: None if module == "sdmetrics" else True)
    assert said(path, "note")["extras"].startswith("not installed: evaluate;")


def test_free_space_is_said(path):
    assert "GB free" in said(path, "note")["folder of the ledger"]


def test_a_plan_is_looked_at_too(path):
    plan = path.parent / "plan.toml"
    plan.write_text(PLAN)
    assert "3 tables, people, things protected" in said(path, "note", plan=plan)["plan"]
    plan.write_text(PLAN.replace("protect", "protec"))
    assert "did you mean 'protect'" in said(path, "wrong", plan=plan)["plan"]
    assert "plan" in said(path, "wrong", plan=path.parent / "missing.toml")
