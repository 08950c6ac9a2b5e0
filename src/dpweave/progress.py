"""Progress of long work: a named step, how far inside it, and a bar in a terminal if asked for."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

ASKED_FOR_LINES = "DPWEAVE_PROGRESS"
"""Where this variable of the environment is ``json``, bars become lines of JSON."""

LONG = 1.0
"""Steps of at least so many seconds leave a line behind."""


def _nothing() -> None:
    """Do nothing: most listeners need no cleaning up."""


class Progress:
    """Tells a callback ``(step, share)`` which step runs and how much of it is done, from 0 to 1."""

    def __init__(self, tell: Callable[[str, float], None], stop: Callable[[], None] = _nothing) -> None:
        self._tell = tell
        self._stop = stop
        self._step = ""

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Run one step; whatever ends it early, the terminal is left clean."""
        self._step = name
        self._tell(name, 0.0)
        try:
            yield
        except BaseException:
            self._stop()
            raise
        self._tell(name, 1.0)

    def inside(self, detail: str, share: float) -> None:
        """Say how far the running step has come."""
        self._tell(f"{self._step}: {detail}" if detail else self._step, min(share, 0.999))


class Bars:
    """One bar on the error stream with the time left of the running step; silent where that is not a terminal.

    A step that took long leaves a line with its time, the others leave nothing.
    """

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console

        self._console = console or Console(stderr=True)
        self._live: Any = None
        self._task: Any = None
        self._began = 0.0

    def __call__(self, step: str, share: float) -> None:
        """Show where the work stands."""
        if not self._console.is_terminal:
            return
        if self._live is None:
            self._start(step)
        self._live.update(self._task, description=_short(step, self._console.width), completed=share)
        if share >= 1.0:
            self.stop()
            if (seconds := time.monotonic() - self._began) >= LONG:
                self._console.print(f"[dim]{step} ({seconds:.0f} s)[/dim]", highlight=False)

    def stop(self) -> None:
        """Take the bar away."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _start(self, step: str) -> None:
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Rich

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._live = Rich(*columns, console=self._console, transient=True)
        self._task = self._live.add_task(step, total=1.0)
        self._began = time.monotonic()
        self._live.start()


class Lines:
    """One line of JSON on the error stream for each report: for a program that started this one."""

    def __call__(self, step: str, share: float) -> None:
        """Say where the work stands."""
        print(json.dumps({"step": step, "share": share}), file=sys.stderr, flush=True)  # noqa: T201 - that is its use


def _short(step: str, width: int) -> str:
    """Cut a step so that it fits beside its bar."""
    room = max(width - 48, 16)
    return step if len(step) <= room else step[: room - 1] + "…"


def reporter(progress: bool | Callable[[str, float], None]) -> Progress:
    """Return a reporter for what the user passed: True for bars, a callback, or False for silence."""
    if progress is True and os.environ.get(ASKED_FOR_LINES) == "json":
        return Progress(Lines())
    if progress is True:
        bars = Bars()
        return Progress(bars, bars.stop)
    if progress is False:
        return Progress(lambda _step, _share: None)
    return Progress(progress)
