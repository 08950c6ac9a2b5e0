"""Progress: steps, shares, and a bar that is only there in a terminal."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from dpweave.progress import ASKED_FOR_LINES, Bars, Progress, reporter


def test_a_callback_hears_of_every_step_and_of_shares_inside():
    heard = []
    report = reporter(lambda step, share: heard.append((step, share)))
    with report.step("count"):
        report.inside("pairs", 0.5)
        report.inside("", 2.0)
    assert heard == [("count", 0.0), ("count: pairs", 0.5), ("count", 0.999), ("count", 1.0)]


def test_a_step_that_fails_takes_its_bar_away():
    stopped = []
    report = Progress(lambda _step, _share: None, lambda: stopped.append(True))
    with pytest.raises(KeyboardInterrupt), report.step("count"):
        raise KeyboardInterrupt
    assert stopped == [True]


def test_bars_are_silent_where_there_is_no_terminal():
    out = io.StringIO()
    bars = Bars(Console(file=out))
    bars("count", 0.0)
    bars("count", 1.0)
    assert out.getvalue() == ""


def test_bars_show_the_step_and_the_time_left_in_a_terminal():
    out = io.StringIO()
    bars = Bars(Console(file=out, force_terminal=True, width=80))
    bars("count [everything]", 0.0)
    bars("count [everything]", 0.5)
    bars("count [everything]", 1.0)
    shown = out.getvalue()
    assert "count [everything]" in shown
    assert "left" in shown


def test_silence_can_be_asked_for(capsys):
    with reporter(False).step("count"):
        pass
    assert capsys.readouterr() == ("", "")


def test_a_program_that_started_this_one_gets_lines_of_json(monkeypatch, capsys):
    monkeypatch.setenv(ASKED_FOR_LINES, "json")
    with reporter(True).step("count"):
        pass
    with reporter(False).step("nothing"):
        pass
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert said == [{"step": "count", "share": 0.0}, {"step": "count", "share": 1.0}]
