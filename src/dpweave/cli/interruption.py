"""Ctrl-C: half-written files go, what was spent stays spent, and the person who pressed it is told both."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dpweave.cli.screen import complain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

INTERRUPTED = 130
"""Exit code of a command that was interrupted, as shells have it: 128 and the number of the signal."""


class _Listener:
    """Waits for interrupts for a while.

    Engines turn an interrupt that reaches them in the middle of a query into errors of their own, so that it came
    is remembered. Once ``deaf``, further ones do nothing: cleaning up is not to be interrupted.
    """

    def __init__(self) -> None:
        self.interrupted = False
        self.deaf = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        if not self.deaf:
            self.interrupted = True
            raise KeyboardInterrupt


@contextmanager
def interruptible(*outputs: Path | str, ledger: Path | None = None) -> Iterator[None]:
    """On Ctrl-C say what is whole and what the run has spent; it stays spent. (What is half written goes by itself.)"""
    files = [Path(o) for o in outputs if "://" not in str(o)]
    known, before = _runs(ledger), {path: _stamp(path) for path in files}
    listener = _Listener()
    listening = threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGINT, listener) if listening else None
    try:
        yield
    except BaseException as error:
        listener.deaf = True
        if not listener.interrupted and not isinstance(error, KeyboardInterrupt):
            raise
        whole = [str(path) for path in files if _stamp(path) not in (None, before[path])]
        kept = f"{', '.join(whole)} had been written already." if whole else "nothing was written."
        spent = [words for run, words in _runs(ledger).items() if run not in known]
        answered = ledger is not None and files and any(ledger.parent.glob(f"{escape(ledger.name)}.*.answers"))
        rest = " What was answered is kept: go on with --resume." if spent and answered else ""
        complain(f"interrupted; {kept} " + (" ".join(spent) or "Nothing was spent.") + rest, INTERRUPTED)
        raise typer.Exit(INTERRUPTED) from None
    finally:
        if listening:
            signal.signal(signal.SIGINT, previous)


def _stamp(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.exists() else None


def _runs(ledger: Path | None) -> dict[str, str]:
    """Every run in a ledger, with words for what it has spent."""
    if ledger is None or not ledger.exists():
        return {}
    from dpweave.budget.spending import read
    from dpweave.privacy.accounting import Cost

    found = {}
    for database in read(ledger).databases.values():
        for run, entries in database.runs.items():
            total = sum((e.cost for e in entries), Cost.zero())
            costs = ", ".join(f"rho {rho:.4g} of {table}" for table, rho in sorted(total.rho.items()) if rho > 0)
            found[run] = f"Spent, and recorded in {ledger}: {costs}." if costs else "Nothing was spent."
    return found
