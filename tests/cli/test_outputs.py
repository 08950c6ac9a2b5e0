"""Outputs are claimed before anything is spent, and a model that was paid for is kept whatever happens then."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa
import pytest

import dpweave as dw
from dpweave.budget.spending import read
from dpweave.engines.file_locks import Held
from dpweave.engines.staging import require_writable, staged
from dpweave.engines.writing import require_free
from dpweave.errors import ModelFileError, TargetError
from dpweave.fitting import fit as pipeline
from dpweave.model import file_format
from dpweave.model import model as models
from tests.backends import postgres  # noqa: F401 - a fixture
from tests.cli.test_commands import call, clinic  # noqa: F401 - fixtures


def command(clinic: Path, verb: str, out: object, *more: object) -> list[object]:  # noqa: F811
    return [verb, clinic / "clinic.sqlite", "-p", clinic / "plan.toml", "-e", "1", "-o", out, "-q", *more]


@pytest.fixture
def mounted(tmp_path):
    """A file system of 64 kB of its own, where that can be had."""
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", place], check=False, capture_output=True)
    if made.returncode:
        pytest.skip("file systems cannot be mounted here")
    yield place
    subprocess.run(["umount", place], check=True)


# -- before anything is spent ------------------------------------------------------------------------------------------


def refused_for_free(call, arguments, ledger: Path, why: str) -> None:  # noqa: F811
    code, _, err = call(*arguments, "--ledger", ledger)
    assert code == 5, err
    assert why in err
    assert not ledger.exists()


@pytest.mark.parametrize("verb", ["fit", "run"])
@pytest.mark.parametrize(("where", "why"), [("nowhere/x.db", "there is no folder"), ("taken", "is a folder")])
def test_an_output_that_cannot_be_is_refused_before_anything_is_spent(call, clinic, tmp_path, verb, where, why):  # noqa: F811
    (tmp_path / "taken").mkdir()
    out = [tmp_path / where] if verb == "fit" else [tmp_path / "copy.duckdb", "--model", tmp_path / where]
    refused_for_free(call, command(clinic, verb, *out), tmp_path / "l.jsonl", why)


@pytest.mark.parametrize("option", ["fit", "--model", "--report", "copy"])
@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_a_disk_that_takes_nothing_is_found_before_anything_is_spent(
    call,  # noqa: F811
    clinic,  # noqa: F811
    mounted,
    tmp_path,
    option,
    trouble,
):
    if trouble == "full":
        fill(mounted / "full")
    else:
        subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)
    arguments = {
        "fit": ["fit", mounted / "m.dpw"],
        "copy": ["run", mounted / "c.duckdb", "--model", tmp_path / "m.dpw", "--report", tmp_path / "r.html"],
    }.get(option, ["run", tmp_path / "c.duckdb", option, mounted / "x"])
    why = {"full": "No space left on device", "read-only": "Read-only file system"}[trouble]
    refused_for_free(call, command(clinic, *arguments), tmp_path / "l.jsonl", why)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["small"]


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1024))
        except OSError:
            return


def test_no_permission_is_found_before_anything_is_spent(call, clinic, tmp_path, monkeypatch):  # noqa: F811
    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Held, "take", denied)  # as root, nothing is denied
    refused_for_free(call, command(clinic, "fit", tmp_path / "m.dpw"), tmp_path / "l.jsonl", "Permission denied")


def test_a_mount_point_is_not_replaced(mounted):
    with pytest.raises(TargetError, match="is a mount point"):
        require_free(mounted, overwrite=True)


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_server_that_is_not_there_is_found_before_anything_is_spent(call, clinic, tmp_path, force):  # noqa: F811
    out = "postgresql://ann:secret@127.0.0.1:1/shop"
    arguments = [*command(clinic, "run", out), "--model", tmp_path / "m.dpw", "--report", tmp_path / "r.html", *force]
    refused_for_free(call, arguments, tmp_path / "l.jsonl", "127.0.0.1")


@pytest.mark.slow
def test_a_server_that_makes_no_tables_is_found_before_anything_is_spent(call, clinic, tmp_path, postgres):  # noqa: F811
    url = postgres.fresh()
    postgres.run(f"ALTER DATABASE {url.split('/')[3].split('?')[0]} SET default_transaction_read_only = on")
    arguments = [*command(clinic, "run", url), "--model", tmp_path / "m.dpw", "--report", tmp_path / "r.html", "-f"]
    refused_for_free(call, arguments, tmp_path / "l.jsonl", "allows reading only")


# -- after everything is spent -----------------------------------------------------------------------------------------


@pytest.fixture
def afterwards(monkeypatch):
    """Do something once a fit is done and not yet saved."""
    honest = pipeline.fit

    def set_up(do):
        def fit(*args, **kwargs):
            model = honest(*args, **kwargs)
            do()
            return model

        monkeypatch.setattr(pipeline, "fit", fit)

    return set_up


def refuge(err: str) -> Path:
    return Path(err.split("was saved as ")[1].split(" instead", maxsplit=1)[0])


@pytest.mark.parametrize("ledger_too", [False, True])
def test_a_model_that_cannot_be_saved_is_kept_elsewhere(call, clinic, tmp_path, monkeypatch, afterwards, ledger_too):  # noqa: F811
    for name in ("out", "books", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))

    def lose():
        shutil.rmtree(tmp_path / "out")
        if ledger_too:
            shutil.copy(tmp_path / "books" / "l.jsonl", tmp_path / "l.jsonl")
            shutil.rmtree(tmp_path / "books")

    afterwards(lose)
    code, _, err = call(*command(clinic, "fit", tmp_path / "out" / "m.dpw", "--ledger", tmp_path / "books" / "l.jsonl"))
    assert code == 5
    assert "there is no folder" in err
    assert refuge(err).parent == tmp_path / ("tmp" if ledger_too else "books")
    assert dw.load(refuge(err)).sample()["patients"].num_rows
    (spent,) = read(tmp_path / "l.jsonl" if ledger_too else tmp_path / "books" / "l.jsonl").databases.values()
    assert len(spent.runs) == 1


def test_a_model_that_nothing_takes_is_said_to_be_lost(call, clinic, tmp_path, monkeypatch, afterwards):  # noqa: F811
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    afterwards(lambda: shutil.rmtree(tmp_path / "out"))
    code, _, err = call(*command(clinic, "fit", tmp_path / "out" / "m.dpw", "--ledger", tmp_path / "out" / "l.jsonl"))
    assert code == 5
    assert "it is lost" in err


def test_a_model_that_somebody_saved_meanwhile_is_not_replaced(call, clinic, tmp_path, afterwards):  # noqa: F811
    out = tmp_path / "m.dpw"
    afterwards(lambda: out.write_text("another one"))
    code, _, err = call(*command(clinic, "fit", out, "--ledger", tmp_path / "l.jsonl"))
    assert code == 5
    assert out.read_text() == "another one"
    dw.load(refuge(err))


def test_a_copy_that_fails_leaves_the_model_and_says_so(call, clinic, tmp_path, afterwards):  # noqa: F811
    out = tmp_path / "copy.duckdb"
    afterwards(lambda: out.write_text("somebody's"))
    code, _, err = call(*command(clinic, "run", out, "--ledger", tmp_path / "l.jsonl"))
    assert code == 5
    assert f"the model is in {tmp_path / 'copy.dpw'}" in err
    dw.load(tmp_path / "copy.dpw")


# -- what is saved can be read -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(clinic):  # noqa: F811
    return dw.fit(clinic / "clinic.sqlite", dw.Plan.load(clinic / "plan.toml"), epsilon=1.0, delta=1e-6)


def test_what_cannot_be_read_again_replaces_nothing(model, tmp_path, monkeypatch):
    path = tmp_path / "m.dpw"
    model.save(path)
    before, honest = path.read_bytes(), models._entries
    monkeypatch.setattr(models, "_entries", lambda m: {**honest(m), "manifest.json": b"{}"})
    with pytest.raises(ModelFileError, match="is left as it was"):
        model.save(path)
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.dpw", "m.dpw.unreadable"]


def test_a_model_never_replaces_a_folder(model, tmp_path):
    (tmp_path / "m.dpw").mkdir()
    (tmp_path / "m.dpw" / "precious").touch()
    with pytest.raises(TargetError, match="cannot be written"):
        model.save(tmp_path / "m.dpw")
    assert [p.name for p in tmp_path.rglob("*")] == ["m.dpw", "precious"]


def test_two_that_save_to_one_name_do_not_meet(model, tmp_path):
    path, trouble = tmp_path / "m.dpw", []

    def save():
        try:
            for _ in range(5):
                model.save(path)
        except Exception as error:
            trouble.append(error)

    threads = [threading.Thread(target=save) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert trouble == []
    dw.load(path)
    assert [p.name for p in tmp_path.iterdir()] == ["m.dpw"]


# -- what the dead leave -----------------------------------------------------------------------------------------------

WRITER = """
import sys, time
from pathlib import Path
from dpweave.engines import staging
target = Path(sys.argv[1])

