"""Steps are the commands that the page shows: they end as these end, and stop as Ctrl-C stops them."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING

import pytest

from dpweave.errors import UsageError
from dpweave.studio.steps import Runner, Step, shown
from dpweave.studio.workbench import Workbench
from tests.studio.databases import write_clinic

if TYPE_CHECKING:
    from pathlib import Path


def finish(runner: Runner, name: str) -> Step:
    end = time.monotonic() + 240
    while runner.last[name].state == "running":
        assert time.monotonic() < end
        time.sleep(0.05)
    return runner.last[name]


def test_a_step_gives_what_its_command_prints(tmp_path: Path):
    runner = Runner(tmp_path)
    runner.start(Step("doctor", ("doctor", "--json"), shown(["doctor"])))
    with pytest.raises(UsageError, match="still running"):
        runner.start(Step("other", ("doctor", "--json"), "dpweave doctor"))
    step = finish(runner, "doctor")
    assert step.state == "done"
    assert "findings" in step.result
    runner.start(Step("report", ("report", "no.dpw", "no.duckdb", "-o", "x.html", "--json"), "dpweave report"))
    step = finish(runner, "report")
    assert step.state == "failed"
    assert "no.dpw" in step.error


def test_a_step_that_is_stopped_at_once_says_that_nothing_was_spent(tmp_path: Path):
    runner = Runner(tmp_path)
    runner.start(Step("doctor", ("doctor", "--json"), "dpweave doctor"))
    runner.cancel()
    step = finish(runner, "doctor")
    assert step.state == "cancelled"
    assert step.error == "It was stopped before it began. Nothing was spent."


def test_a_step_that_is_stopped_while_python_starts_has_not_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "sitecustomize.py").write_text("raise KeyboardInterrupt\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    runner = Runner(tmp_path)
    runner.start(Step("doctor", ("doctor", "--json"), "dpweave doctor"))
    step = finish(runner, "doctor")
    assert (step.state, step.error) == ("cancelled", "It was stopped before it began. Nothing was spent.")


def test_a_step_that_is_stopped_when_its_result_is_out_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, os, signal\natexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
        "atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    runner = Runner(tmp_path)
    runner.start(Step("doctor", ("doctor", "--json"), "dpweave doctor"))
    step = finish(runner, "doctor")
    assert (step.state, step.error) == ("done", "")
    assert "findings" in step.result


def test_commands_are_as_a_shell_takes_them_and_never_write_over_what_is_there(tmp_path: Path):
    source = write_clinic(tmp_path / "my clinic.sqlite")
    (tmp_path / "plan.dpw").touch()
    bench = Workbench(str(source), tmp_path / "plan.toml", ledger=tmp_path / "l.jsonl", shown_source="SHOWN")
    command = shlex.split(str(bench.planned_fit({"epsilon": 0.5, "delta": 1e-7})["command"]))
    assert command[:3] == ["dpweave", "fit", "SHOWN"]
    assert command[command.index("--out") + 1] == str(tmp_path / "plan-2.dpw")
    assert command[command.index("--epsilon") + 1] == "0.5"
    assert not (tmp_path / "plan.toml").exists()


def test_a_large_copy_is_drawn_by_several_processes_and_the_command_says_so(tmp_path: Path, monkeypatch):
    source = write_clinic(tmp_path / "clinic.sqlite")
    bench = Workbench(str(source), tmp_path / "plan.toml", ledger=tmp_path / "l.jsonl", shown_source="clinic.sqlite")
    started: list[Step] = []
    monkeypatch.setattr(bench._runner, "start", started.append)
    monkeypatch.setattr(bench, "_made", lambda name, kind: tmp_path / "plan.dpw")
    for workers in (1, 3):
        bench.sample({"form": "csv", "workers": workers})
    alone, several = ([*step.words] for step in started)
    assert "--workers" not in alone
    assert several[several.index("--workers") + 1] == "3"
    assert shlex.split(started[1].command) == ["dpweave", *several[:-1]]
