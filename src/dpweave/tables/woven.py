r"""Columns woven one after the other, each shrunk towards independence of those before it.

A table is a chain of one-to-many relations: every row is linked to one value of its next column. Each relation is
fitted by the link learner (:mod:`dpweave.links.map_learner`): a column's own distribution is the average of all noisy
marginals it is in, by their variances, and how it depends on the columns before comes from noisy pairs, shrunk by
empirical Bayes. Where noise drowns a dependence the column stays independent, so at small budgets this beats models
that fit what they measured as if it were true.

Formal guarantees: a client of the window; spends exactly ``rho``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave import chosen
from dpweave.links.degrees import Degrees, whole
from dpweave.links.link_method import LinkProblem
from dpweave.links.map_learner import MAP
from dpweave.links.relaxed.projections import project_capped_simplex
from dpweave.measure.answers import averaged, onto
from dpweave.measure.purse import Purse
from dpweave.privacy.window import Columns, NoisyMarginal
from dpweave.tables.base import Registration, Structure, ask_and_learn
from dpweave.tables.reduction import Origin, compose, fill
from dpweave.tables.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.privacy.window import Window
    from dpweave.tables.reduction import Composition

LEARNER = MAP(2)
PICTURE_ROWS = 20_000
"""Rows drawn to answer what a marginal of the model is."""


@dataclass(frozen=True)
class WovenTable:
    """Noisy one-way marginals in the order of weaving, and for each column but the
    first the pairs that were measured.

    What is woven are the columns of ``inner``; those of the table's ``shape`` follow from them by ``origins``, or are
    the same.
    """

    shape: Mapping[str, int]
    rows: float
    singles: tuple[NoisyMarginal, ...]
    pairs: tuple[tuple[NoisyMarginal, ...], ...]
    inner: Mapping[str, int]
    origins: Mapping[str, Origin]

    def sample(self, rows: int, rng: np.random.Generator) -> dict[str, IntArray]:
        """Weave ``rows`` rows."""
        made: dict[str, IntArray] = {}
        for single, pairs in zip(self.singles, self.pairs, strict=True):
            (column,) = single.columns
            counts = spread(single, rows, rng)
            if not made or not rows:
                made[column] = rng.permutation(np.repeat(np.arange(len(counts)), counts))
                continue
            problem = value_problem(made, column, self.inner, rows=rows, seen=self.rows)
            made[column] = values_of(LEARNER.wire(problem, pairs, rng=rng, degrees=Degrees(right=counts)), rows)
        codes = {c: made.get(c, np.zeros(rows, dtype=np.int64)) for c in {**self.inner, **self.shape}}
        known = fill(self.origins, codes, rows)
        return {c: known.get(c, codes[c]) for c in self.shape}

    @cached_property
    def _picture(self) -> dict[str, IntArray]:
        return self.sample(min(max(round(self.rows), 1), PICTURE_ROWS), np.random.default_rng(0))

    def marginal(self, columns: Columns) -> FloatArray:
        """Expected counts over ``columns``, from one drawn table; they add up to ``rows``."""
        sizes = tuple(self.shape[c] for c in columns)
        if not columns:
            return np.array(self.rows)
        cell = np.ravel_multi_index([self._picture[c] for c in columns], sizes)
        counts = np.bincount(cell, minlength=int(np.prod(sizes))).reshape(sizes)
        return np.asarray(counts * (self.rows / max(counts.sum(), 1)), dtype=np.float64)

    def state(self) -> tuple[dict[str, object], dict[str, npt.NDArray[Any]]]:
        """What :func:`restore` needs."""
        every = [("single", s) for s in self.singles] + [(str(i), p) for i, ps in enumerate(self.pairs) for p in ps]
        parts = [{"of": of, "columns": list(m.columns), "sigma": m.sigma} for of, m in every]
        state: dict[str, object] = {
            "shape": dict(self.shape),
            "rows": self.rows,
            "parts": parts,
            "inner": dict(self.inner),
            "origins": {c: list(origin.columns) for c, origin in self.origins.items()},
        }
        arrays = {f"table/{c}": origin.table.ravel() for c, origin in self.origins.items()}
        return state, arrays | {str(i): m.counts.ravel() for i, (_, m) in enumerate(every)}


def restore(state: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> WovenTable:
    """Invert :meth:`WovenTable.state`."""
    inner = state.get("inner", state["shape"])  # models of before have no rules
    found: dict[str, list[NoisyMarginal]] = {}
    for i, part in enumerate(state["parts"]):
        counts = arrays[str(i)].reshape([inner[c] for c in part["columns"]])
        found.setdefault(part["of"], []).append(NoisyMarginal(tuple(part["columns"]), counts, part["sigma"]))
    singles = tuple(found.get("single", ()))
    pairs = tuple(tuple(found.get(str(i), ())) for i in range(len(singles)))
    origins = {
        c: Origin(tuple(base), np.asarray(arrays[f"table/{c}"], dtype=np.int64).reshape([inner[b] for b in base]))
        for c, base in state.get("origins", {}).items()
    }
    return WovenTable(state["shape"], state["rows"], singles, pairs, inner, origins)


@dataclass(frozen=True)
class Woven:
    """The mechanism. Columns that structural zeros bind are woven as one, and those that follow from others not."""

    name: str = field(default="woven", init=False)

    def fit(
        self,
        window: Window,
        *,
        rho: float,
        rows: float | None,
        structure: Structure,
        progress: Callable[[str, float], None],
    ) -> WovenTable:
        """Ask, and learn from the answers."""
        return ask_and_learn(self, window, rho=rho, rows=rows, structure=structure, progress=progress)

    def ask(
        self,
        window: Window,
        *,
        rho: float,
        rows: float | None,
        structure: Structure,
        progress: Callable[[str, float], None],
    ) -> Woven:
        r"""Measure every column and pair that matters at once.

        The L1 noise of n cells at cost ρ grows as :math:`n / \sqrt\rho`; a sum of such
        terms with weights w is least for shares proportional to :math:`(w n)^{2/3}`. A
        set of more columns in the workload lends its weight to its pairs.
        """
        Session(window.shape, rows=rows, structure=structure)  # its checks: sizes, contradictions
        made = compose(window.shape, structure)
        columns = _in_order(made)
        purse = Purse(rho)
        if rows is None and columns:
            window.measure([()], rho=purse.take(chosen.COUNTING * rho))
        if not columns:
            window.measure([()], rho=purse.rest())
            return self
        workload = None if structure.workload is None else _inner(made, structure.workload)
        importance = _importance(columns, workload, _inner(made, structure.linked))
        room = {c: w for c, w in importance.items() if _cells(window.shape, made.outer(c)) <= structure.max_cells}
        covered = {c for clique in room for c in clique}
        room |= {(c,): min(importance.values()) for c in columns if c not in covered}
        shares = [(w * _cells(made.shape, c)) ** (2 / 3) for c, w in room.items()]
        progress("measuring columns and pairs", 0.5)
        window.measure([made.outer(c) for c in room], rho=purse.rest(), weights=shares)
        return self

    def learn(
        self,
        answers: Sequence[NoisyMarginal],
        shape: Mapping[str, int],
        *,
        rows: float | None,
        structure: Structure,
    ) -> WovenTable:
        """Weave from the smallest column to the largest, by all that was counted of it and of pairs with it."""
        made = compose(shape, structure)
        own = {c: o for c, o in made.origins.items() if not np.array_equal(o.table, np.arange(made.shape.get(c, 0)))}
        columns = _in_order(made)
        size = rows
        if size is None:
            totals = [m for m in answers if not m.columns] or [onto(m, ()) for m in answers]
            size = max(float(averaged(totals).counts), 0.0) if totals else 0.0
        found = [_composed(m, made) for m in answers]
        singles = [NoisyMarginal((c,), *_single(c, found, made.shape[c])) for c in columns]
        counted: dict[Columns, list[NoisyMarginal]] = {}
        for noisy in found:
            for pair in combinations([c for c in columns if c in noisy.columns], 2):
                counted.setdefault(pair, []).append(onto(noisy, pair))
        pairs = [
            tuple(averaged(known_counts) for pair, known_counts in counted.items() if pair[1] == c) for c in columns
        ]
        return WovenTable(dict(shape), float(size), tuple(singles), tuple(pairs), dict(made.shape), own)


def _in_order(made: Composition) -> list[str]:
    """Columns as they are woven, the smallest first; without those that have one value."""
    return sorted((c for c, n in made.shape.items() if n > 1), key=lambda c: made.shape[c])


def _composed(noisy: NoisyMarginal, made: Composition) -> NoisyMarginal:
    """An answer over those woven columns that it shows whole."""
    inner = tuple(c for c, parts in made.parts.items() if set(parts) <= set(noisy.columns))
    outer = onto(noisy, made.outer(inner))
    return NoisyMarginal(inner, made.composed(inner, outer.counts), outer.sigma)


def _cells(shape: Mapping[str, int], columns: Columns) -> int:
    return math.prod(shape[c] for c in columns)


def _inner(made: Composition, workload: Mapping[Columns, float]) -> dict[Columns, float]:
    """A workload over the columns that are woven."""
    out: dict[Columns, float] = {}
    for columns, weight in workload.items():
        inner = made.inner(columns)
        if inner:
            out[inner] = out.get(inner, 0.0) + weight
    return out


def seen_through_links(
    columns: Sequence[str], degree: str, *, others: int, k: int, beside: int = 0
) -> dict[Columns, float]:
    """Weights of sets of a row's columns, each with its ``degree``: in how many k-way workloads of links they are.

    The other side of the links has ``others`` columns, and this side ``beside`` more that are not the row's own. A
    workload sees the links of the rows with certain values, which is a sum of degrees.

    >>> seen_through_links(["a", "b"], "#", others=4, k=3)
    {('a', '#'): 6.0, ('b', '#'): 6.0, ('a', 'b', '#'): 4.0}
    """
    k = min(k, len(columns) + others + beside)
    entered = {i: float(math.comb(others + beside, k - i) - math.comb(beside, k - i)) for i in range(1, k)}
    return {(*s, degree): n for i, n in entered.items() if n > 0 for s in combinations(columns, i)}


def _importance(
    columns: Sequence[str], workload: Mapping[Columns, float] | None, linked: Mapping[Columns, float]
) -> dict[Columns, float]:
    """Weights of the columns and pairs to measure, in the order of weaving; without a workload all count alike.

    What links see counts as much as all the rest.
    """
    if workload is None:
        every: dict[Columns, float] = dict.fromkeys([*((c,) for c in columns), *combinations(columns, 2)], 1.0)
    else:
        every = _lent(columns, workload)
    seen = _lent(columns, linked)
    scale = sum(every.values()) / max(sum(seen.values()), 1e-300)
    out = every | {s: every.get(s, 0.0) + scale * w for s, w in seen.items()}
    least = min(out.values(), default=1.0)
    covered = {c for clique in out for c in clique}
    return out | {(c,): least for c in columns if c not in covered}


def _lent(columns: Sequence[str], workload: Mapping[Columns, float]) -> dict[Columns, float]:
    """Weights of pairs: a larger set lends its own to each of its pairs."""
    out: dict[Columns, float] = {}
    for wanted, weight in workload.items():
        kept = [c for c in columns if c in wanted]
        for clique in combinations(kept, 2) if len(kept) > 1 else [tuple(kept)] if kept else []:
            out[clique] = out.get(clique, 0.0) + weight
    return out


def _single(column: str, measured: Sequence[NoisyMarginal], size: int) -> tuple[IntArray, float]:
    """Return the best estimate of one column's counts, and its noise: every answer with that column, summed down, by
    inverse variance. Nothing is known of a column that no answer has: its values are alike.
    """
    known_counts = [onto(m, (column,)) for m in measured if column in m.columns]
    if not known_counts:
        return np.ones(size, dtype=np.int64), 1.0
    found = averaged(known_counts)
    return found.counts, found.sigma


def spread(single: NoisyMarginal, rows: int, rng: np.random.Generator) -> IntArray:
    """Whole counts that add up to ``rows``, in proportion to the distribution nearest to a noisy marginal.

    Clipping at nothing would leave the noise of empty values in, and it is biased: their noise is never negative.
    """
    total = max(float(single.counts.sum()), 1.0)
    if not rows:
        return np.zeros(len(single.counts), dtype=np.int64)
    return whole(rows * project_capped_simplex(single.counts / total, total=1.0), rows, rng)


def value_problem(
    made: Mapping[str, IntArray], column: str, shape: Mapping[str, int], *, rows: int, seen: float
) -> LinkProblem:
    """Every row is to be linked to one value of ``column``."""
    sizes = {c: shape[c] for c in (*made, column)}
    values = {column: np.arange(shape[column])}
    return LinkProblem(dict(made), values, shape=sizes, links=rows, links_measured=max(seen, 1.0), kind="one-to-many")


def values_of(pairs: IntArray, rows: int) -> IntArray:
    """Value of each row, from links between rows and values."""
    out = np.zeros(rows, dtype=np.int64)
    out[pairs[:, 0]] = pairs[:, 1]
    return out


REGISTRATION = Registration(make=Woven, restore=restore)
