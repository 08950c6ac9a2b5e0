"""Fits that are killed at every durable step, or run out of room, and go on.

Run as a program of its own, so that every attempt is a fork of a process that has imported all and opened nothing.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import dpweave as dw
from dpweave.budget.spending import read
from dpweave.errors import DpweaveError, memory_said
from tests.faults.dying import AFTER, TORN, Death, forked, warm

if TYPE_CHECKING:
    from collections.abc import Callable

EPSILON, DELTA, SEED = 3.0, 1e-5, 5
SHORT, FOREIGN, SPEECHLESS = 9, 17, 18
"""How a process ends that has said that memory is not enough, with an error that is not ours, and with one for which
Python itself has no memory left to say what it is.
"""


def fit(folder: Path) -> None:
    """Fit the folder's source, or go on, and save the model."""
    model = dw.fit(
        folder / "shop.duckdb",
        dw.Plan.load(folder / "plan.toml"),
        epsilon=EPSILON,
        delta=DELTA,
        ledger=folder / "ledger.jsonl",
        insecure_seed=SEED,
        resume=any(b"\n" in path.read_bytes() for path in folder.glob("*.answers")),
    )
    model.save(folder / "model.dpw")


def attempt(folder: Path, death: Death | None = None) -> bool:
    """Let a process fit, or go on, and die; say whether it got to its end."""
    fate = forked(lambda: fit(folder), folder, death)
    warm(fate)
    return not fate.died


def short_of_room(folder: Path, most: int) -> bool:
    """Let a process fit, or go on, where no file may grow beyond ``most`` bytes; say whether it got to its end.

    A write that goes beyond is cut off there, as on a full disk. What the process says of it must be ours.
    """
    failed = folder / "failed"

    def squeezed() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        try:
            fit(folder)
        except DpweaveError as error:
            if str(folder) not in str(error):
                raise
            failed.touch()

    forked(squeezed, folder)
    done = not failed.exists()
    failed.unlink(missing_ok=True)
    return done


def short_of_memory(do: Callable[[Path], object], folder: Path, more: int) -> bool:
    """Let a process do something that may take so many bytes more than it has; say whether it got to its end.

    What it says if it does not must be ours. A library that was not written in Python may die of it, and Python itself
    may have no memory left to say anything: that is a death like others.
    """
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        code = FOREIGN
        try:
            has = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (has + more, has + more))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with memory_said("as the command line says it"):
                do(folder)
            code = 0
        except DpweaveError as error:
            code = SHORT if "memory" in str(error).lower() else FOREIGN
            if code == FOREIGN:
                traceback.print_exc()
        except BaseException:
            code = SPEECHLESS
            traceback.print_exc()
            code = FOREIGN
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    ended = os.waitstatus_to_exitcode(status)
    assert ended != FOREIGN, f"an error that is not ours, with {more:,} bytes of memory"
    return ended == 0  # other numbers than ours, and signals, are of libraries that ended the process themselves


def starving(folder: Path) -> int:
    """Give fits, copies and reports more and more memory, until each gets to its end. Returns how often one did not.

    First where every library must be loaded yet, and then where all are.
    """
    failures = sum(not short_of_memory(fit, folder, more << 20) for more in (30, 200))
    (other := folder / "other").mkdir()
    for name in ("shop.duckdb", "plan.toml"):
        shutil.copy(folder / name, other)
    warm(forked(partial(_all, other), other))
    shutil.rmtree(other)
    for do in (fit, write, report):
        more = 2 << 20
        while not short_of_memory(do, folder, more):
            failures += 1
            require_sound(folder)
            more *= 2
            assert more < 1 << 33, f"{do.__name__} takes too much"
    return failures


def write(folder: Path) -> None:
    """Sample, and write over what is there."""
    dw.load(folder / "model.dpw").sample(seed=1).write(folder / "copy.sqlite", overwrite=True)


def report(folder: Path) -> None:
    """Sample, and report."""
    model = dw.load(folder / "model.dpw")
    dw.report(model, model.sample(seed=1), folder / "report.html")


def _all(folder: Path) -> None:
    fit(folder)
    write(folder)
    report(folder)


def filling_up(folder: Path) -> int:
    """Give files more and more room, until a fit gets to its end. Returns how often it did not."""
    failures, most = 0, 200
    while not short_of_room(folder, most):
        failures += 1
        require_sound(folder)
        assert not [*folder.glob("*.part")], "a half output was left"
        most = int(most * 1.7)
    return failures


def require_sound(folder: Path) -> None:
    """What must hold after every fault: the ledger can be read, nothing was answered that was not charged for, and
    there is no half of a model.
    """
    ledger = folder / "ledger.jsonl"
    charged = (
        {e.n for d in read(ledger).databases.values() for e in d.entries if e.kind == "charge"}
        if _any(ledger)
        else set()
    )
    for path in folder.glob("*.answers"):
        whole = [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
        assert {json.loads(line)["charge"] for line in whole[1:]} <= charged
    if (folder / "model.dpw").exists():
        dw.load(folder / "model.dpw")


def _any(ledger: Path) -> bool:
    return ledger.exists() and b"\n" in ledger.read_bytes()


def every_step(folder: Path) -> int:
    """Kill at the first durable step, torn and after it; then at the next one of who goes on, and so on to the end.

    Who goes on opens the run again, charges for one question and keeps its answer. Returns the kills.
    """
    kills, known = 0, -1
    while (now := _answers(folder)) > known:
        for step in (1, 2, 3, 4) if known < 0 else (2, 3):
            for kind in (TORN, AFTER):
                if attempt(folder, Death(kind, step)):
                    return kills
                kills += 1
                require_sound(folder)
        known = now
    attempt(folder)
    return kills


def _answers(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("*.answers"))


if __name__ == "__main__":
    place = Path(sys.argv[2])
    if sys.argv[1] == "whole":
        assert attempt(place)
        print(0)
    else:
        print({"every": every_step, "room": filling_up, "memory": starving}[sys.argv[1]](place))
    sys.stdout.flush()
    os._exit(0)  # DuckDB, imported and never used, complains as it goes
