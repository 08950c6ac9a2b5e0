"""Progress of long work: a named step, how far inside it, and bars in a terminal if asked for."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Progress:
    """Tells a callback ``(step, share)`` which step runs and how much of it is done, from 0 to 1."""

    def __init__(self, tell: Callable[[str, float], None]) -> None:
        self._tell = tell
        self._step = ""

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Run one step."""
        self._step = name
        self._tell(name, 0.0)
        yield
        self._tell(name, 1.0)

    def inside(self, detail: str, share: float) -> None:
        """Say how far the running step has come."""
        self._tell(f"{self._step}: {detail}" if detail else self._step, min(share, 0.999))


class Bars:
    """A line in the terminal per step, with a bar for the running one."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress as Rich, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._rich = Rich(*columns, transient=False)
        self._task: Any = None
        self._open = False

    def __call__(self, step: str, share: float) -> None:
        """Show where the work stands."""
        if not self._open:
            self._rich.start()
            self._open = True
        if self._task is None:
            self._task = self._rich.add_task(step, total=1.0)
        if share >= 1.0:
            self._rich.update(self._task, description=step, completed=1.0)
            self._task = None
            self._rich.stop()
            self._open = False
        else:
            self._rich.update(self._task, description=step, completed=share)


def reporter(progress: bool | Callable[[str, float], None]) -> Progress:
    """Return a reporter for what the user passed: True for bars, a callback, or False for silence."""
    if progress is True:
        return Progress(Bars())
    if progress is False:
        return Progress(lambda _step, _share: None)
    return Progress(progress)
