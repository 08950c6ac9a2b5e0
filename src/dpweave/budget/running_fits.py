"""Which runs on a ledger are still going: each holds a lock beside it
(``<ledger>.<run>.run``) that dies with its process.

What a dead run has reserved is given back when the next one begins. No number depends on it: charges are checked
against what was spent, whoever is taken for dead. A run without such a file beside the ledger (it was moved, or runs
elsewhere under another name) counts as going until somebody says otherwise: ``dpweave ledger FILE --release RUN``.
"""

from __future__ import annotations

import glob
import os
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dpweave.budget.kept_answers import forget_unbegun
from dpweave.budget.spending import read
from dpweave.engines.file_locks import TRIES, Held
from dpweave.errors import BudgetError, LedgerError, UsageError, nearest
from dpweave.privacy.ledger import Journal, Ledger, release

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dpweave.budget.kept_answers import Kept
    from dpweave.budget.spending import DatabaseSummary
    from dpweave.privacy.accounting import Budget

SUFFIX = ".run"


class Mark(Held):
    """What the process of a run holds."""

    def __init__(self, ledger: Path | str, run: str) -> None:
        super().__init__(f"{os.path.realpath(ledger)}.{run}{SUFFIX}")
        self.run = run
        self.to_be_closed = False
        """Whether the run still is to be ended, by somebody who finds this."""


@contextmanager
def begin(
    path: Path | str | None,
    *,
    database: str,
    limit: Budget,
    tables: Sequence[str],
    delta: float,
    label: str | None,
    elsewhere: float = 0.0,
    resumes: Kept | None = None,
) -> Iterator[Ledger]:
    """Begin a run that may spend ``limit``, which was made from some ε and ``delta``; it ends with the block.

    A refusal says which ε the cap leaves. What tables made ``elsewhere`` declare, as ρ, is a part of the limit.
    A run whose answers were kept goes on under its own name.
    """
    if path is None:
        yield Ledger.open(None, database=database, limit=limit, tables=tables, label=label)
        return
    with _marked(path, run=None if resumes is None else resumes.run) as mark:
        close_dead(path)
        if resumes is not None:
            limit = resumes.above(path, limit, delta=delta)
        try:
            ledger = Ledger.open(path, run=mark.run, database=database, limit=limit, tables=tables, label=label)
        except BudgetError as refusal:
            found = None if isinstance(refusal, LedgerError) else read(path).databases.get(database)
            if found is None or found.cap is None:
                raise
            left = found.affordable(tables, delta=delta, spent_delta=limit.delta, elsewhere=elsewhere)
            raise BudgetError(f"{_hint(found, left)} at delta {delta:g}") from None
        try:
            yield ledger
        finally:
            mark.to_be_closed = not _closed(ledger)


def _closed(ledger: Ledger) -> bool:
    """End a run. If its last line cannot be written, what was learned is not to be lost
    for that: others will end it.
    """
    try:
        if ledger.entries[-1].kind != "close":  # a fit that came to its end has said what came of it
            ledger.close()
    except LedgerError:
        return False
    return True


def _hint(found: DatabaseSummary, left: float) -> str:
    """Say which ε a cap leaves, and how many runs may still take of it."""
    assert found.cap is not None
    going = len(found.reserved)
    held = f"with {going} run{'s' * (going != 1)} not ended yet, " if going else ""
    rest = f"ask for epsilon {left:g} or less" if left else "it leaves nothing"
    return f"the cap of epsilon {found.cap.epsilon:g} leaves less than this run may spend: {held}{rest}"


@contextmanager
def _marked(ledger: Path | str, *, run: str | None) -> Iterator[Mark]:
    """Give the mark of a run, taken; of a new one unless it is named."""
    Journal(ledger).require_folder()
    try:
        for _ in range(TRIES):
            if (mark := Mark(ledger, run or str(uuid.uuid4()))).take():
                break  # else somebody who looks for dead runs had it for a moment
        else:
            if run is not None:
                raise UsageError(f"run {run} is still going, so it cannot be resumed; wait for it, or stop it")
            raise LedgerError(f"ledger {ledger} cannot be used: no file beside it can be locked; name one elsewhere")
    except OSError as error:
        raise LedgerError(
            f"ledger {ledger} cannot be used: {error.strerror}; name a file that can be written"
        ) from None
    try:
        yield mark
    finally:
        mark.drop(keep=mark.to_be_closed)


def is_going(ledger: Path | str, run: str) -> bool:
    """Whether a process holds the mark of this run."""
    mark = Mark(ledger, run)
    if not mark.path.exists():
        return False
    if free := mark.take():
        mark.drop(keep=True)
    return not free


def give_back(ledger: Path | str, run: str) -> None:
    """End a run because a person says that it is dead; refused while its process is there."""
    open_runs = {r: name for name, found in read(ledger).databases.items() for r in found.reserved}
    if run not in open_runs:
        raise UsageError(f"the ledger {ledger} has no run {run!r} that has not ended; {nearest(run, open_runs)}")
    if is_going(ledger, run):
        raise UsageError(f"run {run} is still going; stop it first, or wait for it")
    release(ledger, database=open_runs[run], run=run)
    Mark(ledger, run).path.unlink(missing_ok=True)


def close_dead(ledger: Path | str) -> None:
    """End every run whose mark is there and held by no process."""
    path = Path(os.path.realpath(ledger))
    for file in path.parent.glob(f"{glob.escape(path.name)}.*{SUFFIX}"):
        mark = Mark(ledger, file.name.removeprefix(f"{path.name}.").removesuffix(SUFFIX))
        if mark.take():
            for database, found in read(ledger).databases.items() if path.exists() else ():
                if mark.run in found.reserved:
                    release(ledger, database=database, run=mark.run)
            forget_unbegun(ledger, mark.run)
            mark.drop()
