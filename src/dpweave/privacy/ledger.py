r"""The durable record of what was spent, shared by every process that names the same file.

One JSON object per line: ``n`` counts lines from 1, ``chain`` is the SHA-256 of the line before, then ``time``,
``kind`` (``open``, ``charge``, ``close`` or ``cap``), ``run``, ``database``, ``label``, ``rho`` and ``delta`` per
protected table, and ``what``. Lines are only ever appended, under a lock (``<ledger>.lock``, beside the file itself and
not beside a symbolic link to it; where the system has ``flock``, the file itself too, so that a hard link is no way
round).

Formal guarantees:
  - ``charge`` returns after its line is on disk (fsync), and rows may be read only then. A crash before leaves at
    most a torn last line without a newline: nothing was read, readers skip it and the next writer removes it.
  - A charge that would pass the run's limit or the database's cap raises before anything is written. What other
    processes appended is read under the same lock, so a race cannot overspend.
  - A run's first line reserves its whole limit under the cap until its ``close`` line, so that runs at the same time do
    not stop each other halfway. Reservations only ever refuse a beginning: every charge is checked against what all
    runs have spent, so a run that is closed too early cannot overspend either. Lines of versions before reserve
    nothing.
  - A line that was edited, removed or inserted before the last one breaks the chain and stops all spending. Removing
    lines from the end, or editing the last one, goes unnoticed unless a run is open that has seen them, or a model or
    an anchor kept elsewhere knows them (``model.verification``, ``budget.anchors``): the file guards against
    accidents, not against its owner.
  - Only public values are written, and credentials are cut out of anything that looks like a URL.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import threading
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING

from dpweave.errors import BudgetError, LedgerError, UsageError, nearest
from dpweave.privacy.accounting import Budget, Cost, epsilon_of_rho, require_number, rho_of_epsilon, subtract

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

TEXTS = ("time", "kind", "run", "database", "label")
OBJECTS = ("rho", "delta", "what")
KINDS = ("open", "charge", "close", "cap")
LOCK_SECONDS = 60


@dataclass(frozen=True)
class Entry:
    """One line of a ledger; ``kind`` is ``open``, ``charge``, ``close`` or ``cap``, and only charges have a cost."""

    n: int
    time: str
    kind: str
    run: str
    database: str
    label: str
    cost: Cost
    what: Mapping[str, object]


@dataclass(frozen=True)
class Cap:
    """The most that all runs together may spend on one database: (ε, δ) for each protected table."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        require_number("epsilon of the cap", self.epsilon, low=0, high=1e6)
        require_number("delta of the cap", self.delta, low=0, high=1)

    def allows(self, total: Cost, table: str) -> bool:
        """Whether ``total`` keeps (ε, δ) for ``table``: δ pays for the deltas first, the rest converts ρ."""
        left = subtract(self.delta, total.delta.get(table, 0.0))
        return left > 0 and epsilon_of_rho(total.rho.get(table, 0.0), delta=left) <= self.epsilon

    def left(self, total: Cost, table: str) -> Budget:
        """What ``table`` may still spend: so much δ, or so much ρ if it spends no further δ."""
        delta = subtract(self.delta, total.delta.get(table, 0.0))
        rho = rho_of_epsilon(self.epsilon, delta=delta) if delta > 0 else 0.0
        return Budget(subtract(rho, total.rho.get(table, 0.0)), delta)


