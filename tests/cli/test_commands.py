"""The command line: its surface, its exit codes, what it prints for people and for
machines, and a session in a terminal.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
import typer

from dpweave.budget.running_fits import begin
from dpweave.cli import commands, demo
from dpweave.privacy.accounting import Budget, Cost
from dpweave.privacy.ledger import Ledger
from tests.backends import postgres  # noqa: F401 - a fixture

SNAPSHOT = Path(__file__).parent / "snapshots" / "cli.txt"
DPWEAVE = [sys.executable, "-m", "dpweave.cli"]
PATIENCE = 600
"""Seconds for a command in a terminal, so many that only one that hangs fails on a busy machine."""


@pytest.fixture
def call(monkeypatch, capsys):
    """Run the command line in this process; return exit code, output, errors."""

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["dpweave", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            commands.main()
        said = capsys.readouterr()
        return stop.value.code or 0, said.out, said.err

    return run


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    """A small SQLite database and a plan for it that declares everything."""
    folder = tmp_path_factory.mktemp("clinic")
    with sqlite3.connect(folder / "clinic.sqlite") as connection:
        connection.executescript(
            """
            CREATE TABLE patients (id INTEGER PRIMARY KEY, sex TEXT NOT NULL, age INTEGER NOT NULL);
            CREATE TABLE visits (
              id INTEGER PRIMARY KEY, patient_id INTEGER NOT NULL REFERENCES patients, ward TEXT NOT NULL);
            """
        )
        connection.executemany(
            "INSERT INTO patients VALUES (?, ?, ?)", [(i, "fm"[i % 2], 20 + i % 60) for i in range(600)]
        )
        rows = [(i, i % 600, ("eye", "ear", "skin")[i % 3]) for i in range(1500)]
        connection.executemany("INSERT INTO visits VALUES (?, ?, ?)", rows)
    connection.close()
    (folder / "plan.toml").write_text(
        """
