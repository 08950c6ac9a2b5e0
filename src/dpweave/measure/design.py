r"""What to measure about the links, computed before anything is measured: expected gain against noise.

**Model.** Let a link's density against independent wiring be :math:`1 + f`. Over product margins f splits into
orthogonal components :math:`f = \sum_T f_T`, one per set T of columns, and every coefficient of :math:`f_T` in an
orthonormal basis has prior variance :math:`\tau_T^2`. Let :math:`b_c = \sum_s p_c(s)^2` for column c with
:math:`n_c` values. Counts of m links over a clique S with noise :math:`\sigma_S` inform each coefficient of every
:math:`T \subseteq S`, so lower orders are never paid for twice, with precision

.. math:: \frac{m^2}{\sigma_S^2} \prod_{c \in T} \frac{1 - b_c}{n_c - 1} \prod_{c \in S \setminus T} \frac{1}{n_c},

where the first product is the mean of :math:`\sum_s p(s)^2 \varphi(s)^2` over a basis of contrasts and the second says
that columns outside T are summed out. Precisions of several cliques add up to :math:`\pi_T`, the posterior variance is
:math:`v_T = 1/(\tau_T^{-2} + \pi_T)`, averaged over typical components and a few that are ten times as strong, and the
expected L1 error of workload W is about

.. math:: \sqrt{2/\pi}\,\Bigl(\sum_{T \subseteq W} v_T \prod_{c \in T} l_c^2\Bigr)^{1/2},
          \qquad l_c = \sum_s \sqrt{p_c(s)(1 - p_c(s))}.

**Design.** Since :math:`\sigma_S^2 = \Delta_S^2 / (2 \rho_S)`, the mean of these errors is a smooth
function of the shares of the budget. Multiplicative updates on the simplex minimise it. Everything here
is public: sensitivities, domain sizes, margins of the synthetic tables, the approximate number of links.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations, compress
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave import chosen
from dpweave.measure.cross_workloads import Workload, cross_workloads
from dpweave.measure.margins import Margin, even_margin
from dpweave.measure.per_unit.public_row_sums import PublicRowSums
from dpweave.schema.domain import MAX_CELLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.measure.question import Question
    from dpweave.privacy.window import Columns, Units

    Sizes = tuple[tuple[str, int], ...]
    """Columns with how many values they have."""


COMPONENTS = 60_000
"""With more components than this, a lower order is designed for."""

MOST_CLIQUES = 500
"""Cliques that are measured at most: the largest shares."""

_STEPS = 400
_HALF_NORMAL = math.sqrt(2 / math.pi)
_WORST = 2.0


def parts(workload: Workload) -> list[Workload]:
    """Every non-empty subset of a workload's columns.

    >>> [w.columns for w in parts(Workload(("a",), ("b",)))]
    [('b',), ('a',), ('a', 'b')]
    """
    return [
        Workload(left, right)
        for i in range(len(workload.left) + 1)
        for left in combinations(workload.left, i)
        for j in range(len(workload.right) + 1)
        for right in combinations(workload.right, j)
        if i + j
    ]


def default_variance(component: Workload, links: float, *, selective: float = 1.0) -> float:
    """Prior variance of a component's coefficients: an effect that halves with every column, and sampling itself.

    ``selective`` is how many right rows there are for each link, where most have none: then each column of the right
    side tells much of who has one. Two of them together tell no more than elsewhere, or what is asked of who is linked
    to would take all that there is for who goes with whom.
    """
    typical = chosen.FIRST_ORDER * chosen.DECAY ** (component.k - 1)
    alone = not component.left and len(component.right) == 1
    return typical * (max(selective, 1.0) ** 2 if alone else 1.0) + 1.0 / max(links, 1.0)


class Design:
    """The cliques that may be measured for the ``k``-way cross-table workloads, and what each of them tells.

    ``known`` says which components need no measuring, because the tables tell them.
    ``favoured`` are workloads of any size with weights: one of weight 1 gets as much of
    the budget as all the others together, whatever the prior expects of it.
    """

    def __init__(
        self,
        left: Mapping[str, Margin],
        right: Mapping[str, Margin],
        *,
        k: int,
        known: Callable[[Workload], bool] = lambda _: False,
        favoured: Mapping[Workload, float] | None = None,
    ) -> None:
        from scipy import sparse

        margins = {**left, **right}
        lefts = [c for c in left if left[c].size > 1]
        rights = [c for c in right if right[c].size > 1]
        k = min(k, len(lefts) + len(rights))
        while k > 2 and _components(len(lefts), len(rights), k) > COMPONENTS:
            k -= 1
        self.workloads = cross_workloads(lefts, rights, k=k) if lefts and rights else ()
        wanted: dict[Workload, float] = {}
        for w, weight in (favoured or {}).items():
            varying = Workload(tuple(c for c in lefts if c in w.left), tuple(c for c in rights if c in w.right))
            if varying.left and varying.right:
                wanted[varying] = wanted.get(varying, 0.0) + weight
        self.workloads = tuple(dict.fromkeys((*self.workloads, *wanted)))
        self.everything = tuple(dict.fromkeys(part for w in self.workloads for part in parts(w)))
        self.components = [t for t in self.everything if not known(t)]
        small = (s for s in self.everything if math.prod(margins[c].size for c in s.columns) <= MAX_CELLS)
        at = {t: i for i, t in enumerate(self.components)}
        self.cliques = [s for s in small if any(t in at for t in parts(s))]
        reserved = np.array([wanted.get(s, 0.0) for s in self.cliques])
        self.reserved = reserved / (1 + reserved.sum())
        entries = [(i, at[t], informs(s, t, margins)) for i, s in enumerate(self.cliques) for t in parts(s) if t in at]
        self._informs = _matrix(sparse, entries, (len(self.cliques), len(self.components)))
        inside = [(i, at[t], 1.0) for i, w in enumerate(self.workloads) for t in parts(w) if t in at]
        self._inside = _matrix(sparse, inside, (len(self.workloads), len(self.components)))
        self.norms = np.array([math.prod(margins[c].norm for c in t.columns) for t in self.components])

    def counting(self, sums: PublicRowSums) -> tuple[Design, list[Question]]:
        """Return the same design with unit sums over left columns in place of cliques,
        and these unit sums (:mod:`dpweave.measure.per_unit.public_row_sums`).

        It tells nothing where some column set that was asked for has too many values for a unit sum.
        """
        from scipy import sparse

        sets: dict[Columns, dict[Columns, None]] = {}
        for t in self.everything:
            sets.setdefault(t.left, {})[t.right] = None
        asked: dict[Columns, dict[Columns, float]] = {}
        for s, share in zip(self.cliques, self.reserved, strict=True):
            if share > 0:
                asked.setdefault(s.left, {})[s.right] = share
        usual = [(c, rights, 0.0) for c, rights in sets.items() if any(t.left == c for t in self.components)]
        first = [(c, dict.fromkeys(inner_sets(rights)), sum(rights.values())) for c, rights in asked.items()]
        made = [
            (sums.question(c, ((), *(s for s in rights if s)), declared=share > 0), share)
            for c, rights, share in (*first, *usual)
        ]
        made = [(b, r) for b, r in made if math.prod(sums.left[x].size for x in b.columns) * len(b.codes) <= MAX_CELLS]
        lost = any(right not in sums.share for rights in asked.values() for right in rights)
        out = copy(self)
        out.cliques = [Workload(b.columns, ()) for b, _ in made]
        out.reserved = np.array([share for _, share in made])
        at = {t: i for i, t in enumerate(self.components)}
        entries = []
        for i, (question, _) in enumerate(() if lost else made):
            own = {
                s: informs(Workload(question.columns, ()), Workload(s, ()), sums.left)
                for r in range(len(question.columns) + 1)
                for s in combinations(question.columns, r)
            }
            theirs = sums.informs(question)
            entries += [
                (i, at[t], own[t.left] * theirs[t.right])
                for t in self.components
                if t.left in own and t.right in theirs
            ]
        out._informs = _matrix(sparse, entries, (len(out.cliques), len(self.components)))
        return out, [b for b, _ in made]

    @property
    def informative(self) -> bool:
        """Whether anything that may be measured tells of columns of both sides together."""
        both = (self.components[i] for i in np.unique(self._informs.nonzero()[1]))
        return any(t.left and t.right for t in both)

    def default_variances(self, links: float) -> FloatArray:
        """Prior variance of each component (:func:`default_variance`), worked out once for all that are alike."""
        kinds, of = self._kinds
        return np.array([default_variance(t, links) for t in kinds])[of]

    @cached_property
    def _kinds(self) -> tuple[tuple[Workload, ...], IntArray]:
        """A component of each kind that a prior tells apart, and which kind each one is of."""
        kinds = [(t.k, bool(t.left)) for t in self.components]
        first = dict(zip(reversed(kinds), reversed(self.components), strict=True))
        at = {kind: i for i, kind in enumerate(first)}
        return tuple(first.values()), np.array([at[kind] for kind in kinds], dtype=np.int64)

    def precision(self, shares: FloatArray, l2: Sequence[float], *, rho: float, links: float) -> FloatArray:
        """Precision of each component's coefficients if the cliques get these ``shares`` of ``rho``."""
        unit = 2 * rho * links**2 / np.asarray(l2, dtype=np.float64) ** 2
        return np.asarray(self._informs.T @ (unit * shares))

    def errors(self, variance: FloatArray, precision: FloatArray) -> FloatArray:
        """Expected L1 error of every workload: at most 2, which is as far as two distributions can be apart."""
        spread = self._inside @ (self.norms * _posterior(variance, precision)[0])
        return np.asarray(np.minimum(_HALF_NORMAL * np.sqrt(spread), _WORST))

    def solve(self, variance: FloatArray, l2: Sequence[float], *, rho: float, links: float) -> FloatArray:
        """Shares of ``rho`` that minimise the mean expected error beside what is reserved; too small ones are zero."""
        unit = 2 * rho * links**2 / np.asarray(l2, dtype=np.float64) ** 2
        informs = self._informs.multiply(unit[:, None]).tocsr()
        shares = np.full(len(self.cliques), 1 / len(self.cliques))
        free = 1 - self.reserved.sum()
        columns, holders = informs.T, self._inside.T

        def value(at: FloatArray) -> tuple[float, FloatArray]:
            posterior, slope = _posterior(variance, columns @ (self.reserved + free * at))
            root = np.sqrt(self._inside @ (self.norms * posterior))
            gain = (holders @ (0.5 / np.maximum(root, 1e-300))) * self.norms * slope
            return float(root.sum()), np.asarray(informs @ gain)

        error, gain = value(shares)
        step = 1.0
        for _ in range(_STEPS):
            moved = shares * np.exp(step * (gain / gain.max() - 1))
            moved /= moved.sum()
            after, there = value(moved)
            if after >= error:
                step *= 0.4
                if step < 1e-4:
                    break
                continue
            done = error - after < 1e-7 * error
            shares, error, gain, step = moved, after, there, step * 1.3
            if done:
                break
        shares[shares < chosen.LEAST_PART / len(shares)] = 0.0
        shares[np.argsort(-shares, kind="stable")[MOST_CLIQUES:]] = 0.0
        if not shares.any():
            shares[np.argmax(gain)] = 1.0
        return np.asarray(self.reserved + free * shares / shares.sum())


