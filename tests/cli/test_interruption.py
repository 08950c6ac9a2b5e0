"""Ctrl-C: heard even where an engine turns it into an error of its own; what is half
written goes, what is whole is named.
"""

from __future__ import annotations

import signal

import pytest
import typer

from dpweave.cli.interruption import INTERRUPTED, interruptible
from dpweave.engines.staging import staged
from dpweave.privacy.accounting import Budget, Cost
from dpweave.privacy.ledger import Ledger


def press() -> None:
    """Ctrl-C, heard at once by this very thread."""
    signal.raise_signal(signal.SIGINT)


def press_inside_an_engine() -> None:
    try:
        press()
    except KeyboardInterrupt:
        raise RuntimeError("query interrupted") from None


def charge(path) -> None:
    book = Ledger.open(path, database="shop", limit=Budget(1.0, 0.0), tables=("people",))
    book.charge(Cost({"people": 0.25}, {}), what={"verb": "measure"})


def test_an_interrupt_that_an_engine_swallows_is_still_one(tmp_path, capsys):
    out, ledger = tmp_path / "m.dpw", tmp_path / "ledger.jsonl"
    charge(ledger)  # an earlier run, which is not this one's spending

    @interruptible(out, ledger=ledger)
    def run():
        charge(ledger)
        with staged(out) as draft:
            draft.write_text("half")
            press_inside_an_engine()

    with pytest.raises(typer.Exit) as stop:
        run()
    assert stop.value.exit_code == INTERRUPTED == 130
    said = capsys.readouterr().err
    assert "interrupted; nothing was written. Spent, and recorded in" in said
    assert said.count("rho 0.25 of people") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ledger.jsonl", "ledger.jsonl.lock"]


def test_what_was_whole_by_then_stays_and_is_named(tmp_path, capsys):
    model, copy = tmp_path / "m.dpw", tmp_path / "copy.duckdb"
    copy.write_text("an older one")

    @interruptible(model, copy, "postgresql://db.example/x")
    def run():
        model.write_text("whole")
        press()

    with pytest.raises(typer.Exit):
        run()
    said = capsys.readouterr().err
    assert f"{model} had been written already. Nothing was spent." in said
    assert str(copy) not in said
    assert model.read_text() == "whole"


def test_other_errors_pass_and_the_handler_goes_back(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="mine"), interruptible(tmp_path / "x"):
        raise ValueError("mine")
    assert signal.getsignal(signal.SIGINT) is before
