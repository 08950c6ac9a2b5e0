r"""An empirical audit: many runs on two neighbours, and the largest ε that they prove at 99.9 % confidence.

A run asks the Curator for a noisy marginal and for a private choice. Its score is the log-likelihood ratio of the two
databases as far as an attacker who knows both can compute it: noisy counts along the line between the two true
marginals, the choice, and whatever else came out (scale, shape, categories). ρ-zCDP claims (ε(δ), δ) for **every** δ.
On the first half of the runs the audit picks direction, threshold and δ; on the second half it tests :math:`P_1(S) -
\delta \le e^{\varepsilon(\delta)} P_0(S)` with Clopper-Pearson bounds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import beta

from dpweave.privacy.accounting import Budget, epsilon_of_rho
from dpweave.privacy.curator import Curator
from dpweave.privacy.ledger import Ledger
from dpweave.privacy.window import Candidate
from tests.engine_counts import codec_of, open_frames
from tests.oracle import Rows, World

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from dpweave.privacy.promise import Promise
    from dpweave.schema.domain import View

MISS = 0.0005
"""Probability with which either confidence bound may miss."""

TOGETHER = 50
"""Counts in one call: asking costs more time than noise does."""

Opened = list[tuple[list[Curator], list[Any]]]
"""Curators of both databases, and what they count exactly, for the salts that tell most."""

DELTAS = (1e-3, 3e-3, 0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True)
class Pair:
    """Two neighbours that differ in one unit of ``unit``, and what is asked of them."""

    name: str
    promise: Promise
    one: Rows
    zero: Rows
    unit: str
    view: View
    columns: tuple[str, ...]
    size: int = 3
    rho: float = 0.5
    """Of every question."""
    salts: int = 8


@dataclass
class Runs:
    """What came out, run by run."""

    kind: list[Hashable] = field(default_factory=list)
    """Everything discrete: scale and shape of the marginal, the choice."""
    projection: list[float] = field(default_factory=list)
    """Noisy counts along the line between the true marginals, as a log-likelihood ratio."""


@dataclass(frozen=True)
class Verdict:
    """ε proven at ``delta``, against ε claimed there."""

    proven: float
    claimed: float
    delta: float

    @property
    def broken(self) -> bool:
        return self.proven > self.claimed


def open_curator(
    pair: Pair, rows: Rows, *, salt: str, change: Callable[[Curator, Rows], None] | None = None
) -> Curator:
    """A Curator with an endless ledger; ``change`` breaks it on purpose."""
    promise = pair.promise
    world = World(
        promise,
        rows,
        {},
        {t.name: tuple(c.name for c in t.columns if c.name.startswith("x")) for t in promise.database},
        pair.size,
    )
    ledger = Ledger.open(None, database="audit", limit=Budget(1e9, 0.5), tables=promise.protected)
    curator = Curator(open_frames(rows, promise), promise, ledger=ledger, salt=salt)
    for table, columns in world.values.items():
        for column in columns:
            curator.set_codec(table, column, codec_of(world, column))
    for _, attribute in pair.view.columns:
        if attribute.column.startswith("#"):
            table = promise.graph.walk(pair.view.base, attribute.path)
            curator.set_codec(table, attribute.column, codec_of(world, attribute.column))
        if attribute.column.startswith("@"):
            curator.set_targets(pair.view.base, attribute.column[1:])
    if change is not None:
        change(curator, rows)
    return curator


def collect(
    pair: Pair,
    runs: int,
    change: Callable[[Curator, Rows], None] | None = None,
    *,
    count: bool = True,
    choose: bool = False,
    curators: Opened | None = None,
) -> tuple[Runs, Runs, float]:
    """``runs`` runs on either database, over the salts that move the marginal most, and
    what a run costs the unit's table.

    A run counts, or chooses, or both. One question at a time tells more: what the other one costs would
    hide a fault behind twice the claim. ``curators`` are those that were opened before, if any.
    """
    worst = opened(pair, change) if curators is None else curators
    before = worst[0][0][0].spent.rho.get(pair.unit, 0.0)
    out = (Runs(), Runs())
    for both, exact in worst:
        for curator, mine, into in zip(both, exact, out, strict=True):
            _run(pair, curator, mine, exact, runs // len(worst), into, count=count, choose=choose)
    cost = (worst[0][0][0].spent.rho[pair.unit] - before) / (runs // len(worst))
    return (*out, cost)


def opened(pair: Pair, change: Callable[[Curator, Rows], None] | None = None) -> Opened:
    """Curators of both databases and what they count exactly, with the salts that move the marginal most."""
    found = []
    for i in range(pair.salts):
        both = [open_curator(pair, rows, salt=f"salt{i}", change=change) for rows in (pair.one, pair.zero)]
        exact = [c._counts.marginals(pair.view, [pair.columns])[0] for c in both]
        moved = float("inf") if exact[0].shape != exact[1].shape else float(((exact[0] - exact[1]) ** 2).sum())
        found.append((moved, both, exact))
    found.sort(key=lambda o: -o[0])
    return [(both, exact) for _, both, exact in found[: max(1, pair.salts // 4)]]


def _run(
    pair: Pair,
    curator: Curator,
    mine: Any,
    exact: Sequence[Any],
    runs: int,
    into: Runs,
    *,
    count: bool,
    choose: bool,
) -> None:
    same = exact[0].shape == exact[1].shape
    guesses = [e if e.shape == mine.shape else np.zeros(mine.shape) for e in exact]
    candidates = [Candidate(pair.columns, g.astype(float)) for g in guesses]
    line, middle = (exact[0] - exact[1], (exact[0] + exact[1]) / 2) if same else (None, None)
    for start in range(0, runs, TOGETHER):
        together = min(TOGETHER, runs - start)
        counted: Sequence[Any] = [None] * together
        if count:  # the same question many times over, each with noise of its own
            counted = curator.measure(pair.view, [pair.columns] * together, what="audit", rho=pair.rho * together)
        for noisy in counted:
            kind: list[Hashable] = []
            projection = 0.0
            if noisy is not None:
                kind += [noisy.sigma, noisy.counts.shape]
                projection = 0.0 if line is None else float(((noisy.counts - middle) * line).sum()) / noisy.sigma**2
            if choose:
                kind.append(curator.select(pair.view, candidates, what="audit", rho=pair.rho))
            into.kind.append(tuple(kind))
            into.projection.append(projection)
        curator.release.measured.clear()
        curator.release.selected.clear()


def audit(one: Runs, zero: Runs, claim: Callable[[float], float], *, deltas: Sequence[float] = DELTAS) -> Verdict:
    """Pick the most telling event on the first half of the runs, test it on the second."""
    half = len(one.kind) // 2
    weight = _weights(one.kind[:half], zero.kind[:half])
    a, b = (np.array(r.projection) + [weight.get(k, 0.0) for k in r.kind] for r in (one, zero))
    best, chosen = -np.inf, (0.0, False, deltas[0])
    pooled = np.concatenate([a[:half], b[:half]])
    for threshold in np.unique(np.quantile(pooled, np.linspace(0.005, 0.995, 100))):
        for swapped in (False, True):
            hits = _hits(a[:half], b[:half], threshold, swapped=swapped)
            for delta in deltas:
                gap = _proven(*hits, half, delta) - claim(delta)
                if gap > best:
                    best, chosen = gap, (float(threshold), swapped, delta)
    threshold, swapped, delta = chosen
    rest = len(a) - half
    return Verdict(_proven(*_hits(a[half:], b[half:], threshold, swapped=swapped), rest, delta), claim(delta), delta)


def zcdp_claim(rho: float) -> Callable[[float], float]:
    """ε at every δ that ρ-zCDP stands for."""
    table = {delta: epsilon_of_rho(rho, delta=delta) for delta in DELTAS}
    return table.__getitem__


def _weights(one: Sequence[Hashable], zero: Sequence[Hashable]) -> dict[Hashable, float]:
    seen_one, seen_zero = Counter(one), Counter(zero)
    return {k: float(np.log((seen_one[k] + 0.5) / (seen_zero[k] + 0.5))) for k in {*seen_one, *seen_zero}}


def _hits(a: Any, b: Any, threshold: float, *, swapped: bool) -> tuple[int, int]:
    if swapped:
        return int((b <= threshold).sum()), int((a <= threshold).sum())
    return int((a > threshold).sum()), int((b > threshold).sum())


def _proven(hits: int, others: int, runs: int, delta: float) -> float:
    """Lower bound on log((P1(S) - δ) / P0(S))."""
    low = beta.ppf(MISS, hits, runs - hits + 1) if hits else 0.0
    high = beta.ppf(1 - MISS, others + 1, runs - others) if others < runs else 1.0
    return float(np.log((low - delta) / high)) if low > delta else -np.inf
