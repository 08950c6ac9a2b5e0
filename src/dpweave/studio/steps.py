"""Steps that spend or write: the very commands that the page shows, run as child processes of this one.

A step of its own process can be stopped as Ctrl-C stops it in a terminal, with the same words about what was spent,
and the page answers while it runs.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from dpweave.errors import UsageError
from dpweave.progress import ASKED_FOR_LINES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


STARTING = "starting"
"""What a step does until it says something itself."""


def shown(words: Sequence[str]) -> str:
    """Write a command as a shell takes it."""
    return shlex.join(["dpweave", *words])


@dataclass
class Step:
    """One command: how far it has come, and how it ended."""

    name: str
    words: tuple[str, ...]
    command: str
    """As the page shows it: without a password."""
    files: dict[str, Path] = field(default_factory=dict)
    """What it makes, by kind."""
    state: str = "running"
    """``running``, ``done``, ``failed`` or ``cancelled``."""
    doing: str = STARTING
    share: float = 0.0
    began: float = field(default_factory=time.monotonic)
    part_began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    result: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    def view(self) -> dict[str, Any]:
        """Return how it stands, with about how many seconds the running part takes on."""
        now = self.ended or time.monotonic()
        left = (now - self.part_began) * (1 - self.share) / self.share if 0 < self.share < 1 else None
        return {
            "name": self.name,
            "command": self.command,
            "state": self.state,
            "doing": self.doing,
            "share": self.share,
            "seconds": now - self.began,
            "left": left,
            "result": self.result,
            "error": self.error,
            "files": {kind: path.name for kind, path in self.files.items()},
        }


class Runner:
    """Runs one step at a time, and keeps the last of each name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = Lock()
        self._process: subprocess.Popen[str] | None = None
        self.last: dict[str, Step] = {}

    @property
    def running(self) -> Step | None:
        """The step that runs now."""
        return next((s for s in self.last.values() if s.state == "running"), None)

    def start(self, step: Step) -> None:
        """Begin a step, if none runs."""
        with self._lock:
            if self.running is not None:
                raise UsageError(f"{self.running.name} is still running; wait for it, or cancel it")
            self._process = subprocess.Popen(  # noqa: S603 - our own command, no shell
                [sys.executable, "-m", "dpweave.cli", *step.words],
                cwd=self._folder,
                env=os.environ | {ASKED_FOR_LINES: "json"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
            )
            self.last[step.name] = step
        Thread(target=self._follow, args=(step, self._process), daemon=True).start()

    def cancel(self) -> None:
        """Stop the running step as Ctrl-C does."""
        with self._lock:
            if self.running is not None and self._process is not None:
                with suppress(ProcessLookupError):
                    self._process.send_signal(signal.SIGINT if os.name == "posix" else signal.SIGTERM)

    def close(self) -> None:
        """Stop what runs and wait until it has cleaned up."""
        self.cancel()
        if self._process is not None:
            self._process.wait()

    def _follow(self, step: Step, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        out: list[str] = []
        reader = Thread(target=lambda: out.append(process.stdout.read()), daemon=True)  # type: ignore[union-attr]
        reader.start()
        words: list[str] = []
        for line in process.stderr:
            try:
                said = json.loads(line)
                name, share = str(said["step"]), float(said["share"])
            except (ValueError, KeyError, TypeError):
                words.append(line.strip())
                continue
            if name.partition(":")[0] != step.doing.partition(":")[0] or share < step.share:
                step.part_began = time.monotonic()
            step.doing, step.share = name, share
        code = process.wait()
        reader.join()
        process.stdout.close()
        process.stderr.close()
        with suppress(ValueError):
            step.result = json.loads("".join(out))
        step.ended = time.monotonic()
        unborn = code == 1 and "KeyboardInterrupt" in words  # Python itself was starting, and none of our code ran
        stopped = unborn or code in (130, -signal.SIGINT)
        whole = stopped and bool(step.result) and "error" not in step.result  # stopped while Python was ending
        if code == 0 or whole:
            step.state = "done"
            return
        early = "It was stopped before it began. Nothing was spent." if stopped and step.doing == STARTING else ""
        step.error = str(step.result.pop("error", "") or early or " ".join(words) or f"It ended with code {code}.")
        step.state = "cancelled" if stopped else "failed"