protect = ["patients"]
[tables.patients]
primary_key = ["id"]
[tables.patients.columns]
id = { type = "int64", nullable = false, domain = "key" }
sex = { type = "text", nullable = false, domain = ["f", "m"] }
age = { type = "int64", nullable = false, domain = { low = 0, high = 99, bins = 10 } }
[tables.visits]
primary_key = ["id"]
[tables.visits.columns]
id = { type = "int64", nullable = false, domain = "key" }
patient_id = { type = "int64", nullable = false, domain = "key" }
ward = { type = "text", nullable = false, domain = ["ear", "eye", "skin"] }
[tables.visits.keys.patient_id]
columns = ["patient_id"]
references = "patients"
target = ["id"]
role = "owning"
max_degree = 3
"""
    )
    return folder


@pytest.fixture(scope="module")
def fitted(clinic):
    """A model of the clinic, its ledger, and a copy, all made by the command line."""
    steps = [
        ["fit", "clinic.sqlite", "-p", "plan.toml", "-e", "2", "-o", "clinic.dpw", "--label", "ward office", "-q"],
        ["sample", "clinic.dpw", "-o", "copy.sqlite", "-q"],
    ]
    for step in steps:
        subprocess.run([*DPWEAVE, *step], cwd=clinic, check=True)
    return clinic


def schema(name):
    return json.loads(resources.files("dpweave").joinpath("schemas", f"{name}.json").read_text())


def valid(name, text):
    content = json.loads(text)
    jsonschema.validate(content, schema(name), cls=jsonschema.Draft202012Validator)
    return content


# -- the surface -------------------------------------------------------------------------------------------------------


def surface():
    """Every command with its arguments and options, one per line."""
    root = typer.main.get_command(commands.app)
    lines = []
    for name, command in sorted(root.commands.items()):
        lines.append(name)
        for parameter in command.params:
            words = "/".join(parameter.opts)
            lines.append(f"  {words} {'required' if parameter.required else 'optional'}")
    return "\n".join(lines) + "\n"


def test_the_surface_is_the_one_that_was_agreed():
    """Change tests/cli/snapshots/cli.txt on purpose, with a line in the changelog."""
    assert surface() == SNAPSHOT.read_text()


def test_every_json_output_has_a_schema_that_is_one():
    names = {p.name.removesuffix(".json") for p in resources.files("dpweave").joinpath("schemas").iterdir()}
    root = typer.main.get_command(commands.app)
    with_json = {n for n, c in root.commands.items() if any("--json" in p.opts for p in c.params)}
    assert with_json | {"error"} == names
    for name in names:
        jsonschema.Draft202012Validator.check_schema(schema(name))


@pytest.mark.parametrize(
    "command",
    [
        "",
        "draft",
        "check",
        "explain",
        "fit",
        "sample",
        "report",
        "run",
        "diff",
        "evaluate",
        "ledger",
        "demo",
        "verify",
        "doctor",
        "studio",
        "refit",
    ],
)
def test_help_teaches_and_fits_eighty_columns(call, command):
    code, out, _ = call(*command.split(), "--help")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "Usage: dpweave" in out
    assert len(out) > 400


def test_help_comes_at_once():
    """Half a second of processor time, best of five: what other processes take is not ours."""
    assert min(_seconds([*DPWEAVE, "--help"]) for _ in range(5)) < 0.5


def _seconds(command):
    before = os.times()
    subprocess.run(command, check=True, capture_output=True)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


@pytest.mark.parametrize("module", ["dpweave", "dpweave.cli"])
def test_nothing_heavy_is_imported_before_it_is_needed(module):
    heavy = "numpy,scipy,pyarrow,ibis,duckdb,opendp,sqlalchemy,pandas,rich.progress"
    code = f"import {module}, sys; print([m for m in '{heavy}'.split(',') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


def test_completion_can_be_had():
    environment = os.environ | {"_DPWEAVE_COMPLETE": "complete_bash", "COMP_WORDS": "dpweave ex", "COMP_CWORD": "1"}
    code = "import sys; sys.argv = ['dpweave']; from dpweave.cli import main; main()"
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert found.stdout.split() == ["explain"]


def test_the_version_is_the_installed_one(call):
    from importlib.metadata import version

    assert call("--version") == (0, version("dpweave") + "\n", "")


# -- what it does ------------------------------------------------------------------------------------------------------


def test_draft_writes_a_plan_with_comments_that_reads_back(call, clinic, tmp_path):
    from dpweave.plan.plan import Plan

    code, out, err = call("draft", clinic / "clinic.sqlite", "-o", tmp_path / "plan.toml")
    assert (code, err) == (0, "")
    assert "Protected: patients." in out
    text = (tmp_path / "plan.toml").read_text()
    plan = Plan.load(tmp_path / "plan.toml")
    assert plan.protect == ("patients",)
    for words in (
        "Who is protected",
        "patients: a row with its rows of visits",
        "costs epsilon",
        "max_degree",
        "entity:",
    ):
        assert words in text, words
    content = valid("draft", call("draft", clinic / "clinic.sqlite", "-o", tmp_path / "plan.toml", "-f", "--json")[1])
    assert Plan.from_dict(content["content"]) == plan


def test_draft_protects_what_nothing_owns_and_never_publishes_by_itself(call, tmp_path):
    demo.make_shop(tmp_path / "shop.duckdb", rows=1000)
    code, out, _ = call(
        "draft", tmp_path / "shop.duckdb", "-o", tmp_path / "plan.toml", "--protect", "customers", "--json"
    )
    content = valid("draft", out)
    assert code == 0
    assert content["public"] == []
    assert set(content["protect"]) == {"customers", "employees", "products"}
    text = (tmp_path / "plan.toml").read_text().replace("\n# ", " ")
    assert "so they are protected too" in text
    assert "Could be public, if anybody may see them: products." in text


def test_explain_needs_no_database(call, clinic):
    code, out, _ = call("explain", clinic / "plan.toml", "--epsilon", "1")
    assert code == 0
    assert "The promise" in out
    assert max(map(len, out.splitlines())) <= 80
    assert valid("explain", call("explain", clinic / "plan.toml", "-e", "1", "--json")[1])["protect"] == ["patients"]


def test_fit_says_what_was_spent_and_keeps_a_ledger(call, clinic, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ("fit", clinic / "clinic.sqlite", "-p", clinic / "plan.toml", "-e", "1", "-o", "a.dpw")
    code, out, err = call(*arguments)
    assert (code, err) == (0, "")
    assert "Spent: patients epsilon" in out.replace("\n", " ")
    assert Path("ledger.jsonl").exists()
    content = valid("fit", call(*arguments, "--json", "-f")[1])
    assert 0.9 < content["certificate"]["epsilon"] <= 1.0
    assert call(*arguments, "-f", "-q") == (0, "", "")


def test_the_certificate_names_relations_that_are_wired_at_random(call, clinic, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("plan.toml").write_text((clinic / "plan.toml").read_text() + 'method = "random"\n')
    code, out, _ = call("fit", clinic / "clinic.sqlite", "-p", "plan.toml", "-e", "1", "-o", "m.dpw", "--json", "-q")
    assert code == 0
    (evidence,) = valid("fit", out)["certificate"]["evidence"]
    assert evidence["relation"] == "visits.patient_id"
    assert "wired at random within the degrees, because the plan asks for that" in evidence["verdict"]


def test_sample_repeats_and_scales(call, fitted, tmp_path):
    valid("sample", call("sample", fitted / "clinic.dpw", "-o", tmp_path / "a.sqlite", "--seed", "3", "--json")[1])
    content = valid(
        "sample", call("sample", fitted / "clinic.dpw", "-o", tmp_path / "b.sqlite", "--scale", "2", "--json")[1]
    )
    assert 1000 < content["rows"]["patients"] < 1400
    call("sample", fitted / "clinic.dpw", "-o", tmp_path / "c.sqlite", "--seed", "3")
    assert _dump(tmp_path / "a.sqlite") == _dump(tmp_path / "c.sqlite") != _dump(tmp_path / "b.sqlite")


def _dump(path):
    with sqlite3.connect(path) as connection:
        dump = list(connection.iterdump())
    connection.close()
    return dump


def test_the_ledger_tells_who_spent_what_and_what_is_left(call, fitted, tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    shutil.copy(fitted / "ledger.jsonl", ledger)
    code, out, _ = call("ledger", ledger)
    assert code == 0
    assert "by ward office" in out
    before = valid("ledger", call("ledger", ledger, "--json")[1])
    ((name, database),) = before["databases"].items()
    assert database["cap"] is None
    assert 1.9 < database["tables"]["patients"]["epsilon"] <= 2.0
    after = valid("ledger", call("ledger", ledger, "--cap-epsilon", "3", "--json")[1])["databases"][name]
    assert after["cap"] == {"epsilon": 3.0, "delta": 1e-6}
    assert after["tables"]["patients"]["rho_left"] > 0
    assert re.search(r"patients .* up to [0-9.]+ left", call("ledger", ledger)[1])


def test_a_ledger_is_held_against_an_anchor_that_was_kept(call, fitted, tmp_path):
    ledger, kept = tmp_path / "ledger.jsonl", tmp_path / "anchors.txt"
    shutil.copy(fitted / "ledger.jsonl", ledger)
    code, anchor, _ = call("ledger", ledger, "--anchor")
    assert (code, anchor.count("\n")) == (0, 1)
    kept.write_text(anchor)
    assert valid("ledger", call("ledger", ledger, "--json")[1])["anchor"] == anchor.strip()
    assert "only an anchor tells" in call("ledger", ledger, "--verify")[1].replace("\n", " ")
    for given in (anchor.strip(), kept):
        code, out, _ = call("ledger", ledger, "--verify", "--against", given)
        assert (code, "It has all that 1 anchor knows." in out.replace("\n", " ")) == (0, True)
    assert valid("ledger", call("ledger", ledger, "--verify", "--against", kept, "--json")[1])["anchors_held"] == 1
    ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[:-1]))
    assert call("ledger", ledger, "--verify")[0] == 0
    code, _, err = call("ledger", ledger, "--verify", "--against", kept)
    assert (code, "was cut off" in err) == (4, True)
    assert call("ledger", ledger, "--against", kept)[0] == 2


def test_verify_says_whether_the_certificate_is_true(call, fitted, tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    shutil.copy(fitted / "ledger.jsonl", ledger)
    code, out, _ = call("verify", fitted / "clinic.dpw", "--ledger", ledger)
    assert (code, out.splitlines()[0]) == (0, "The certificate is true.")
    assert max(map(len, out.splitlines())) <= 80
    assert valid("verify", call("verify", fitted / "clinic.dpw", "--json")[1])["true"]
    ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[:3]))
    code, out, _ = call("verify", fitted / "clinic.dpw", "--ledger", ledger)
    assert (code, out.splitlines()[0]) == (5, "The certificate is NOT TRUE, or not of this model.")
    assert "wrong    the ledger was cut off" in out
    assert not valid("verify", call("verify", fitted / "clinic.dpw", "--ledger", ledger, "--json")[1])["true"]


def test_a_model_is_learned_again_and_extended(call, clinic, fitted, tmp_path):
    again, more = tmp_path / "again.dpw", tmp_path / "more.dpw"
    code, out, _ = call("refit", fitted / "clinic.dpw", "-o", again)
    assert (code, "Nothing was spent." in out, "What copies are worth" in out) == (0, True, True)
    found = valid("refit", call("refit", fitted / "clinic.dpw", "-o", again, "--force", "--json")[1])
    assert [step["plan"] for step in found["lineage"]] == ["as it was"]
    changed = tmp_path / "changed.toml"
    changed.write_text((clinic / "plan.toml").read_text().replace("max_degree = ", "max_degree = 1"))
    code, _, err = call("refit", fitted / "clinic.dpw", "-o", tmp_path / "never.dpw", "--plan", changed)
    assert (code, "max_degree cannot change without asking the" in err) == (3, True)
    spend = ("--epsilon", "1", "-o", more, "--ledger", tmp_path / "ledger.jsonl", "--extend", again, "--json")
    certificate = valid("fit", call("fit", clinic / "clinic.sqlite", *spend)[1])["certificate"]
    assert len({event.get("run") for event in certificate["events"]}) == 2
    assert call("verify", more, "--ledger", tmp_path / "ledger.jsonl")[0] == 0
    assert call("fit", clinic / "clinic.sqlite", *spend[:4])[0] == 2


def test_the_doctor_says_what_a_fit_would_meet(call, clinic, tmp_path):
    code, out, _ = call("doctor", clinic / "plan.toml", "--ledger", tmp_path / "ledger.jsonl")
    assert (code, "note   versions: python " in out) == (0, True)
    assert max(map(len, out.splitlines())) <= 80 + len(str(tmp_path))
    assert valid("doctor", call("doctor", "--ledger", tmp_path / "ledger.jsonl", "--json")[1])["well"]
    code, out, _ = call("doctor", "--ledger", tmp_path / "missing" / "ledger.jsonl", "--json")
    assert (code, valid("doctor", out)["well"]) == (5, False)


def test_a_run_that_died_can_be_released(call, tmp_path):
    path = tmp_path / "ledger.jsonl"
    book = Ledger.open(path, database="clinic", limit=Budget(0.5), tables=["patients"])
    book.charge(Cost({"patients": 0.125}, {}), what={})
    call("ledger", path, "--cap-epsilon", "9")
    said = call("ledger", path)[1]
    assert f"not ended, may spend rho 0.375 more: {book.run}" in said
    assert "   1 charge, rho 0.125" in said
    before = valid("ledger", call("ledger", path, "--json")[1])["databases"]["clinic"]
    assert before["runs"][0]["reserved"] == {"patients": 0.5}
    code, _, err = call("ledger", path, "--release", "nobody")
    assert (code, "has no run 'nobody'" in err) == (2, True)
    after = valid("ledger", call("ledger", path, "--release", book.run, "--json")[1])["databases"]["clinic"]
    assert after["runs"][0]["reserved"] == {}
    tables = [database["tables"]["patients"] for database in (before, after)]
    assert tables[0]["rho"] == tables[1]["rho"] == 0.125
    assert tables[1]["rho_left"] - tables[0]["rho_left"] == pytest.approx(0.375)
    assert call("ledger", path, "--release", book.run)[0] == 2  # it has ended


def test_a_run_that_goes_on_is_not_released(call, tmp_path):
    path = tmp_path / "ledger.jsonl"
    asked = {"database": "clinic", "limit": Budget(0.5), "tables": ["patients"], "delta": 1e-6, "label": None}
    with begin(path, **asked) as book:
        code, _, err = call("ledger", path, "--release", book.run)
    assert (code, "is still going" in err) == (2, True)


def test_errors_are_json_where_json_was_asked_for(call, fitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan, source = fitted / "plan.toml", fitted / "clinic.sqlite"
    monkeypatch.setattr("dpweave.explain.draft_notes.draft_text", lambda *_, **__: 1 / 0)
    failing = {
        1: ["draft", source, "-o", "p.toml"],
        2: ["explain", plan, "-e", "-1"],
        3: ["explain", fitted / "none.toml", "-e", "1"],
        4: ["fit", source, "-p", plan, "-e", "1", "-o", "m.dpw", "--ledger", plan],
        5: ["sample", plan, "-o", "x.duckdb"],
    }
    for wanted, arguments in failing.items():
        code, out, err = call(*arguments, "--json")
        content = valid("error", out)
        assert code == content["exit_code"] == wanted
        assert content["error"] in err
        assert call(*arguments)[1] == ""
    code, out, err = call("explain", "--json", "--nonsense")
    assert (code, valid("error", out)["exit_code"]) == (2, 2)
    assert "--nonsense" in err


def test_report_and_run_write_a_page(call, fitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = call("report", fitted / "clinic.dpw", fitted / "copy.sqlite", "-o", "report.html", "--json")
    assert (code, err) == (0, "")
    assert valid("report", out)["bytes"] == Path("report.html").stat().st_size
    arguments = ("run", fitted / "clinic.sqlite", "-o", "copy.duckdb", "-p", fitted / "plan.toml", "-e", "1", "--json")
    content = valid("run", call(*arguments)[1])
    assert [content[k] for k in ("model", "target", "report")] == ["copy.dpw", "copy.duckdb", "copy.html"]
    assert all(Path(content[k]).exists() for k in ("model", "target", "report"))


def test_the_demonstration_speaks_json(call, tmp_path):
    content = valid("demo", call("demo", "-o", tmp_path / "out", "--rows", "1000", "--json")[1])
    assert content["epsilon"] <= 1.0


# -- what it refuses ---------------------------------------------------------------------------------------------------


def one_sentence(err):
    return err.startswith("dpweave: ") and err.count("\n") == 1


def test_usage_errors_are_2(call, clinic, tmp_path):
    assert call("fit")[0] == 2
    assert call("explian")[0] == 2
    code, _, err = call("explain", clinic / "plan.toml", "--epsilon", "-1")
    assert code == 2
    assert one_sentence(err)
    assert "greater than 0" in err


def test_plans_that_are_wrong_are_3(call, clinic, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text((clinic / "plan.toml").read_text().replace("max_degree", "max_degre"))
    code, _, err = call("explain", plan, "-e", "1")
    assert code == 3
    assert one_sentence(err)
    assert "did you mean 'max_degree'?" in err
    plan.write_text((clinic / "plan.toml").read_text().replace("age =", "height ="))
    code, _, err = call("fit", clinic / "clinic.sqlite", "-p", plan, "-e", "1", "-o", tmp_path / "m.dpw")
    assert code == 3
    assert "the plan is for another schema" in err
    assert not (tmp_path / "m.dpw").exists()


def test_a_budget_that_is_refused_is_4_and_nothing_is_written(call, fitted, tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    shutil.copy(fitted / "ledger.jsonl", ledger)
    call("ledger", ledger, "--cap-epsilon", "2.1")
    before = ledger.read_bytes()
    code, _, err = call(
        "fit",
        fitted / "clinic.sqlite",
        "-p",
        fitted / "plan.toml",
        "-e",
        "1",
        "-o",
        tmp_path / "m.dpw",
        "--ledger",
        ledger,
    )
    assert code == 4
    assert one_sentence(err)
    assert "cap" in err
    assert ledger.read_bytes() == before
    assert not (tmp_path / "m.dpw").exists()


def test_trouble_with_sources_targets_and_models_is_5(call, fitted, tmp_path):
    plan, model = fitted / "plan.toml", fitted / "clinic.dpw"
    (tmp_path / "bad.dpw").write_bytes(model.read_bytes()[:-100])
    cases = [
        ("draft", tmp_path / "none.sqlite", "-o", tmp_path / "p.toml"),
        (
            "fit",
            tmp_path / "none.sqlite",
            "-p",
            plan,
            "-e",
            "1",
            "-o",
            tmp_path / "m.dpw",
            "--ledger",
            tmp_path / "l.jsonl",
        ),
        ("fit", fitted / "clinic.sqlite", "-p", plan, "-e", "1", "-o", model),
        ("fit", fitted / "clinic.sqlite", "-p", plan, "-e", "1", "-o", tmp_path / "no" / "m.dpw"),
        ("sample", tmp_path / "bad.dpw", "-o", tmp_path / "x.sqlite"),
        ("sample", model, "-o", fitted / "copy.sqlite"),
    ]
    for case in cases:
        code, out, err = call(*case)
        assert (code, out) == (5, ""), case
        assert one_sentence(err), err
    assert [p.name for p in tmp_path.iterdir()] == ["bad.dpw"]


def test_evaluate_is_refused_unless_somebody_answers_for_it(call, fitted):
    code, out, err = call("evaluate", fitted / "clinic.sqlite", fitted / "copy.sqlite", "-p", fitted / "plan.toml")
    assert (code, out) == (2, "")
    assert "--i-may-see-real-data" in err


@pytest.mark.slow
def test_evaluate_is_stamped_wherever_it_goes(call, fitted, tmp_path):
    page = tmp_path / "evaluation.html"
    arguments = (
        fitted / "clinic.sqlite",
        fitted / "copy.sqlite",
        "-p",
        fitted / "plan.toml",
        "--i-may-see-real-data",
        "-k",
        "2",
    )
    code, out, err = call("evaluate", *arguments, "-o", page)
    assert code == 0, err
    assert "NOT PRIVATE" in out
    assert "NOT PRIVATE" in page.read_text()
    assert "NOT PRIVATE" in valid("evaluate", call("evaluate", *arguments, "--json")[1])["stamp"]


def test_a_bug_is_1_and_its_words_stay_inside(call, clinic, monkeypatch):
    def broken(_path):
        raise RuntimeError("Ann has the flu")

    monkeypatch.setattr("dpweave.plan.plan.Plan.load", broken)
    code, out, err = call("explain", clinic / "plan.toml", "-e", "1")
    assert (code, out) == (1, "")
    assert one_sentence(err)
    assert "RuntimeError" in err
    assert "Ann" not in err


def test_the_cap_of_an_unknown_database_has_to_be_named(call, tmp_path, fitted):
    assert call("ledger", tmp_path / "new.jsonl", "--cap-epsilon", "1")[0] == 2
    assert call("ledger", fitted / "ledger.jsonl", "--database", "elsewhere")[0] == 2
    assert call("ledger", tmp_path / "new.jsonl", "--cap-epsilon", "1", "--database", "x.duckdb")[0] == 0


# -- in a terminal -----------------------------------------------------------------------------------------------------

pexpect = pytest.importorskip("pexpect") if os.name == "posix" else None


def terminal(command, *, cwd, timeout=PATIENCE):
    """Run a command in a real pseudo-terminal of 80 columns; return its exit code and what the screen got."""
    child = pexpect.spawn(
        DPWEAVE[0], [*DPWEAVE[1:], *command], cwd=str(cwd), dimensions=(24, 80), encoding="utf-8", timeout=timeout
    )
    child.expect(pexpect.EOF)
    child.close()
    return child.exitstatus, child.before


def session(source, folder, target):
    """Draft, explain, fit, sample and report, as a person would."""
    plan = "plan.toml"
    code, screen = terminal(["draft", source, "-o", plan], cwd=folder)
    assert code == 0, screen
    assert "Next: edit it" in screen
    code, screen = terminal(["explain", plan, "--epsilon", "2"], cwd=folder)
    assert code == 0, screen
    assert "Where the budget goes" in screen
    code, screen = terminal(["fit", source, "--plan", plan, "--epsilon", "2", "-o", "m.dpw"], cwd=folder)
    assert code == 0, screen
    assert "Wrote m.dpw" in screen
    code, screen = terminal(["sample", "m.dpw", "-o", target], cwd=folder)
    assert code == 0, screen
    code, screen = terminal(["report", "m.dpw", target, "-o", "report.html"], cwd=folder)
    assert code == 0, screen
    code, screen = terminal(["sample", "m.dpw", "-o", "no/such/place.duckdb"], cwd=folder)
    assert code == 5
    assert max(map(len, screen.replace("\r", "").splitlines())) <= 80


@pytest.mark.slow
def test_a_session_on_sqlite(clinic, tmp_path):
    shutil.copy(clinic / "clinic.sqlite", tmp_path)
    session("clinic.sqlite", tmp_path, "copy.sqlite")


@pytest.mark.slow
def test_a_session_on_postgresql(postgres, tmp_path):  # noqa: F811 - the fixture
    source, target = postgres.fresh(), postgres.fresh()
    postgres.run(
        "CREATE TABLE patients (id INT PRIMARY KEY, sex TEXT NOT NULL, age INT NOT NULL)",
        "CREATE TABLE visits (id INT PRIMARY KEY, patient_id INT NOT NULL REFERENCES patients, ward TEXT NOT NULL)",
        "INSERT INTO patients SELECT i, substr('fm', 1 + i % 2, 1), 20 + i % 60 FROM generate_series(0, 599) i",
        "INSERT INTO visits SELECT i, i % 600, 'eye' FROM generate_series(0, 1499) i",
        url=source,
    )
    session(source, tmp_path, target)
    import psycopg

    with psycopg.connect(target) as connection:
        assert connection.execute("SELECT count(*) FROM patients").fetchone()[0] > 300


@pytest.mark.slow
def test_an_interrupt_cleans_up_and_says_what_was_spent(tmp_path):
    demo.make_shop(tmp_path / "shop.duckdb", rows=50_000)
    demo.shop_plan(tmp_path / "shop.duckdb").save(tmp_path / "plan.toml")
    command = ["fit", "shop.duckdb", "-p", "plan.toml", "-e", "1", "-o", "m.dpw"]
    child = pexpect.spawn(
        DPWEAVE[0], [*DPWEAVE[1:], *command], cwd=str(tmp_path), dimensions=(24, 80), encoding="utf-8", timeout=PATIENCE
    )
    ledger = tmp_path / "ledger.jsonl"
    deadline = time.monotonic() + PATIENCE
    while '"kind": "charge"' not in (ledger.read_text() if ledger.exists() else ""):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    while True:  # a C extension may be deaf for a while, and a person would press again
        child.kill(signal.SIGINT)
        if child.expect([pexpect.EOF, pexpect.TIMEOUT], timeout=20) == 0:
            break
    child.close()
    assert child.exitstatus == 130, child.before
    said = " ".join(child.before.split())
    assert "interrupted; nothing was written. Spent, and recorded in ledger.jsonl: rho" in said
    assert not (tmp_path / "m.dpw").exists()
    left = {p.name for p in tmp_path.iterdir()}
    answers = [name for name in left if name.endswith(".answers")]  # what was answered is kept for --resume
    assert len(answers) <= 1
    assert ("go on with --resume" in said) == bool(answers)
    assert left - set(answers) == {"ledger.jsonl", "ledger.jsonl.lock", "plan.toml", "shop.duckdb"}


def test_piped_output_has_no_colour_and_no_bar(fitted, tmp_path):
    command = [*DPWEAVE, "sample", str(fitted / "clinic.dpw"), "-o", str(tmp_path / "x.sqlite")]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "\x1b" not in found.stdout + found.stderr
    assert found.stderr == ""


def test_check_lists_what_is_risky_and_refuses_another_schema(call, clinic, tmp_path):
    code, out, _ = call("check", clinic / "plan.toml", clinic / "clinic.sqlite", "--json")
    assert code == 0
    assert {f["severity"] for f in valid("check", out)["findings"]} <= {"risky", "note"}
    code, out, _ = call("check", clinic / "plan.toml", clinic / "clinic.sqlite")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.csv").write_text("a\n1\n")
    code, out, _ = call("check", clinic / "plan.toml", tmp_path / "other", "--json")
    assert code == 3
    assert valid("check", out)["findings"][0]["severity"] == "wrong"


# -- a first look, without a plan --------------------------------------------------------------------------------------


def test_a_first_look_drafts_explains_and_leaves_the_plan(call, clinic, tmp_path):
    out, ledger = tmp_path / "copy.sqlite", tmp_path / "l.jsonl"
    look = ("run", clinic / "clinic.sqlite", "-o", out, "--epsilon", 50, "--ledger", ledger)
    code, _, err = call(*look, "--yes")
    assert (code, "--protect TABLE" in err) == (2, True)
    code, _, err = call(*look, "--protect", "patients")
    assert (code, "say --yes" in err) == (2, True)  # nobody is at the keyboard
    code, _, err = call(*look, "--protect", "patients", "--plan", clinic / "plan.toml")
    assert (code, "with --plan" in err) == (2, True)
    assert not list(tmp_path.iterdir())
    code, words, _ = call(*look, "--protect", "patients", "--yes")
    assert code == 0
    assert words.startswith("Drafted from the catalogue of")
    assert "Protected: patients, each with at most 10 rows of visits." in words
    assert {p.name for p in tmp_path.iterdir()} >= {"copy.sqlite", "copy.dpw", "copy.html", "copy.toml", "l.jsonl"}
    code, _, err = call(*look, "--protect", "patients", "--yes", "--model", tmp_path / "m", "--report", tmp_path / "r")
    assert (code, "exists already" in err) == (5, True)
    code, text, _ = call(*look, "--protect", "patients", "--yes", "--force", "--json")
    assert valid("run", text)["plan"] == str(tmp_path / "copy.toml")


def test_a_first_look_asks_once_and_takes_no_for_an_answer(call, clinic, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    asked = []
    monkeypatch.setattr(typer, "confirm", lambda words, **_: asked.append(words))
    look = ("run", clinic / "clinic.sqlite", "-o", tmp_path / "copy.sqlite", "--epsilon", 2, "--protect", "patients")
    code, _, words = call(*look, "--ledger", tmp_path / "l.jsonl")
    assert (code, len(asked)) == (2, 1)
    assert [p.name for p in tmp_path.iterdir()] == ["copy.toml"]  # nothing was spent
    look_like = words.split("dpweave: nothing was spent")[0].splitlines()
    assert (len(look_like) <= 10, max(map(len, look_like)) <= 80) == (True, True)
    code, _, err = call(*look, "--resume")
    assert (code, f"--plan {tmp_path / 'copy.toml'} --resume" in err) == (2, True)


def test_a_first_look_at_files_without_types_says_what_that_costs(call, tmp_path):
    (tmp_path / "clinic").mkdir()
    (tmp_path / "clinic" / "patients.csv").write_text("id,age\n1,30\n2,40\n")
    look = ("run", tmp_path / "clinic", "--epsilon", 2, "--protect", "patients", "--ledger", tmp_path / "l.jsonl")
    code, words, _ = call(*look, "-o", tmp_path / "copy.sqlite", "--yes")
    assert code == 0
    assert "The files say no types, so all is taken for text: numbers" in " ".join(words.split())
    assert len(words.partition("Whoever sees")[0].splitlines()) <= 10


def test_diff_says_what_changes_in_promise_noise_and_worth(call, clinic, tmp_path):
    plan, other = clinic / "plan.toml", tmp_path / "other.toml"
    text = plan.read_text()
    assert call("diff", plan, plan, "--epsilon", 1)[:2] == (
        0,
        "The two plans promise the same, cost the same and give the same.\n",
    )
    other.write_text(text.replace('["f", "m"]', '["f", "m", "x"]').replace("max_degree = 3", "max_degree = 2"))
    code, text, _ = call("diff", plan, other, "--epsilon", 1, "--json")
    found = {(c["part"], c["what"]): (c["first"], c["second"]) for c in valid("diff", text)["changes"]}
    assert code == 0
    assert found["plan", "tables.patients.columns.sex.domain"] == (["f", "m"], ["f", "m", "x"])
    assert found["promise", "rows of visits that go with one row of patients, at most"] == (3, 2)
    assert {part for part, _ in found} >= {"plan", "promise", "budget"}
    words = call("diff", plan, other, "--epsilon", 1)[1]
    assert "rows of visits that go with one row of patients, at most: 3 → 2" in " ".join(words.split())
    assert max(map(len, words.splitlines())) <= 80