def hang(*_, **__):
    print("there", flush=True)
    time.sleep(60)

if sys.argv[2] == "between":
    rename = Path.rename
    Path.rename = lambda self, to: hang() if Path(to) == target else rename(self, to)
with staging.staged(target) as draft:
    draft.mkdir() if target.is_dir() else draft.write_text("half")
    draft.with_name(draft.name + ".wal").write_text("half")
    if sys.argv[2] == "writing":
        hang()
"""


def writer(target: Path, where: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(target), where], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "there\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)


def test_what_a_dead_writer_left_goes_and_what_a_living_one_needs_stays(tmp_path):
    target = tmp_path / "a[*].db"
    dead, living = writer(target, "writing"), writer(target, "writing")
    kill(dead)
    assert len(list(tmp_path.glob(".*.part"))) == 2
    with staged(target) as draft:
        draft.write_text("whole")
    assert target.read_text() == "whole"
    assert len(list(tmp_path.iterdir())) == 3  # the living one's folder and lock
    kill(living)
    require_writable(target)
    assert [p.name for p in tmp_path.iterdir()] == ["a[*].db"]


def test_where_no_file_can_be_locked_an_output_is_refused_and_not_waited_for():
    """Nobody can make a file in /proc, and a lock there looks as if somebody else had it."""
    if not Path("/proc/self").is_dir():
        pytest.skip("needs Linux")
    with pytest.raises(TargetError, match="no file can be made and locked there"):
        require_writable(Path("/proc/model.dpw"))


def test_a_folder_that_was_moved_aside_by_a_dead_writer_comes_back(tmp_path):
    target = tmp_path / "copy"
    target.mkdir()
    (target / "datapackage.json").write_text("{}")
    kill(writer(target, "between"))
    assert not target.exists()
    require_free(target, overwrite=True)
    assert (target / "datapackage.json").read_text() == "{}"
    assert [p.name for p in tmp_path.iterdir()] == ["copy"]


# -- memory ------------------------------------------------------------------------------------------------------------


def test_where_memory_runs_out_no_size_is_said_and_what_was_answered_is_kept(call, clinic, tmp_path, monkeypatch):  # noqa: F811
    """NumPy names the shape of what it has no room for: that may be the number of private rows."""

    def starve(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 1.2 GiB for an array with shape (123456, 7)")

    monkeypatch.setattr(pipeline, "learn_links", starve)
    code, out, err = call(*command(clinic, "fit", tmp_path / "m.dpw"), "--ledger", tmp_path / "l.jsonl")
    assert code == 5
    assert "memory is not enough; give it more, and resume" in " ".join(err.split())
    assert "123456" not in out + err
    assert len([*tmp_path.glob("*.answers")]) == 1
    monkeypatch.undo()
    resumed = (*command(clinic, "fit", tmp_path / "m.dpw"), "--ledger", tmp_path / "l.jsonl", "--resume")
    assert call(*resumed)[0] == 0


# -- names that are no files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address", ["postgres:/ann:s3cret@h/x", "postgresql//ann:s3cret@h/x", "ann:s3cret@h", "host=h password=s3cret"]
)
def test_a_mistyped_address_is_refused_without_its_password(call, clinic, tmp_path, monkeypatch, address):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    plan = clinic / "plan.toml"
    commands = [
        ["run", clinic / "clinic.sqlite", "-p", plan, "-e", "1", "-o", address],
        ["draft", address, "-o", "plan.toml"],
        ["fit", address, "-p", plan, "-e", "1", "-o", "m.dpw"],
    ]
    for arguments in commands:
        code, out, err = call(*arguments)
        assert code == 5
        assert "looks like the address of a server" in err
        assert "s3cret" not in out + err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ann:s3cret/t00@h/x",
        "postgres://ann:12/s3cret@h/x",
        "postgresql://ann:t00@s3cret@h:99999/x",
        "mysql://ann:12/s3cret@h/x",
        "mariadb://ann:4711?s3cret@h/x",
    ],
)
def test_a_password_that_a_url_cannot_hold_is_not_taken_for_something_else(call, clinic, tmp_path, address):  # noqa: F811
    """Drivers took a part of it for a host, a port or a database, and messages named it as such."""
    for arguments in (
        ["draft", address, "-o", tmp_path / "plan.toml"],
        ["run", clinic / "clinic.sqlite", "-p", clinic / "plan.toml", "-e", "1", "-o", address],
    ):
        code, out, err = call(*arguments)
        assert code == 5
        assert "write %40 for @" in " ".join(err.split())
        assert not any(part in out + err for part in ("s3cret", "t00", "4711", ":12"))
    assert list(tmp_path.iterdir()) == []


def test_what_is_refused_on_a_server_is_left_alone(clinic, postgres):  # noqa: F811
    """Tables are made to see whether they can be, and what was there is there again."""
    url, database = postgres.fresh(), dw.Plan.load(clinic / "plan.toml").database
    require_free(url, overwrite=False, database=database)
    postgres.run("CREATE TABLE patients (x int); INSERT INTO patients VALUES (7)", url=url)
    require_free(url, overwrite=True, database=database)
    with pytest.raises(TargetError, match="has a table 'patients' already"):
        require_free(url, overwrite=False, database=database)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT x FROM patients").fetchall() == [(7,)]
        assert connection.execute("SELECT to_regclass('visits')").fetchone() == (None,)


# -- models from strangers ---------------------------------------------------------------------------------------------


def rewritten(path: Path, changes: dict[str, bytes], *, packing: int = zipfile.ZIP_DEFLATED) -> Path:
    """The model with some of its entries changed, or some more."""
    with zipfile.ZipFile(path) as old:
        entries = {name: old.read(name) for name in old.namelist()} | changes
    other = path.with_name("other.dpw")
    with zipfile.ZipFile(other, "w", packing) as new:
        for name, content in entries.items():
            new.writestr(name, content)
    return other


def refused_in_little_memory(path: Path) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError) as caught:
            dw.load(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 26
    finally:
        tracemalloc.stop()
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["more", "arrays.arrow", "manifest.json"])
def test_a_model_that_would_fill_the_memory_is_refused_by_its_sizes(model, tmp_path, name):
    model.save(tmp_path / "m.dpw")
    bomb = rewritten(tmp_path / "m.dpw", {name: bytes(300_000_000)})
    assert bomb.stat().st_size < 1_000_000
    refused_in_little_memory(bomb)


def test_what_shrinks_too_well_is_stored_so_that_it_can_be_read(model, tmp_path):
    blueprint = replace(model.blueprint, public={"zeros": pa.table({"x": np.zeros(10_000_000, dtype=np.int64)})})
    replace(model, blueprint=blueprint).save(tmp_path / "m.dpw")
    assert dw.load(tmp_path / "m.dpw").public["zeros"].num_rows == 10_000_000


@pytest.mark.parametrize("part", ["manifest.json", "release.json", "certificate.json"])
@pytest.mark.parametrize("bracket", ["[", '{"a":'])
def test_nesting_without_end_is_refused(model, tmp_path, part, bracket):
    model.save(tmp_path / "m.dpw")
    refused_in_little_memory(rewritten(tmp_path / "m.dpw", {part: bracket.encode() * 100_000}))


def test_arrow_that_points_outside_its_buffers_is_refused(model, tmp_path):
    """Such offsets end the process where they are followed, so another one tries."""
    table = pa.table({"name": ["a" * 40, "b" * 40], "dtype": ["<i8"] * 2, "shape": [[1]] * 2, "data": [bytes(8)] * 2})
    content = file_format._ipc(table)
    offsets = np.array([0, 40, 80], dtype=np.int32).tobytes()
    assert content.count(offsets) == 1
    wild = content.replace(offsets, np.array([0, 40, 2**30], dtype=np.int32).tobytes())
    model.save(tmp_path / "m.dpw")
    for name, part in {"arrays.arrow": wild, "public/0.arrow": wild}.items():
        manifest = json.loads(zipfile.ZipFile(tmp_path / "m.dpw").read("manifest.json")) | {"public": ["x"]}
        changes = {"manifest.json": json.dumps(manifest).encode(), name: part}
        code = "import sys, dpweave as dw; dw.load(sys.argv[1]).public['x'].to_pylist()"
        path = rewritten(tmp_path / "m.dpw", changes)
        done = subprocess.run([sys.executable, "-c", code, path], check=False, capture_output=True, text=True)
        assert done.returncode == 1
        assert "ModelFileError" in done.stderr.splitlines()[-1]


def test_files_that_are_far_too_large_are_refused_before_they_fill_the_memory(call, tmp_path):  # noqa: F811
    """A plan, a model, a ledger and a data package of terabytes, each of which takes no room on the disk."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "t.csv").write_text("id\n1\n")
    names = ("plan.toml", "m.dpw", "ledger.jsonl", "shop/datapackage.json")
    for name in names:
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 42)
    plan, model, ledger, _ = (tmp_path / name for name in names)
    for arguments, why in (
        (["explain", plan, "-e", "1"], "it is no plan"),
        (["sample", model, "-o", tmp_path / "c.csv"], "is damaged or not a model"),
        (["ledger", ledger], "as no ledger is"),
        (["draft", tmp_path / "shop", "-o", tmp_path / "p.toml"], "not a tabular data package"),
    ):
        code, out, err = call(*arguments)
        assert code in (3, 4, 5)
        assert why in " ".join((out + err).split())
