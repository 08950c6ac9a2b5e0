"""What crossed the wall, and what the certificate says was promised to whom."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Protocol

from dpweave.privacy.accounting import Cost, epsilon_of_rho, subtract
from dpweave.privacy.certificate import Certificate, Guarantee, caveats, statement
from dpweave.privacy.sensitivity import belonging

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.arrays import IntArray
    from dpweave.privacy.ledger import Ledger
    from dpweave.privacy.promise import Promise
    from dpweave.privacy.window import NoisyMarginal, NoisyMoments, NoisyUnitSum
    from dpweave.schema.domain import Domain, View


@dataclass(frozen=True)
class Question:
    """What is asked of rows, in public words: as the ledger has it, and what the ledger leaves out.

    ``about`` are domains, by clique, or unit sums, or candidates.
    """

    what: Mapping[str, Any]
    view: View | None
    about: tuple[object, ...]


@dataclass(frozen=True)
class Answer:
    """What rows answered, with its noise: whole numbers, and the values that they count where a question named none."""

    counts: tuple[IntArray, ...]
    values: tuple[str, ...] = ()


class Answers(Protocol):
    """Keeps answers, so that none is lost and none is paid for twice."""

    def recall(self, question: Question) -> Answer | None:
        """Return the answer to a question that was asked and paid for before; None if it was not."""
        ...

    def keep(self, question: Question, answer: Answer) -> None:
        """Keep an answer that was just charged for; when this returns it outlives the process."""
        ...


@dataclass(frozen=True)
class Measured:
    """Noisy counts over one clique of a view, by the name the ledger knows the request under."""

    what: str
    view: View
    domains: tuple[Domain, ...]
    marginal: NoisyMarginal


@dataclass(frozen=True)
class MeasuredUnitSum:
    """Noisy sums of what units' rows have, by the name the ledger knows the request under."""

    what: str
    view: View
    noisy: NoisyUnitSum


@dataclass(frozen=True)
class MeasuredMoments:
    """Noisy second moments of units' rows, by the name the ledger knows the request under."""

    what: str
    view: View
    noisy: NoisyMoments


@dataclass(frozen=True)
class Selected:
    """Outcome of a private choice: which of the candidates, in the order they were drawn.

    Releases of versions before this one have neither the candidates' ``weights`` nor the ``scale`` of the noise.
    """

    what: str
    view: View
    candidates: tuple[tuple[str, ...], ...]
    chosen: tuple[int, ...]
    weights: tuple[float, ...] = ()
    scale: float = 0.0


@dataclass(frozen=True)
class Discovered:
    """Categories of a text column whose noisy counts passed the threshold.

    Counts are rows; or, ``by_unit``, units: one with k categories counts 1/√k for each of them.
    """

    what: str
    table: str
    column: str
    counts: Mapping[str, float]
    sigma: float
    threshold: float
    by_unit: bool = False


@dataclass
class Release:
    """Everything that crossed, in order. Safe to publish."""

    measured: list[Measured] = field(default_factory=list)
    selected: list[Selected] = field(default_factory=list)
    discovered: list[Discovered] = field(default_factory=list)
    summed_by_unit: list[MeasuredUnitSum] = field(default_factory=list)
    moments: list[MeasuredMoments] = field(default_factory=list)

    def find(self, what: str) -> tuple[NoisyMarginal, ...]:
        """Return all marginals measured under one name."""
        return tuple(m.marginal for m in self.measured if m.what == what)

    def find_unit_sums(self, what: str) -> tuple[NoisyUnitSum, ...]:
        """Return all unit sums measured under one name."""
        return tuple(b.noisy for b in self.summed_by_unit if b.what == what)

    def find_moments(self, what: str) -> NoisyMoments | None:
        """Return the moments measured under one name, those of least noise; None if there are none."""
        found = (m.noisy for m in self.moments if m.what == what)
        return min(found, key=lambda noisy: noisy.sigma / noisy.moments.clip, default=None)


def guarantees(spent: Cost, tables: tuple[str, ...], *, delta: float) -> tuple[Guarantee, ...]:
    """Convert each column of the ledger: deltas that were spent come off ``delta``, the rest converts ρ."""
    out = []
    for table in tables:
        rho, used = spent.rho.get(table, 0.0), spent.delta.get(table, 0.0)
        left = subtract(delta, used)
        epsilon = epsilon_of_rho(rho, delta=left) if left > 0 else float("inf")
        out.append(Guarantee(table, rho, epsilon, delta))
    return tuple(out)


def certify(
    promise: Promise,
    ledger: Ledger,
    *,
    delta: float,
    insecure: bool,
    evidence: Sequence[Mapping[str, Any]] = (),
    external: Sequence[Mapping[str, Any]] = (),
) -> Certificate:
    """State what a run has promised, from what its ledger was charged; ``external`` are tables made elsewhere."""
    columns = guarantees(ledger.spent, promise.protected, delta=delta)
    owned = {u: {t: belonging(promise, u, t) for t in promise.private} for u in promise.protected}
    packages = ("dpweave", "opendp", "numpy", "duckdb", "ibis-framework")
    return Certificate(
        epsilon=max(g.epsilon for g in columns),
        delta=delta,
        rho=max(g.rho for g in columns),
        tables=columns,
        neighbours=promise.neighbours,
        statement=statement(promise),
        bounds=tuple((t, k, b) for (t, k), b in promise.bounds.items()),
        owned_rows={u: {t: n for t, n in rows.items() if n} for u, rows in owned.items()},
        events=tuple(
            {"n": e.n, "rho": dict(e.cost.rho), "delta": dict(e.cost.delta), **e.what}
            for e in ledger.entries
            if e.kind == "charge" and e.run == ledger.run
        ),
        versions={"python": sys.version.split()[0], **{p: version(p) for p in packages}},
        database=ledger.database,
        run=ledger.run,
        insecure=insecure,
        external=tuple(external),
        caveats=caveats(columns, external, neighbours=promise.neighbours),
        evidence=tuple(evidence),
    )