class Journal:
    """The file (or the memory) behind a ledger: all lines read so far, and the totals they lead to."""

    def __init__(self, path: Path | str | None) -> None:
        self.path = None if path is None else Path(os.path.realpath(path))  # one lock, whatever links lead here
        self.entries: list[Entry] = []
        self.runs: dict[tuple[str, str], Cost] = {}
        self.reserved: dict[tuple[str, str], Cost] = {}
        self.databases: dict[str, Cost] = {}
        self.caps: dict[str, Cap] = {}
        self._size = 0
        self._last = b""
        self._memory = io.BytesIO()
        self._mutex = threading.Lock()

    @contextmanager
    def locked(self) -> Iterator[IO[bytes]]:
        """Hold the lock, take in what others appended, and remove a torn last line."""
        if self.path is None:
            with self._mutex:
                yield self._memory
            return
        from filelock import FileLock, Timeout

        self.require_folder()
        try:
            with FileLock(f"{self.path}.lock", timeout=LOCK_SECONDS), self._open(self.path) as file:
                _lock(file)
                self.catch_up(file)
                if file.tell() > self._size:
                    file.truncate(self._size)
                yield file
        except Timeout:
            raise self.trouble(f"another process has held its lock for {LOCK_SECONDS} s; wait for it") from None
        except OSError as error:
            raise self.trouble(f"{error.strerror}; name a file that can be written") from error

    def require_folder(self) -> None:
        """Refuse a folder that is not there: a lock would make it, and a mistyped name would be a new ledger."""
        if self.path is not None and not self.path.parent.is_dir():
            raise self.trouble(f"there is no folder {self.path.parent}; make it, or name another")

    def catch_up(self, file: IO[bytes]) -> None:
        """Take in every whole line after the last one known; a torn last line is left alone."""
        file.seek(self._size - len(self._last))
        if file.read(len(self._last)) != self._last:
            raise self.trouble("lines that were already read from it are gone; restore it from a copy")
        *lines, torn = file.read().split(b"\n")
        for line in lines:
            self._absorb(line + b"\n")
        header, torn = self._header(), torn.rstrip(b"\0")
        if not (torn.startswith(header) or header.startswith(torn)):
            raise self._damaged("is not a ledger's")

    def committed(self, database: str, *, but: str = "") -> Cost:
        """What was spent on ``database``, and what runs that have not ended have reserved; ``but`` one run."""
        runs = [at for at in self.runs if at[0] == database and at[1] != but]
        return sum((self.reserved.get(at, self.runs[at]) for at in runs), Cost.zero())

    def append(self, file: IO[bytes], *, cost: Cost, **content: object) -> None:
        """Write one line and wait until it is on disk."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        try:
            body = json.dumps({"time": now, "rho": {**cost.rho}, "delta": {**cost.delta}, **content}, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UsageError(f"a ledger holds plain JSON, but {error}; give strings and finite numbers") from None
        line = self._header() + _scrub(body)[1:].encode() + b"\n"
        file.seek(self._size)
        file.write(line)
        file.flush()
        if self.path is not None:
            os.fsync(file.fileno())
        self._absorb(line)

    def _open(self, path: Path) -> IO[bytes]:
        if self._size or path.exists():
            return path.open("r+b")
        file = path.open("x+b")
        if os.name == "posix":  # the name itself must survive a crash
            directory = os.open(path.parent, os.O_RDONLY)
            os.fsync(directory)
            os.close(directory)
        return file

    def _header(self) -> bytes:
        """Start of the only line that may come next."""
        return f'{{"n": {len(self.entries) + 1}, "chain": "{hashlib.sha256(self._last).hexdigest()}", '.encode()

    def _absorb(self, line: bytes) -> None:
        if not line.startswith(self._header()):
            raise self._damaged("does not continue the line before it")
        try:
            raw = json.loads(line)
            texts = {key: raw.pop(key) for key in TEXTS}
            cost, what = Cost(raw["rho"], raw["delta"]), raw["what"]
            cap = Cap(what["epsilon"], what["delta"]) if texts["kind"] == "cap" else None
            reserves = texts["kind"] == "open" and what.get("reserved") is True
            limit = _whole(Budget(**what["limit"]), map(str, what["tables"])) if reserves else None
            valid = raw.keys() == {"n", "chain", *OBJECTS} and texts["kind"] in KINDS
            valid = valid and isinstance(what, dict) and all(isinstance(text, str) for text in texts.values())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self._damaged("is malformed") from error
        if not valid:
            raise self._damaged("has other fields than a ledger's")
        entry = Entry(n=len(self.entries) + 1, cost=cost, what=what, **texts)
        at = entry.database, entry.run
        if cap is not None:
            self.caps[entry.database] = cap
        if limit is not None:
            self.reserved[at] = limit
        if entry.kind == "close":
            self.reserved.pop(at, None)
        self.runs[at] = self.runs.get(at, Cost.zero()) + cost
        self.databases[entry.database] = self.databases.get(entry.database, Cost.zero()) + cost
        self.entries.append(entry)
        self._size += len(line)
        self._last = line

    def trouble(self, why: str) -> LedgerError:
        """Say that this ledger cannot be used."""
        return LedgerError(f"ledger {self.path} cannot be used: {why}")

    def _damaged(self, why: str) -> LedgerError:
        return self.trouble(f"line {len(self.entries) + 1} {why}; restore it from a copy or start a new one")


@dataclass(frozen=True, eq=False)
class Ledger:
    """One run's account: every charge is checked, made durable, and only then allowed."""

    database: str
    limit: Budget
    tables: tuple[str, ...]
    label: str
    _journal: Journal = field(repr=False)
    run: str

    @classmethod
    def open(
        cls,
        path: Path | str | None,
        *,
        database: str,
        limit: Budget,
        tables: Sequence[str],
        label: str | None = None,
        details: Mapping[str, object] = MappingProxyType({}),
        run: str | None = None,
    ) -> Ledger:
        """Begin a run on ``database`` whose ``tables`` may each spend ``limit``; ``path=None`` keeps it in memory.

        The limit in full is reserved until ``close``. Refused with ``BudgetError`` if it would pass the database's cap
        together with what is spent and reserved: a run that is stopped halfway has spent for nothing. A ``run`` that
        the ledger knows is opened again, and what it has spent is a part of its limit.
        """
        run = run or str(uuid.uuid4())
        ledger = cls(_scrub(database), limit, tuple(tables), label or "", Journal(path), run)
        what = {"limit": {"rho": limit.rho, "delta": limit.delta}, "tables": list(tables), "details": {**details}}
        ledger._write(
            "open", check=_whole(limit, tables), cost=Cost.zero(), what={**what, "reserved": True}, begins=True
        )
        return ledger

    def close(self, *, what: Mapping[str, object] = MappingProxyType({})) -> None:
        """End the run: what it reserved and did not spend is free for others. ``what`` says what came of it."""
        self._write("close", check=Cost.zero(), cost=Cost.zero(), what=what)

    def charge(self, cost: Cost, *, what: Mapping[str, object]) -> None:
        """Spend ``cost``. When this returns the charge is on disk and rows may be read; if it raises, they may not."""
        unknown = sorted({*cost.rho, *cost.delta} - {*self.tables})
        if unknown:
            hint = nearest(unknown[0], self.tables)
            raise UsageError(f"table {unknown[0]!r} is charged but not protected in this run; {hint}")
        recorded = Cost(cost.rho, cost.delta)  # the file holds floats, rounded up
        self._write("charge", check=recorded, cost=recorded, what=what)

    @property
    def spent(self) -> Cost:
        """What this run has spent."""
        return self._journal.runs.get((self.database, self.run), Cost.zero())

    @property
    def remaining(self) -> Mapping[str, Budget]:
        """What each protected table may still spend in this run."""
        return {table: self.limit.left(table, spent=self.spent) for table in self.tables}

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Lines of this run, its opening first."""
        return tuple(entry for entry in self._journal.entries if entry.run == self.run)

    def _write(self, kind: str, *, check: Cost, cost: Cost, what: Mapping[str, object], begins: bool = False) -> None:
        who = {"kind": kind, "run": self.run, "database": self.database, "label": self.label}
        with self._journal.locked() as file:
            self._require(check, begins=begins)
            self._journal.append(file, cost=cost, what={**what}, **who)

    def _require(self, cost: Cost, *, begins: bool) -> None:
        for table in self.limit.exceeded(self.spent if begins else self.spent + cost):
            raise _refusal(table, cost, self.remaining[table], "in this run; lower it or begin a new run")
        spent = self._journal.databases.get(self.database, Cost.zero())
        total = self._journal.committed(self.database, but=self.run) if begins else spent
        cap = self._journal.caps.get(self.database)
        for table in cost.tables:
            if cap is not None and not cap.allows(total + cost, table):
                where = f"under the cap of {self.database!r} (epsilon {cap.epsilon:g}, delta {cap.delta:g})"
                raise _refusal(table, cost, cap.left(total, table), f"{where}; lower it or raise the cap")


def set_cap(path: Path | str, *, database: str, epsilon: float, delta: float) -> None:
    """Bound what all runs on ``database`` may spend, what they have spent already included; the last cap counts."""
    _note(path, kind="cap", run="", database=database, what={"epsilon": Cap(epsilon, delta).epsilon, "delta": delta})


def release(path: Path | str, *, database: str, run: str) -> None:
    """Close a run whose process is gone, in its stead. What it has spent stays spent,
    and so does what it may yet spend.
    """
    _note(path, kind="close", run=run, database=database, what={})


def _note(path: Path | str, *, database: str, **content: object) -> None:
    journal = Journal(path)
    with journal.locked() as file:
        journal.append(file, cost=Cost.zero(), database=_scrub(database), label="", **content)


def _whole(limit: Budget, tables: Iterable[str]) -> Cost:
    """Return the limit in full, for every table."""
    names = tuple(tables)
    return Cost(dict.fromkeys(names, limit.rho), dict.fromkeys(names, limit.delta))


def _lock(file: IO[bytes]) -> None:
    """Lock the file itself until it is closed, where the system can."""
    if os.name == "posix":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)


def _scrub(text: str) -> str:
    """Cut user and password out of whatever looks like a URL."""
    return re.sub(r'(?<=://)[^/\s"]*@|(?<=password=)[^&\s"]*', "", text)


def _refusal(table: str, cost: Cost, left: Budget, rest: str) -> BudgetError:
    asked = f"rho {cost.rho.get(table, 0.0):g} and delta {cost.delta.get(table, 0.0):g}"
    return BudgetError(
        f"table {table!r} asks for {asked}, but rho {left.rho:g} and delta {left.delta:g} are left {rest}"
    )
