r"""Links by maximum a posteriori: never worse than not learning (ALGORITHMS B1, B4, B6).

Let :math:`P_0` wire the synthetic rows independently, each by its weight (1, or the number of links of it that the view
shows). The learner measures what :mod:`dpweave.links.design` finds worth measuring, and fits the log-linear

.. math:: P = P_0 \exp\Bigl(\sum_T \theta_T[u_T, v_T]\Bigr) / Z,

one table :math:`\theta_T` per set T of columns inside a measured clique, centred along every axis so that orders do not
overlap. It minimises

.. math:: \sum_S \frac{\lVert m P_S - y_S \rVert^2}{2 \sigma_S^2}
          + \sum_T \frac{1}{2 \tau_T^2} \lVert \theta_T \rVert^2_{P_0}.

The second term is, for small θ, a Kullback–Leibler divergence from :math:`P_0` with a strength of its own for each
component, and :math:`\tau_T^2` comes from the noisy counts by empirical Bayes: signal is what exceeds the known noise, pooled
over components of one order so that few numbers do not mislead. Where noise drowns signal, :math:`\tau_T` shrinks and the
wiring stays independent. θ lives in the space of marginals: its size does not depend on the number of rows.

The paper's least squares (`eq::relaxed_opt`) is the limit of infinite τ, which fits the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpweave.errors import UsageError
from dpweave.links.base import LinkProblem, LinkResult
from dpweave.links.degrees import UNKNOWN, Degrees, fill, match_total, whole
from dpweave.links.design import Design, Margin, default_variance, parts
from dpweave.links.types import LinkOperator, RowTypes
from dpweave.links.wiring import WHOLE_CELLS, spread, wire
from dpweave.links.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from dpweave.privacy.window import FloatArray, IntArray, NoisyMarginal, Window

LINKS_DOUBT = 0.1
"""Relative standard error with which the number of links in the view is taken as known."""

_EVEN_CELLS = 1 << 20
_ITERATIONS = 150
_GRID = np.geomspace(1e-4, 1e3, 36)
"""Multiples of the default prior variance that empirical Bayes weighs up."""
_CLASS_DOUBT = math.log(8.0)
_MEMBER_DOUBT = 1.1
"""Spread of log variance: of an order of components around its default, of a component around its order."""


@dataclass(frozen=True)
class Evidence:
    r"""What the noisy counts say about one component: do its columns go together beyond chance and lower orders?

    ``statistic`` is chi-squared with ``freedom`` degrees of freedom if links are independent in these columns.
    ``signal`` estimates the variance of the true effect in units of the noise; ``score`` is the statistic as a
    standard normal quantity.
    """

    columns: tuple[str, ...]
    statistic: float
    freedom: int
    score: float

    @property
    def signal(self) -> float:
        """Signal against noise: 0 is noise alone."""
        return max(self.statistic / self.freedom - 1.0, 0.0)

    @property
    def verdict(self) -> str:
        """One sentence for people."""
        what = " × ".join(self.columns)
        if self.score >= 3.0:
            return f"{what}: the data clearly support a correlation"
        if self.score >= 1.6:
            return f"{what}: weak signs of a correlation"
        return f"{what}: no correlation above the noise; wired as if independent"


@dataclass(frozen=True)
class LinkFit:
    """θ per component: how links lean away from independent wiring. Applies to any rows with these columns."""

    shape: Mapping[str, int]
    theta: Mapping[Workload, FloatArray]
    iterations: int
    converged: bool

    @property
    def left(self) -> tuple[str, ...]:
        """Left columns that matter."""
        return tuple(dict.fromkeys(c for w in self.theta for c in w.left))

    @property
    def right(self) -> tuple[str, ...]:
        """Right columns that matter."""
        return tuple(dict.fromkeys(c for w in self.theta for c in w.right))

    def weights(self, left: RowTypes, right: RowTypes) -> FloatArray:
        """How much likelier than by chance a pair of types is linked, up to a factor."""
        if not self.theta:
            return np.ones((left.count, right.count))
        operator = LinkOperator(left, right, tuple(self.theta))
        lean = operator.adjoint(operator.stack(self.theta))
        return np.exp(lean - lean.max()) if lean.size else lean


@dataclass(frozen=True)
class MAP:
    """The default link method. ``k`` is the order of the workloads that links are learned for."""

    k: int = 3

    def __post_init__(self) -> None:
        if self.k < 2:
            raise UsageError(f"k = {self.k}: a cross-table workload needs a column of each side, so k >= 2")

    def learn(
        self,
        window: Window,
        problem: LinkProblem,
        *,
        rho: float,
        rng: np.random.Generator,
        progress: Callable[[str, float], None],
        degrees: Degrees = UNKNOWN,
    ) -> LinkResult:
        """Spend exactly ``rho`` on the cliques that promise most, fit, and link the rows of ``problem``."""
        progress("choosing what to measure", 0.0)
        scene = Scene.of(problem, degrees)
        design = scene.design(self.k)
        if not design.cliques:
            return LinkResult(self.wire(problem, (), rng=rng, degrees=degrees))
        variance = np.array([default_variance(t, scene.links) for t in design.components])
        l2 = [window.l2(s.columns) for s in design.cliques]
        shares = design.solve(variance, l2, rho=rho, links=scene.links)
        chosen = np.flatnonzero(shares)
        progress("measuring", 0.1)
        measured = window.measure(
            [design.cliques[i].columns for i in chosen], rho=rho, weights=[float(shares[i]) for i in chosen]
        )
        progress("fitting", 0.2)
        fit = fit_links(problem, measured, degrees=degrees, rng=rng)
        progress("wiring", 0.8)
        return LinkResult(draw_links(fit, problem, degrees=degrees, rng=rng), tuple(measured), rho)

    def wire(
        self,
        problem: LinkProblem,
        measured: Sequence[NoisyMarginal],
        *,
        rng: np.random.Generator,
        degrees: Degrees = UNKNOWN,
    ) -> IntArray:
        """Link the rows of ``problem`` from what was measured before, at no cost."""
        return draw_links(fit_links(problem, measured, degrees=degrees, rng=rng), problem, degrees=degrees, rng=rng)


@dataclass(frozen=True)
class Scene:
    """What is known before links are measured: weights of rows in the view, margins, about how many links it shows."""

    problem: LinkProblem
    left_weights: FloatArray
    right_weights: FloatArray
    left_known: bool
    right_known: bool
    links: float
    left: Mapping[str, Margin]
    right: Mapping[str, Margin]

    @classmethod
    def of(cls, problem: LinkProblem, degrees: Degrees) -> Scene:
        """Weigh rows by the links the view shows of them.

        Where these are given, or each left row has exactly one link, how links spread over that side is known.
        """
        lefts = _row_weights(problem.left_rows, degrees.left, degrees.left_seen, "left")
        rights = _row_weights(problem.right_rows, degrees.right, degrees.right_seen, "right")
        sides = (lefts, rights)
        seen = [float(w.sum()) for w, d in zip(sides, (degrees.left, degrees.right), strict=True) if d is not None]
        margins = [
            {c: Margin.of(codes, weights, problem.shape[c]) for c, codes in side.items()}
            for side, weights in zip((problem.left, problem.right), sides, strict=True)
        ]
        scale = problem.links_measured / max(problem.links, 1)
        return cls(
            problem,
            lefts,
            rights,
            left_known=degrees.left is not None or problem.kind == "one-to-many",
            right_known=degrees.right is not None,
            links=max(min([*(s * scale for s in seen), problem.links_measured]), 1.0),
            left=margins[0],
            right=margins[1],
        )

    def known(self, component: Workload) -> bool:
        """Whether a component is told by the tables."""
        return (self.left_known and not component.right) or (self.right_known and not component.left)

    def design(self, k: int) -> Design:
        """Everything that could be measured for this relation."""
        return Design(self.left, self.right, k=k, known=self.known)

    @property
    def margin(self) -> dict[str, Margin]:
        """Margins of both sides by column."""
        return {**self.left, **self.right}

    def workload(self, columns: Sequence[str]) -> Workload:
        """Tell the sides of a clique apart."""
        return Workload(tuple(c for c in columns if c in self.left), tuple(c for c in columns if c in self.right))

    def types(
        self, side: str, columns: Sequence[str], limit: int, rng: np.random.Generator
    ) -> tuple[RowTypes, FloatArray]:
        """Row types over ``columns`` and their shares of weight; at most ``limit``, by a calibrated sample if needed."""
        codes = self.problem.left if side == "left" else self.problem.right
        weights = self.left_weights if side == "left" else self.right_weights
        types = RowTypes.of(codes, columns, shape=self.problem.shape, rows=len(weights))
        mass: FloatArray = np.bincount(types.of_row, weights=weights, minlength=types.count).astype(np.float64)
        if types.count > limit:
            types, mass = _representatives(types, mass, limit, rng)
        return types, mass / mass.sum()


def _row_weights(rows: int, degrees: IntArray | None, share: FloatArray | None, side: str) -> FloatArray:
    for values in (degrees, share):
        if values is not None and len(values) != rows:
            raise UsageError(f"{len(values)} degrees for {rows} {side} rows")
    weights = np.ones(rows) if degrees is None else degrees.astype(np.float64)
    if share is not None:
        weights = weights * share
    return weights if weights.sum() > 0 else np.ones(rows)


def _representatives(
    types: RowTypes, mass: FloatArray, limit: int, rng: np.random.Generator
) -> tuple[RowTypes, FloatArray]:
    """A systematic sample of types in sorted order, reweighted until every column has its margin again.

    Pairs of sampled types stand for all pairs (ALGORITHMS B4): the cost of a fit does not depend on the rows.
    """
    picks = whole(mass * (limit / mass.sum()), limit, rng)
    used = np.flatnonzero(picks)
    codes = types.codes[used]
    weight = picks[used].astype(np.float64)
    for _ in range(20):
        for c, size in enumerate(types.shape):
            wanted = np.bincount(types.codes[:, c], weights=mass, minlength=size)
            have = np.bincount(codes[:, c], weights=weight, minlength=size)
            weight *= np.where(have > 0, wanted / np.maximum(have, 1e-300), 0.0)[codes[:, c]]
    nobody = np.zeros(0, dtype=np.int64)
    return RowTypes(types.columns, types.shape, codes, nobody, types.multiplicity[used]), weight


@dataclass(frozen=True)
class _Stage:
    """Row types of both sides over the measured columns, and independent wiring of them."""

    scene: Scene
    tables: Mapping[Workload, tuple[FloatArray, float]]
    """Noisy counts of each measured clique and their precision, repeated cliques averaged; axes as the workload's."""
    left: RowTypes
    right: RowTypes
    base: FloatArray
    links: float
    """The number of links in the view, from a first guess and the noisy counts themselves."""

    @classmethod
    def of(cls, scene: Scene, measured: Sequence[NoisyMarginal], rng: np.random.Generator) -> _Stage:
        tables = _averaged(scene, measured)
        lefts = [c for c in scene.left if any(c in s.left for s in tables)]
        rights = [c for c in scene.right if any(c in s.right for s in tables)]
        limit = math.isqrt(WHOLE_CELLS)
        left, p = scene.types("left", lefts, _room(scene, "right", rights, limit), rng)
        right, q = scene.types("right", rights, max(WHOLE_CELLS // left.count, 1), rng)
        totals = [(float(y.sum()), precision / y.size) for y, precision in tables.values()]
        prior = 1 / (LINKS_DOUBT * scene.links) ** 2
        best = (scene.links * prior + sum(t * w for t, w in totals)) / (prior + sum(w for _, w in totals))
        return cls(scene, tables, left, right, np.multiply.outer(p, q), max(best, 1.0))

    def components(self) -> list[Workload]:
        """Everything inside a measured clique that is not known anyhow, and can vary."""
        every = dict.fromkeys(t for s in self.tables for t in parts(s) if not self.scene.known(t))
        margin = self.scene.margin
        return [t for t in every if all(margin[c].size > 1 for c in t.columns)]

    def expected(self) -> dict[Workload, FloatArray]:
        """Independent wiring's frequencies in the measured cliques."""
        operator = LinkOperator(self.left, self.right, tuple(self.tables))
        found = operator.unstack(operator.histogram(self.base))
        return {s: found[s].reshape(self.tables[s][0].shape) for s in self.tables}

    def residuals(self) -> Iterator[tuple[Workload, FloatArray, float]]:
        r"""Per component: counts beyond independent wiring and lower orders, and their noise variance before centring.

        All cliques that contain T are summed down to T and averaged by inverse variance. Centring by
        :math:`I - p 1^T` along each axis takes away every effect of fewer columns.
        """
        expected = self.expected()
        sums: dict[Workload, FloatArray] = {}
        precisions: dict[Workload, float] = {}
        wanted = set(self.components())
        for s, (y, precision) in self.tables.items():
            beyond = y - self.links * expected[s]
            for t in parts(s):
                if t not in wanted:
                    continue
                away = tuple(i for i, c in enumerate(s.columns) if c not in t.columns)
                weight = precision / math.prod(beyond.shape[i] for i in away)
                sums[t] = sums.get(t, 0.0) + beyond.sum(axis=away) * weight
                precisions[t] = precisions.get(t, 0.0) + weight
        for t, total in sums.items():
            table = total / precisions[t]
            for axis, c in enumerate(t.columns):
                table = table - _along(self.scene.margin[c].p, axis, table.ndim) * table.sum(axis=axis, keepdims=True)
            yield t, table, 1 / precisions[t]


def _room(scene: Scene, side: str, columns: Sequence[str], limit: int) -> int:
    """How many types the other side may have, given how many this one can have at most."""
    rows = scene.problem.right_rows if side == "right" else scene.problem.left_rows
    most = min(rows, math.prod(scene.problem.shape[c] for c in columns))
    return max(limit, WHOLE_CELLS // max(most, 1))


def _averaged(scene: Scene, measured: Sequence[NoisyMarginal]) -> dict[Workload, tuple[FloatArray, float]]:
    sums: dict[Workload, FloatArray] = {}
    precisions: dict[Workload, float] = {}
    for noisy in measured:
        unknown = [c for c in noisy.columns if c not in scene.left and c not in scene.right]
        if unknown:
            raise UsageError(f"measured column {unknown[0]!r} is on neither side of the relation")
        workload = scene.workload(noisy.columns)
        if not workload.k:
            continue
        counts = np.transpose(noisy.counts, [noisy.columns.index(c) for c in workload.columns])
        sums[workload] = sums.get(workload, 0.0) + counts / noisy.sigma**2
        precisions[workload] = precisions.get(workload, 0.0) + noisy.sigma**-2
    return {w: (sums[w] / precisions[w], precisions[w]) for w in sums}


def _along(values: FloatArray, axis: int, ndim: int) -> FloatArray:
    return values.reshape([-1 if i == axis else 1 for i in range(ndim)])


def _outer(factors: Sequence[FloatArray]) -> FloatArray:
    table = np.ones(())
    for factor in factors:
        table = np.multiply.outer(table, factor)
    return table


def fit_links(
    problem: LinkProblem,
    measured: Sequence[NoisyMarginal],
    *,
    degrees: Degrees = UNKNOWN,
    rng: np.random.Generator,
) -> LinkFit:
    """Fit θ to noisy counts; without any, links are independent."""
    scene = Scene.of(problem, degrees)
    if not measured or not problem.left_rows or not problem.right_rows:
        return LinkFit(problem.shape, {}, 0, converged=True)
    stage = _Stage.of(scene, measured, rng)
    return _maximise(stage, prior_variances(stage))


def prior_variances(stage: _Stage) -> dict[Workload, float]:
    r"""Empirical Bayes: how large each component's coefficients are, judged by the noisy counts.

    Given :math:`\tau^2`, a cell of the residual has variance :math:`m^2 p \tau^2` plus that of the noise. A component's
    variance is log-normal around that of its order (left and right columns), which is log-normal around the default:
    two levels, integrated on a grid. The geometric mean is returned, which errs on the side of independence.
    """
    logs = np.log(_GRID)
    likelihood: dict[Workload, FloatArray] = {}
    for t, residual, noise in stage.residuals():
        ps = [stage.scene.margin[c].p for c in t.columns]
        signal = stage.links**2 * default_variance(t, stage.links) * _outer([p * (1 - p) for p in ps])
        blur = noise * _outer([1 - 2 * p + len(p) * p**2 for p in ps])
        total = signal[..., None] * _GRID + blur[..., None]
        freedom = math.prod(1 - 1 / len(p) for p in ps)  # centred cells are not independent
        cells = -0.5 * np.log(total) - 0.5 * (residual**2)[..., None] / total
        found = freedom * cells.reshape(-1, len(_GRID)).sum(axis=0)
        likelihood[t] = found - found.max()
    member = -0.5 * ((logs[:, None] - logs) / _MEMBER_DOUBT) ** 2
    member -= np.log(np.exp(member).sum(axis=1, keepdims=True))
    out: dict[Workload, float] = {}
    orders: dict[tuple[int, int], list[Workload]] = {}
    for t in likelihood:
        orders.setdefault((len(t.left), len(t.right)), []).append(t)
    for members in orders.values():
        posterior = -0.5 * (logs / _CLASS_DOUBT) ** 2
        for t in members:
            posterior = posterior + np.log(np.exp(member + likelihood[t]).sum(axis=1) + 1e-300)
        order = np.exp(posterior - posterior.max())
        order /= order.sum()
        for t in members:
            own = np.exp(member + likelihood[t]) + 1e-300
            weight = order @ (own / own.sum(axis=1, keepdims=True))
            out[t] = default_variance(t, stage.links) * float(np.exp(weight @ logs))
    return out


def _maximise(stage: _Stage, variance: Mapping[Workload, float]) -> LinkFit:
    """Minimise the objective over whitened, centred coordinates z, in which the prior is standard normal."""
    from scipy.optimize import minimize

    components = stage.components()
    operator = LinkOperator(stage.left, stage.right, tuple(dict.fromkeys([*components, *stage.tables])))
    target = operator.stack({s: y for s, (y, _) in stage.tables.items()})
    precision = operator.stack({s: np.full(y.shape, w) for s, (y, w) in stage.tables.items()})
    with np.errstate(divide="ignore"):
        base = np.log(stage.base)
    roots = {t: [np.sqrt(stage.scene.margin[c].p) for c in t.columns] for t in components}
    scale = {t: math.sqrt(variance[t]) / _outer(roots[t]) for t in components}
    sizes = np.cumsum([0] + [scale[t].size for t in components])

    def theta(z: FloatArray) -> dict[Workload, FloatArray]:
        return {
            t: scale[t] * _centre(z[sizes[i] : sizes[i + 1]].reshape(scale[t].shape), roots[t])
            for i, t in enumerate(components)
        }

    def density(z: FloatArray) -> FloatArray:
        logs = base + operator.adjoint(operator.stack(theta(z)))
        p = np.exp(logs - logs.max())
        return np.asarray(p / p.sum())

    def objective(z: FloatArray) -> tuple[float, FloatArray]:
        p = density(z)
        off = stage.links * operator.histogram(p) - target
        pull = operator.adjoint(precision * off * stage.links)
        slope = operator.unstack(operator.histogram(p * (pull - (p * pull).sum())))
        gradient = z.copy()
        for i, t in enumerate(components):
            table = _centre(scale[t] * slope[t].reshape(scale[t].shape), roots[t])
            gradient[sizes[i] : sizes[i + 1]] += table.ravel()
        return float(0.5 * (precision * off**2).sum() + 0.5 * z @ z), gradient

    result = minimize(
        objective,
        np.zeros(int(sizes[-1])),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": _ITERATIONS, "ftol": 1e-7, "maxcor": 20},
    )
    return LinkFit(stage.scene.problem.shape, theta(result.x), int(result.nit), converged=bool(result.success))


def _centre(table: FloatArray, roots: Sequence[FloatArray]) -> FloatArray:
    """Project each axis onto the complement of the root of its margin: its own adjoint."""
    for axis, root in enumerate(roots):
        q = _along(root, axis, table.ndim)
        table = table - q * (q * table).sum(axis=axis, keepdims=True)
    return table


def draw_links(fit: LinkFit, problem: LinkProblem, *, degrees: Degrees = UNKNOWN, rng: np.random.Generator) -> IntArray:
    """Links of the rows of ``problem``, of its kind exactly; degrees that are not given follow from the fit."""
    if not problem.links or not problem.left_rows or not problem.right_rows:
        return np.zeros((0, 2), dtype=np.int64)
    left, right = _drawing_types(fit, problem)
    one_left = problem.kind != "many-to-many"
    one_right = problem.kind == "one-to-one"
    partners = problem.right_rows - problem.bars_self
    caps = [
        1 if one_left else min(degrees.left_bound or partners, partners),
        1 if one_right else min(degrees.right_bound or problem.left_rows, problem.left_rows),
    ]
    wanted = np.ones(problem.left_rows, dtype=np.int64) if problem.kind == "one-to-many" else degrees.left
    if wanted is not None:
        wanted = np.minimum(wanted, 1 if one_left else partners)
    links = problem.links if wanted is None else int(wanted.sum())
    shares = _type_shares(fit, left, right, wanted, degrees.right, rng)
    if wanted is None:
        links = min(links, caps[0] * problem.left_rows, caps[1] * problem.right_rows)
        wanted = _spread_shares(shares[0], left, links, caps[0], rng)
    if degrees.right is not None:
        most = 1 if one_right else problem.left_rows
        others = match_total(np.minimum(degrees.right, most), links, cap=most, rng=rng)
    else:
        others = _spread_shares(shares[1], right, links, _cap(links, caps[1], problem.right_rows), rng)
    return wire(
        fit.weights, left, right, left_degrees=wanted, right_degrees=others, rng=rng, same_table=problem.bars_self
    )


def _drawing_types(fit: LinkFit, problem: LinkProblem) -> tuple[RowTypes, RowTypes]:
    """Types to draw by: over all columns while pairs of them are few, so that rounding is even in columns
    that nothing is known about, else over the columns that matter.
    """
    lefts = [
        RowTypes.of(problem.left, columns, shape=problem.shape, rows=problem.left_rows)
        for columns in (tuple(problem.left), fit.left)
    ]
    rights = [
        RowTypes.of(problem.right, columns, shape=problem.shape, rows=problem.right_rows)
        for columns in (tuple(problem.right), fit.right)
    ]
    for left, right in ((lefts[0], rights[0]), (lefts[0], rights[1]), (lefts[1], rights[0])):
        if left.count * right.count <= _EVEN_CELLS:
            return left, right
    return lefts[1], rights[1]


def _cap(links: int, cap: int, rows: int) -> int:
    """Relax a bound that cannot hold: exact left degrees come first."""
    return max(cap, -(-links // rows))


def _spread_shares(shares: FloatArray, types: RowTypes, links: int, cap: int, rng: np.random.Generator) -> IntArray:
    capacity = types.multiplicity.astype(np.float64) * cap
    return spread(whole(fill(shares * links, capacity, float(links)), links, rng), types, cap=cap, rng=rng)


def _type_shares(
    fit: LinkFit,
    left: RowTypes,
    right: RowTypes,
    left_degrees: IntArray | None,
    right_degrees: IntArray | None,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Expected share of links per left and right type: rows by their degrees where known, else by the fit."""
    rows = _mass(left, left_degrees)
    columns = _mass(right, right_degrees)
    some = np.arange(left.count)
    if left.count * right.count > WHOLE_CELLS:
        picked = whole(rows * (1024 / rows.sum()), 1024, rng)
        some = np.flatnonzero(picked)
    nobody = np.zeros(0, dtype=np.int64)
    sample = RowTypes(left.columns, left.shape, left.codes[some], nobody, left.multiplicity[some])
    inner = np.zeros(left.count)
    total = np.zeros(right.count)
    step = max(WHOLE_CELLS // max(len(some), 1), 1)
    blocks = [slice(i, min(i + step, right.count)) for i in range(0, right.count, step)]
    parts_ = [fit.weights(sample, _cut(right, b)) * columns[b] for b in blocks]
    for block in parts_:
        inner[some] += block.sum(axis=1)
    known = left_degrees is not None
    for b, block in zip(blocks, parts_, strict=True):
        weight = rows[some] / np.maximum(inner[some], 1e-300) if known else rows[some]
        total[b] = weight @ block
    shares = rows if known or len(some) < left.count else rows * inner
    return shares / shares.sum(), total / total.sum()


def _mass(types: RowTypes, degrees: IntArray | None) -> FloatArray:
    if degrees is None:
        return types.multiplicity.astype(np.float64)
    mass: FloatArray = np.bincount(types.of_row, weights=degrees, minlength=types.count).astype(np.float64)
    return mass if mass.sum() > 0 else types.multiplicity.astype(np.float64)


def _cut(types: RowTypes, block: slice) -> RowTypes:
    return RowTypes(
        types.columns, types.shape, types.codes[block], np.zeros(0, dtype=np.int64), types.multiplicity[block]
    )


def evidence(
    problem: LinkProblem, measured: Sequence[NoisyMarginal], *, degrees: Degrees = UNKNOWN, rng: np.random.Generator
) -> tuple[Evidence, ...]:
    r"""What the noisy counts say for each cross-table component, strongest first.

    The centred residual r of a component has noise covariance :math:`\sigma^2 \bigotimes_c M_c M_c^T` with
    :math:`M_c = I - p_c 1^T`, so :math:`r^T (\cdot)^+ r` is chi-squared with :math:`\prod_c (n_c - 1)` degrees of
    freedom where links do not depend on these columns together. Post-processing: it reads the release alone.
    """
    if not measured:
        return ()
    stage = _Stage.of(Scene.of(problem, degrees), measured, rng)
    found = []
    for t, residual, noise in stage.residuals():
        if not (t.left and t.right):
            continue
        whitened = residual
        for axis, c in enumerate(t.columns):
            p = stage.scene.margin[c].p
            centre = np.eye(len(p)) - p[:, None]
            inverse = np.linalg.pinv(centre @ centre.T, rcond=1e-9, hermitian=True)
            whitened = np.moveaxis(np.tensordot(inverse, whitened, axes=(1, axis)), 0, axis)
        statistic = float((residual * whitened).sum() / noise)
        freedom = math.prod(stage.scene.margin[c].size - 1 for c in t.columns)
        # Wilson and Hilferty's cube root makes chi-squared nearly normal.
        spread_ = 2 / (9 * freedom)
        score = ((max(statistic, 0.0) / freedom) ** (1 / 3) - (1 - spread_)) / math.sqrt(spread_)
        found.append(Evidence(t.columns, statistic, freedom, score))
    return tuple(sorted(found, key=lambda e: -e.score))


def verdict(found: Sequence[Evidence]) -> str:
    """One sentence about a relation: did the data support correlation across it?

    >>> verdict(())
    'the budget is too small to measure any correlation across this relation; links are independent'
    """
    if not found:
        return "the budget is too small to measure any correlation across this relation; links are independent"
    # The best of many scores is high by chance: compare it with what the largest of as many normal draws would be.
    chance = math.sqrt(2 * math.log(max(len(found), 2))) + 1.0
    strong = [e for e in found if e.score >= chance]
    if strong:
        named = ", ".join(" × ".join(e.columns) for e in strong[:3])
        more = f" and {len(strong) - 3} more" if len(strong) > 3 else ""
        return f"the data support correlation across this relation, clearest in {named}{more}"
    return "no correlation across this relation stands out of the noise; links are as good as independent"
