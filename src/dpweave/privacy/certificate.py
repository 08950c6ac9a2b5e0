"""The certificate as a value, in words and as JSON; what it says is worked out in :mod:`dpweave.privacy.release`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from decimal import ROUND_CEILING, Context
from typing import TYPE_CHECKING, Any

from dpweave.privacy.accounting import together

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.privacy.ledger import Entry
    from dpweave.privacy.promise import Promise


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
    digests: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of the ``answers`` and the ``plan`` it is about, and of the ``certificate`` without this one entry."""

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


def statement(promise: Promise) -> str:
    """Say a promise in plain words."""
    who = " or ".join(f"one row of {t}" for t in promise.protected)
    if promise.neighbours == "record":
        text = (
            f"Whoever sees the release can hardly tell what {who} says and what it is linked to; table sizes are not"
            " hidden by the neighbour relation."
        )
        if promise.on_excess == "truncate":
            text += " The guarantee is relative to the database after links beyond the bounds were dropped."
        return text
    kept = "".join(f" Links by {t}.{k} that leave their unit are not counted." for t, k in sorted(promise.within))
    kept += "".join(
        f" Rows of {t} are counted only while the row of {promise.database[t].key[k].target} that shares them by {k} is"
        f" there, and at most {promise.bounds[t, k]:,} for each: all that is counted of them is hidden with it."
        for t, k in sorted(promise.shared)
    )
    kept += "".join(
        f" Rows of {t} that lead to {key.target} by {key.name} are not part of that row: which ones they are is hidden,"
        " what they say, and whether they name anybody, is not."
        for t in promise.private
        for key in promise.database[t].foreign_keys
        if key.target in promise.protected and promise.is_linking(t, key)
    )
    return (
        f"Whoever sees the release can hardly tell whether {who}, with everything it owns, is in the database. "
        f"Units that own more rows than the bounds allow are counted with their first rows only.{kept}"
    )


def caveats(columns: Sequence[Guarantee], external: Sequence[Mapping[str, Any]], *, neighbours: str) -> tuple[str, ...]:
    """Say what whoever reads the certificate should mind."""
    elsewhere = (
        f"{e['table']} was made elsewhere; that its maker protected one row of {' or '.join(e['units'])}, with all its"
        f" rows there and for {neighbours} neighbours, as declared was taken on trust and not checked"
        for e in external
    )
    return (*elsewhere, *said_together(columns))


def said_of_sizes(rows: Mapping[str, int], *, neighbours: str) -> tuple[str, ...]:
    """Say which numbers of rows were declared public. They come from whoever wrote the plan, not from a mechanism."""
    hidden = neighbours == "entity"
    outside = "it is a fact outside the promise, which is about everything else given that number"
    known = "neighbours have the same sizes, so it is not hidden anyway"
    return tuple(
        f"the number of rows of {t} was declared public: {n:,}; {outside if hidden else known}" for t, n in rows.items()
    )


def said_of_lost(charges: Sequence[Entry]) -> tuple[str, ...]:
    """Say which charges were paid once more: the process had died before their answers were kept."""
    asked = ", ".join(str(e.what.get("what")) for e in charges)
    return (f"charged twice, because the answer was lost when a process was cut off: {asked}",) if charges else ()


def said_together(columns: Sequence[Guarantee]) -> tuple[str, ...]:
    """Say to how much guarantees add up, in four digits and never too small; nothing where there is one table."""
    if len(columns) < 2:
        return ()
    up = Context(prec=4, rounding=ROUND_CEILING)
    both = together([(g.epsilon, g.delta) for g in columns])
    epsilon, delta = (f"{float(up.create_decimal(x)):.4g}" for x in both)
    return (
        (
            f"a person who can have a row in each of {', '.join(g.table for g in columns)} is protected less: the"
            f" guarantees add up, for that person to at most epsilon {epsilon} and delta {delta}"
        ),
    )
