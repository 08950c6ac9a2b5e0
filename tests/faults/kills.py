"""Fits that are killed, and go on.

Run as a program of its own, so that every attempt is a fork of a process that has imported all and opened nothing.
A kill comes at an ``fsync``, the only place where something becomes durable: either just after it, or before it with
the last write torn in half, as a crash of the machine may leave it.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import resource
import signal
import sys
import traceback
from pathlib import Path

import dpweave as dw
import dpweave.engines.duckdb.source
import dpweave.fitting.fit
import dpweave.model.model
from dpweave.budget.spending import read
from dpweave.errors import DpweaveError

EPSILON, DELTA, SEED = 3.0, 1e-5, 5
TORN, AFTER = "torn", "after"


def fit(folder: Path, *, resume: bool) -> None:
    """Fit the folder's source and save the model."""
    model = dw.fit(
        folder / "shop.duckdb",
        dw.Plan.load(folder / "plan.toml"),
        epsilon=EPSILON,
        delta=DELTA,
        ledger=folder / "ledger.jsonl",
        insecure_seed=SEED,
        resume=resume,
    )
    model.save(folder / "model.dpw")


def attempt(folder: Path, step: int, kind: str) -> bool:
    """Let a process fit, or go on, and kill it at its ``step``-th fsync; say whether it got to its end."""
    resume = any(b"\n" in path.read_bytes() for path in folder.glob("*.answers"))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _die_at(step, kind)
            fit(folder, resume=resume)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    assert os.WEXITSTATUS(status) == 0, f"attempt at step {step} ({kind}) failed"
    return True


def _die_at(step: int, kind: str) -> None:
    real, seen = os.fsync, [0]
    sizes: dict[int, int] = {}

    def fsync(file: int) -> None:
        seen[0] += 1
        if seen[0] == step and kind == TORN:
            size, node = os.fstat(file).st_size, os.fstat(file).st_ino
            if Path(f"/proc/self/fd/{file}").is_file():
                os.ftruncate(file, (size + sizes.get(node, _known(file))) // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        real(file)
        sizes[os.fstat(file).st_ino] = os.fstat(file).st_size
        if seen[0] == step:
            os.kill(os.getpid(), signal.SIGKILL)

    os.fsync = fsync


def _known(file: int) -> int:
    """Where the last line of a file begins: what came before it was durable already."""
    content = Path(f"/proc/self/fd/{file}").read_bytes()
    return content[:-1].rfind(b"\n") + 1


def short_of_room(folder: Path, most: int) -> bool:
    """Let a process fit, or go on, where no file may grow beyond ``most`` bytes; say whether it got to its end.

    A write that goes beyond is cut off there, as on a full disk. What the process says of it must be ours.
    """
    resume = any(b"\n" in path.read_bytes() for path in folder.glob("*.answers"))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            fit(folder, resume=resume)
            code = 0
        except DpweaveError as error:
            code = 2 if str(folder) in str(error) else 1
            print(error, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.WEXITSTATUS(status) in (0, 2), f"an attempt with {most} bytes failed"
    return os.WEXITSTATUS(status) == 0


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
                if attempt(folder, step, kind):
                    return kills
                kills += 1
                require_sound(folder)
        known = now
    attempt(folder, 0, AFTER)
    return kills


def _answers(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("*.answers"))


def at_random(folder: Path, rng: random.Random, most: int) -> int:
    """Kill at random steps until a process gets to the end, at most so often. Returns the kills."""
    for kills in range(most):
        if attempt(folder, rng.randint(1, 12), rng.choice((TORN, AFTER))):
            return kills
        require_sound(folder)
    attempt(folder, 0, AFTER)
    return most


def _warm() -> None:
    """Import what a fit imports on its way, so that every fork has it."""
    for name in ("duckdb", "pandas", "ibis.backends.duckdb", "scipy.optimize", "scipy.sparse.csgraph", "tomlkit"):
        importlib.import_module(name)


if __name__ == "__main__":
    _warm()
    place = Path(sys.argv[2])
    if sys.argv[1] == "every":
        print(every_step(place))
    elif sys.argv[1] == "room":
        print(filling_up(place))
    elif sys.argv[1] == "whole":
        assert attempt(place, 0, AFTER)
        print(0)
    else:
        print(at_random(place, random.Random(int(sys.argv[3])), 20))
