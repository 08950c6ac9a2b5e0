"""Processes that die on purpose: forks of one that has imported all and opened nothing.

A death comes at an ``fsync``, where something becomes durable: just after it, or before it with the last write torn in
half, as a crash of the machine may leave it. Or just before a file is opened for writing, renamed, removed or made. Or
at any time at all.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpweave.privacy.curator import Curator

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

TORN, AFTER, BEFORE, ANY_TIME = "torn", "after", "before", "any time"
WRITES = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
"""Events by which Python tells of a change to files before it happens."""


@dataclass(frozen=True)
class Death:
    """When a process is to die: at its so-manieth step, or after so many seconds."""

    kind: str
    at: float


@dataclass
class Fate:
    """What became of a process."""

    died: bool
    reads: list[str] = field(default_factory=list)
    """What it began to read of rows, by the name the ledger knows each question under."""
    steps: dict[str, float] = field(default_factory=dict)
    """If it lived: how many deaths of each kind it could have died."""
    modules: list[str] = field(default_factory=list)


def forked(do: Callable[[], object], folder: Path, death: Death | None = None) -> Fate:
    """Let a fork do something about ``folder``, and die over it. What it raises is a failure of ours."""
    pipe, end = os.pipe()
    sys.stdout.flush()
    began, child = time.monotonic(), os.fork()
    if child == 0:
        os.close(pipe)
        code = 1
        try:
            atexit._clear()  # what the parent tidies up when it ends is not ours
            steps = _prepare(folder, death, end)
            do()
            atexit._run_exitfuncs()  # a process that ends by itself tidies up; os._exit would not
            _say(end, {"steps": {**steps}, "modules": [*sys.modules] if death is None else []})
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(end)
    if death is not None and death.kind == ANY_TIME:
        time.sleep(death.at)
        os.kill(child, signal.SIGKILL)
    with os.fdopen(pipe) as told:
        lines = [json.loads(line) for line in told if line.endswith("\n")]
    _, status = os.waitpid(child, 0)
    fate = Fate(os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL)
    fate.reads = [line["read"] for line in lines if "read" in line]
    if not fate.died:
        assert os.WIFEXITED(status), f"a process that was to die by {death} ended with signal {os.WTERMSIG(status)}"
        assert os.WEXITSTATUS(status) == 0, f"a process that was to die by {death} failed"
        fate.steps = lines[-1]["steps"] | {ANY_TIME: time.monotonic() - began}
        fate.modules = lines[-1]["modules"]
    return fate


def by_chance(steps: dict[str, float], rng: random.Random) -> Death:
    """A death that a process can die that would go through ``steps``."""
    kind = rng.choice([k for k in (TORN, AFTER, BEFORE, ANY_TIME) if steps[k]])
    most = steps[kind]
    return Death(kind, rng.uniform(0, most) if kind == ANY_TIME else rng.randint(1, int(most)))


def warm(fate: Fate) -> None:
    """Import what a process had imported at its end, so that the next forks need not, and open nothing."""
    for name in fate.modules:
        if name != "__main__":
            try:
                importlib.import_module(name)
            except Exception:
                continue
    gc.collect()
    gc.freeze()  # forks do not touch, and so do not copy, what is here


def _say(end: int, content: dict[str, Any]) -> None:
    os.write(end, json.dumps(content).encode() + b"\n")


def _prepare(folder: Path, death: Death | None, end: int) -> dict[str, float]:
    """Count steps, tell what is read, and die at the step of ``death``."""
    steps = dict.fromkeys((TORN, AFTER, BEFORE, ANY_TIME), 0.0)
    place, fsync, ask, sizes = str(folder), os.fsync, Curator._ask, dict[int, int]()

    def due(kind: str) -> bool:
        steps[kind] += 1
        return death is not None and (death.kind, death.at) == (kind, steps[kind])

    def dying_fsync(file: int) -> None:
        if due(TORN):
            size, node = os.fstat(file).st_size, os.fstat(file).st_ino
            if Path(f"/proc/self/fd/{file}").is_file():
                os.ftruncate(file, (size + sizes.get(node, _known(file))) // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(file)
        sizes[os.fstat(file).st_ino] = os.fstat(file).st_size
        if due(AFTER):
            os.kill(os.getpid(), signal.SIGKILL)

    def watching(event: str, args: tuple[Any, ...]) -> None:
        if event in WRITES and str(args[0]).startswith(place):
            reads = event == "open" and not args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            if not reads and due(BEFORE):
                os.kill(os.getpid(), signal.SIGKILL)

    def telling(self: Curator, question: Any, cost: Any, read: Callable[[], Any]) -> Any:
        def told() -> Any:
            _say(end, {"read": question.what["what"]})
            return read()

        return ask(self, question, cost, told)

    os.fsync = dying_fsync
    Curator._ask = telling  # type: ignore[method-assign]
    sys.addaudithook(watching)
    return steps


def _known(file: int) -> int:
    """Where the last line of a file begins: what came before it was durable already."""
    content = Path(f"/proc/self/fd/{file}").read_bytes()
    return content[:-1].rfind(b"\n") + 1
