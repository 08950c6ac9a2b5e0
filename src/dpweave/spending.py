"""What a ledger says, for people: totals by database and run. Reads the file and spends nothing."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpweave.errors import UsageError
from dpweave.privacy.accounting import epsilon_of_rho, require_number, subtract
from dpweave.privacy.ledger import Journal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.privacy.accounting import Cost
    from dpweave.privacy.ledger import Cap, Entry


@dataclass(frozen=True)
class DatabaseSummary:
    """All that was spent on one database."""

    total: Cost
    cap: Cap | None
    entries: tuple[Entry, ...]

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


@dataclass(frozen=True)
class LedgerSummary:
    """A ledger for display."""

    databases: Mapping[str, DatabaseSummary]


def read(path: Path | str) -> LedgerSummary:
    """Read and verify a ledger; takes no lock and writes nothing."""
    journal = Journal(path)
    try:
        journal.catch_up(io.BytesIO(Path(path).read_bytes()))
    except OSError as error:
        raise journal.trouble(f"{error.strerror}; name a file that can be read") from error
    of = {name: tuple(entry for entry in journal.entries if entry.database == name) for name in journal.databases}
    return LedgerSummary(
        {name: DatabaseSummary(total, journal.caps.get(name), of[name]) for name, total in journal.databases.items()}
    )