def inner_sets(sets: Iterable[Columns]) -> Iterator[Columns]:
    """Every part of some column sets, small ones first: a unit sum's counts of a set rest on those of its parts."""
    found = {part for s in sets for r in range(1, len(s) + 1) for part in combinations(s, r)}
    yield from sorted(found, key=lambda s: (len(s), s))


def _posterior(variance: FloatArray, precision: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Expected variance of a coefficient after counts of this precision, over typical
    and strong ones; and minus its slope.
    """
    part = chosen.STRONG
    usual, strong = (1 / (1 / (variance * much) + precision) for much in (1.0, 1 / part))
    return (1 - part) * usual + part * strong, (1 - part) * usual**2 + part * strong**2


def _components(lefts: int, rights: int, k: int) -> int:
    return sum(math.comb(lefts, i) * math.comb(rights, j) for i in range(k) for j in range(k) if 0 < i + j <= k)


def informs(clique: Workload, component: Workload, margins: Mapping[str, Margin]) -> float:
    """Precision of a component's coefficients from a clique's counts, for one link and noise of scale 1."""
    return math.prod(margins[c].contrast if c in component.columns else 1 / margins[c].size for c in clique.columns)


def _matrix(sparse: Any, entries: list[tuple[int, int, float]], shape: tuple[int, int]) -> Any:
    rows, columns, values = zip(*entries, strict=True) if entries else ((), (), ())
    return sparse.csr_array((np.array(values, dtype=np.float64), (rows, columns)), shape=shape)


@dataclass(frozen=True)
class Prediction:
    """Expected mean L1 error (0 to 2) over the workloads: of wiring at random, and of learned links."""

    at_random: float
    learned: float
    cliques: tuple[tuple[Columns, float], ...]
    """What would be measured, with its share of the budget, largest first."""
    informed: tuple[Workload, ...] = ()
    """Components that the counts would inform of."""

    @cached_property
    def order(self) -> int:
        """The most columns that are worth measuring together, at least 2: fewer come for nothing out of more."""
        shares: dict[int, float] = {}
        for columns, share in self.cliques:
            shares[len(columns)] = shares.get(len(columns), 0.0) + share
        return max((k for k, share in shares.items() if k > 2 and share >= chosen.WORTHWHILE), default=2)


def predict_error(
    left: Mapping[str, int],
    right: Mapping[str, int],
    *,
    k: int,
    rho: float,
    l2: float,
    links: float,
    units: Units | None = None,
) -> Prediction:
    """Predict how well links can be learned, from public facts: domain sizes,
    sensitivity, approximate number of links.

    It assumes links that depend on columns as the prior says and evenly spread values. The learner
    uses the margins of the synthetic tables instead, and shrinks by what it finds. With
    ``units`` links are counted in unit sums, which takes the place of ``l2``.

    >>> weak, strong = (
    ...     predict_error({"age": 7}, {"genre": 9}, k=2, rho=rho, l2=10.0, links=1e5) for rho in (0.001, 1.0)
    ... )
    >>> strong.learned < weak.learned < weak.at_random
    True
    >>> [predict_error({"a": 7, "b": 9}, {"c": 9}, k=3, rho=r, l2=20.0, links=1e5).order for r in (1e-4, 10.0)]
    [2, 3]
    """
    return _predicted(tuple(left.items()), tuple(right.items()), k, rho, l2, links, units)


@lru_cache(maxsize=1024)
def _predicted(
    left: Sizes, right: Sizes, k: int, rho: float, l2: float, links: float, units: Units | None
) -> Prediction:
    """Do the same; whoever changes one thing of a plan and asks again gets what did not change at once."""
    sides = [{c: even_margin(n) for c, n in side} for side in (left, right)]
    design = _even_design(left, right, k)
    if not design.cliques:
        return Prediction(0.0, 0.0, ())
    variance = design.default_variances(links)
    sensitivity, asked = [l2] * len(design.cliques), [s.columns for s in design.cliques]
    if units is not None:
        rights = list(dict.fromkeys(t.right for t in design.everything if t.right))
        counting, questions = design.counting(PublicRowSums.even(*sides, units=units, sets=rights))
        if counting.informative:
            design, sensitivity, rho = counting, [q.clip for q in questions], rho * (1 - chosen.FIRST_COUNT)
            asked = [(*q.columns, *max(([c for c, _ in code] for code in q.codes), key=len)) for q in questions]
    shares = design.solve(variance, sensitivity, rho=rho, links=links)
    precision = design.precision(shares, sensitivity, rho=rho, links=links)
    order = np.argsort(-shares)[: int((shares > 0).sum())]
    return Prediction(
        float(design.errors(variance, np.zeros_like(precision)).mean()),
        float(design.errors(variance, precision).mean()),
        tuple((asked[i], share) for i, share in zip(order.tolist(), shares[order].tolist(), strict=True)),
        tuple(compress(design.components, (variance * precision >= chosen.NEXT_TO_NOTHING).tolist())),
    )


@lru_cache(maxsize=256)
def _even_design(left: Sizes, right: Sizes, k: int) -> Design:
    """The design for evenly spread values. Plans that differ elsewhere, and other budgets, ask for the same one."""
    return Design(*({c: even_margin(n) for c, n in side} for side in (left, right)), k=k)


def recommend_degree(
    left: Mapping[str, int],
    right: Mapping[str, int],
    *,
    k: int,
    rho: float,
    rows: float,
    links: float,
    l2: Callable[[int], float] = float,
) -> int:
    r"""Bound on links per protected row that should give the smallest error, from approximate sizes alone.

    Degrees are taken as geometric with mean ``links/rows``. Under the bound d a row keeps min(D,
    d) links, and noise has to hide ``l2`` of d: fewer links keep noise away, more links keep the
    sampling error small, whose variance of 1/m per coefficient is added to that of the noise.
    """
    mean = max(links / max(rows, 1.0), 1e-9)
    stay = mean / (1 + mean)
    best, least = 1, math.inf
    design = _even_design(tuple(left.items()), tuple(right.items()), min(k, 2))
    if not design.cliques:
        return 1
    variance = np.array([default_variance(t, links) for t in design.components])
    for bound in sorted({round(1.6**i) for i in range(16)}):
        seen = rows * stay * (1 - stay**bound) / (1 - stay)
        hidden = [l2(bound)] * len(design.cliques)
        shares = design.solve(variance, hidden, rho=rho, links=seen)
        precision = design.precision(shares, hidden, rho=rho, links=seen)
        error = float(design.errors(variance, 1 / (1 / np.maximum(precision, 1e-300) + 1 / seen)).mean())
        if error < least * (1 - chosen.NEXT_TO_NOTHING):
            best, least = bound, error
    return best
