"""What a ledger says, for people: totals by database and run, and what may still be asked for. Spends nothing."""

from __future__ import annotations

import io
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dpweave.errors import UsageError
from dpweave.privacy.accounting import Cost, epsilon_of_rho, require_number, subtract
from dpweave.privacy.ledger import Journal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.privacy.ledger import Cap, Entry

LONGEST = 1 << 30
"""Bytes that a ledger may have: more than a million charges."""


@dataclass(frozen=True)
class DatabaseSummary:
    """All that was spent on one database."""

    total: Cost
    cap: Cap | None
    entries: tuple[Entry, ...]
    reserved: Mapping[str, Cost] = field(default_factory=dict)
    """What each run may spend that has not ended, with what it has spent already."""
    committed: Cost | None = None
    """``total``, and what is reserved beyond it."""

    @property
    def runs(self) -> Mapping[str, tuple[Entry, ...]]:
        """Lines of each run, in the order in which runs began."""
        names = dict.fromkeys(entry.run for entry in self.entries if entry.kind != "cap")
        return {name: tuple(entry for entry in self.entries if entry.run == name) for name in names}

    def epsilon(self, table: str, *, delta: float) -> float:
        """Return ε of ``table`` over all runs at a total δ of ``delta``, which its deltas use first."""
        spent = self.total.delta.get(table, 0.0)
        left = subtract(require_number("delta", delta, low=0, high=1), spent)
        if left == 0:
            raise UsageError(f"delta is {delta:g}, but table {table!r} has spent {spent:g} of it; give a larger delta")
        return epsilon_of_rho(self.total.rho.get(table, 0.0), delta=left)

    def affordable(
        self, tables: Sequence[str], *, delta: float, spent_delta: float = 0.0, elsewhere: float = 0.0
    ) -> float:
        r"""Return the largest ε, to three digits, that one more run at ``delta`` may
        ask for under the cap; 0 if there is none.

        If the run spends ``spent_delta`` on thresholds, the cap leaves :math:`\rho = \rho(\varepsilon_{cap},
        \delta_{cap} - \delta_{spent}) - \rho_{spent}`, and the rest of the run's δ converts that into its ε.
        No run is possible that leaves no more than the ρ that tables made ``elsewhere`` declare.
        """
        if self.cap is None:
            return math.inf
        gone = self.committed or self.total
        rho = min(self.cap.left(gone + Cost({}, {table: spent_delta}), table).rho for table in tables)
        epsilon = epsilon_of_rho(rho, delta=subtract(delta, spent_delta)) if rho > elsewhere else 0.0
        if not epsilon > 0:
            return 0.0
        step = 10.0 ** (math.floor(math.log10(epsilon)) - 2)
        return math.floor(epsilon / step * (1 - 1e-9)) * step


@dataclass(frozen=True)
class LedgerSummary:
    """A ledger for display."""

    databases: Mapping[str, DatabaseSummary]


def read(path: Path | str) -> LedgerSummary:
    """Read and verify a ledger; takes no lock and writes nothing."""
    journal, _ = _read(path)
    return LedgerSummary({name: _summary(journal, name) for name in journal.databases})


def whole_lines(path: Path | str) -> list[bytes]:
    """Read and verify a ledger; return its lines as they are in the file, but for a last one that was cut off."""
    journal, content = _read(path)
    return [line + b"\n" for line in content.split(b"\n")[: len(journal.entries)]]


def _read(path: Path | str) -> tuple[Journal, bytes]:
    journal = Journal(path)
    try:
        with Path(path).open("rb") as file:
            if os.fstat(file.fileno()).st_size > LONGEST:
                raise journal.trouble(f"it is larger than {LONGEST >> 20:,} MB, as no ledger is")
            content = file.read()
        journal.catch_up(io.BytesIO(content))
    except OSError as error:
        raise journal.trouble(f"{error.strerror}; name a file that can be read") from error
    return journal, content


def _summary(journal: Journal, name: str) -> DatabaseSummary:
    return DatabaseSummary(
        journal.databases[name],
        journal.caps.get(name),
        tuple(entry for entry in journal.entries if entry.database == name),
        {run: limit for (database, run), limit in journal.reserved.items() if database == name},
        journal.committed(name),
    )
