"""What crossed the wall, and what the certificate says was promised to whom."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from dpweave.certificate import Certificate, Guarantee
from dpweave.privacy.accounting import Cost, epsilon_of_rho, subtract

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.privacy.ledger import Ledger
    from dpweave.privacy.promise import Promise
    from dpweave.schema.domain import Domain, View
    from dpweave.window import NoisyBag, NoisyMarginal


@dataclass(frozen=True)
class Measured:
    """Noisy counts over one clique of a view, by the name the ledger knows the request under."""

    what: str
    view: View
    domains: tuple[Domain, ...]
    marginal: NoisyMarginal


@dataclass(frozen=True)
class Bagged:
    """Noisy sums of what units' rows have, by the name the ledger knows the request under."""

    what: str
    view: View
    noisy: NoisyBag


@dataclass(frozen=True)
class Selected:
    """Outcome of a private choice: which of the candidates, in the order they were drawn."""

    what: str
    view: View
    candidates: tuple[tuple[str, ...], ...]
    chosen: tuple[int, ...]


@dataclass(frozen=True)
class Discovered:
    """Categories of a text column whose noisy counts passed the threshold."""

    what: str
    table: str
    column: str
    counts: Mapping[str, int]
    sigma: float
    threshold: int


@dataclass
class Release:
    """Everything that crossed, in order. Safe to publish."""

    measured: list[Measured] = field(default_factory=list)
    selected: list[Selected] = field(default_factory=list)
    discovered: list[Discovered] = field(default_factory=list)
    bagged: list[Bagged] = field(default_factory=list)

    def find(self, what: str) -> tuple[NoisyMarginal, ...]:
        """Return all marginals measured under one name."""
        return tuple(m.marginal for m in self.measured if m.what == what)

    def find_bags(self, what: str) -> tuple[NoisyBag, ...]:
        """Return all bags measured under one name."""
        return tuple(b.noisy for b in self.bagged if b.what == what)


def guarantees(spent: Cost, tables: tuple[str, ...], *, delta: float) -> tuple[Guarantee, ...]:
    """Convert each column of the ledger: deltas that were spent come off ``delta``, the rest converts ρ."""
    out = []
    for table in tables:
        rho, used = spent.rho.get(table, 0.0), spent.delta.get(table, 0.0)
        left = subtract(delta, used)
        epsilon = epsilon_of_rho(rho, delta=left) if left > 0 else float("inf")
        out.append(Guarantee(table, rho, epsilon, delta))
    return tuple(out)


def together(columns: Sequence[Guarantee]) -> tuple[float, float]:
    r"""(ε, δ) for whoever has a row in each of these tables: they may be taken out one after the other.

    Each step multiplies what is left by :math:`e^{\varepsilon_i}` and adds :math:`\delta_i`, so :math:`\varepsilon = \sum_i
    \varepsilon_i` and :math:`\delta = \sum_i \delta_i e^{\varepsilon_1 + \dots + \varepsilon_{i-1}}`, in the best order. Rounded up.
    """
    epsilon = delta = 0.0
    for g in sorted(columns, key=lambda g: g.epsilon):
        delta += g.delta * math.exp(min(epsilon, 700.0))
        epsilon += g.epsilon
    return epsilon * (1 + 1e-12), min(delta * (1 + 1e-12), 1.0)


def said_together(columns: Sequence[Guarantee]) -> tuple[str, ...]:
    """Say what :func:`together` gives, in four digits and not less than it; nothing where there is one table."""
    if len(columns) < 2:
        return ()
    up = Context(prec=4, rounding=ROUND_CEILING)
    epsilon, delta = (f"{float(up.create_decimal(x)):.4g}" for x in together(columns))
    return (
        f"a person who can have a row in each of {', '.join(g.table for g in columns)} is protected less: the guarantees add up, "
        f"for that person to at most epsilon {epsilon} and delta {delta}",
    )


UNCHECKED = (
    "{table} was made elsewhere; that its maker protected one row of {units}, with all its rows there and for {neighbours} "
    "neighbours, as declared was taken on trust and not checked"
)


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
    owned = {u: {t: promise.owned_rows(u, t) for t in promise.private} for u in promise.protected}
    packages = ("dpweave", "opendp", "numpy", "duckdb", "ibis-framework")
    return Certificate(
        epsilon=max(g.epsilon for g in columns),
        delta=delta,
        rho=max(g.rho for g in columns),
        tables=columns,
        neighbours=promise.neighbours,
        statement=promise.describe(),
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
        caveats=(
            *(
                UNCHECKED.format(table=e["table"], units=" or ".join(e["units"]), neighbours=promise.neighbours)
                for e in external
            ),
            *said_together(columns),
        ),
        evidence=tuple(evidence),
    )
