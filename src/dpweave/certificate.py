"""The certificate as a value, in words and as JSON; what it says is worked out in :mod:`dpweave.privacy.release`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Guarantee:
    """What one protected table was promised: ρ spent, δ spent on thresholds, and the (ε, δ) they amount to."""

    table: str
    rho: float
    epsilon: float
    delta: float


@dataclass(frozen=True)
class Certificate:
    """Exactly what was promised to whom.

    ``epsilon`` and ``delta`` hold for every protected table at once: neighbours differ in one row of one of them, so
    the guarantee is the largest of the columns, not their sum.
    """

    epsilon: float
    delta: float
    rho: float
    tables: tuple[Guarantee, ...]
    neighbours: str
    statement: str
    bounds: tuple[tuple[str, str, int], ...]
    owned_rows: Mapping[str, Mapping[str, int]]
    events: tuple[Mapping[str, Any], ...]
    versions: Mapping[str, str]
    database: str
    run: str
    insecure: bool = False
    external: tuple[Mapping[str, Any], ...] = ()
    caveats: tuple[str, ...] = ()
    evidence: tuple[Mapping[str, Any], ...] = ()
    """Per learned relation: did the noisy counts support correlation, or is its wiring as good as independent?"""

    def to_json(self) -> str:
        """Return the certificate as JSON."""
        return json.dumps(asdict(self), indent=2, default=dict, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Invert :meth:`to_json`."""
        data = json.loads(text)
        data["tables"] = tuple(Guarantee(**g) for g in data["tables"])
        data["bounds"] = tuple((t, k, b) for t, k, b in data["bounds"])
        for name in ("events", "external", "caveats", "evidence"):
            data[name] = tuple(data[name])
        return cls(**data)

    def __str__(self) -> str:
        stamp = "INSECURE: noise came from a known seed; this protects nobody.\n" if self.insecure else ""
        lines = [
            f"{stamp}epsilon {self.epsilon:.6g}, delta {self.delta:.3g} ({self.neighbours} neighbours)",
            self.statement,
        ]
        lines += [f"  {g.table}: rho {g.rho:.6g}, epsilon {g.epsilon:.6g} at delta {g.delta:.3g}" for g in self.tables]
        lines += [f"  note: {c}" for c in self.caveats]
        lines += [f"  {e['relation']}: {e['verdict']}" for e in self.evidence]
        return "\n".join(lines)
