r"""Links by maximum a posteriori: never worse than not learning (ALGORITHMS B1, B4, B6).

Let :math:`P_0` wire the synthetic rows independently, each by its weight (1, or the number of links of it that the view
shows). The learner measures what :mod:`dpweave.measure.design` finds worth measuring, and fits the log-linear

.. math:: P = P_0 \exp\Bigl(\sum_T \theta_T[u_T, v_T]\Bigr) / Z,

(with one Z per row where the left margin is known), one table :math:`\theta_T` per set T of columns
inside a measured clique, centred along every axis so that orders do not overlap. It minimises

.. math:: \sum_S \frac{\lVert m P_S - y_S \rVert^2}{2 \sigma_S^2}
          + \sum_T \frac{1}{2 \tau_T^2} \lVert \theta_T \rVert^2_{P_0}.

The second term is, for small θ, a Kullback–Leibler divergence from :math:`P_0` with a strength of its own for each
component, and :math:`\tau_T^2` comes from the noisy counts by empirical Bayes: signal is what exceeds the known noise,
pooled over components of one order so that few numbers do not mislead. Where noise drowns signal, :math:`\tau_T`
shrinks and the wiring stays independent. θ lives in the space of marginals: its size does not depend on the number of
rows.

The paper's least squares (`eq::relaxed_opt`) is the limit of infinite τ, which fits the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave import chosen
from dpweave.errors import UsageError
from dpweave.links.degrees import UNKNOWN, Degrees
from dpweave.links.draw_links import draw_links
from dpweave.links.fit_inputs import FitInputs, Stage, along
from dpweave.links.link_fit import LinkFit
from dpweave.links.link_method import LinkProblem, LinkResult
from dpweave.links.prior_variances import prior_variances
from dpweave.links.row_types import LinkOperator, RowTypes
from dpweave.measure.design import default_variance
from dpweave.measure.per_unit.centred_counts import Centred
from dpweave.measure.per_unit.clipped_counts import Clipped
from dpweave.measure.question import Way, ask
from dpweave.privacy.accounting import split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.links.prior_variances import PriorVariance
    from dpweave.measure.cross_workloads import Workload
    from dpweave.measure.design import Design
    from dpweave.measure.per_unit.public_row_sums import PublicRowSums
    from dpweave.privacy.window import Columns, Noisy, Window


_ITERATIONS = 300
_ENOUGH = 1e-5
"""A step that lowers the objective by less than this share of it is the last: far less than noise moves it by."""


@dataclass(frozen=True)
class MAP:
    """The default link method. ``k`` is the order of the workloads that links are learned for.

    ``favoured`` are sets of columns that are measured first, with weights: at 1, with
    as much as all the others together.
    """

    k: int = 3
    favoured: Mapping[Columns, float] = field(default_factory=dict)
    way: Way = Way.PLAIN
    """How links are counted where rows are at hand."""

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
        measured = self.ask(window, problem, rho=rho, progress=progress, degrees=degrees)
        if not (problem.links and problem.left_rows and problem.right_rows):
            return LinkResult(np.zeros((0, 2), dtype=np.int64))
        progress("fitting", 0.2)
        fit = fit_links(problem, measured, degrees=degrees, rng=rng)
        progress("wiring", 0.8)
        return LinkResult(draw_links(fit, problem, degrees=degrees, rng=rng), tuple(measured), rho, fit)

    def ask(
        self,
        window: Window,
        problem: LinkProblem,
        *,
        rho: float,
        progress: Callable[[str, float], None],
        degrees: Degrees = UNKNOWN,
    ) -> Sequence[Noisy]:
        """Spend exactly ``rho`` on the cliques that promise most.

        Nothing is measured, and nothing spent, where there is nothing to link or no column that varies on one side.
        """
        progress("choosing what to measure", 0.0)
        if not (problem.links and problem.left_rows and problem.right_rows):
            return ()
        scene = FitInputs.of(problem, degrees)
        design = scene.design(self.k, self.favoured)
        if not design.cliques:
            return ()
        variance = np.array([default_variance(t, scene.links, selective=problem.selective) for t in design.components])
        return self._measure(window, scene, design, variance, rho=rho, progress=progress)

    def _measure(
        self,
        window: Window,
        scene: FitInputs,
        design: Design,
        variance: FloatArray,
        *,
        rho: float,
        progress: Callable[[str, float], None],
    ) -> Sequence[Noisy]:
        """Measure what the design finds worth it, in the way of counting that was decided on.

        Counts are plain where rows are on a server, so that the window knows of no units.
        """
        counts: Centred | Clipped | Window = window
        if window.units is not None:
            match self.way:
                case Way.CENTRED:
                    counts = Centred(window, window.units, scene.centre, scene.links)
                case Way.CLIPPED:
                    counts = Clipped(window, window.units, scene.links)
                case Way.CODED:
                    sums = scene.public_row_sums(design, window.units)
                    if design.counting(sums)[0].informative:
                        progress("measuring", 0.1)
                        return _measure_coded(window, scene, design, sums, variance, rho=rho)
        l2 = [counts.l2(s.columns) for s in design.cliques]
        shares = design.solve(variance, l2, rho=rho, links=scene.links)
        chosen = np.flatnonzero(shares)
        progress("measuring", 0.1)
        return counts.measure(
            [design.cliques[i].columns for i in chosen], rho=rho, weights=[float(shares[i]) for i in chosen]
        )

    def wire(
        self,
        problem: LinkProblem,
        measured: Sequence[Noisy],
        *,
        rng: np.random.Generator,
        degrees: Degrees = UNKNOWN,
    ) -> IntArray:
        """Link the rows of ``problem`` from what was measured before, at no cost."""
        return self.draw(self.fit(problem, measured, rng=rng, degrees=degrees), problem, rng=rng, degrees=degrees)

    def fit(
        self,
        problem: LinkProblem,
        measured: Sequence[Noisy],
        *,
        rng: np.random.Generator,
        degrees: Degrees = UNKNOWN,
    ) -> LinkFit:
        """Fit θ; see :func:`fit_links`."""
        return fit_links(problem, measured, degrees=degrees, rng=rng)

    def draw(
        self, fit: LinkFit, problem: LinkProblem, *, rng: np.random.Generator, degrees: Degrees = UNKNOWN
    ) -> IntArray:
        """Link the rows of ``problem``, or any others with these columns, by a fit."""
        return draw_links(fit, problem, degrees=degrees, rng=rng)

    def state(self, fit: LinkFit) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a fit as plain values and arrays, for a file."""
        return fit.state()

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, Any]) -> LinkFit:
        """Make a fit again from its :meth:`state`."""
        return LinkFit.restore(state, arrays)


def _measure_coded(
    window: Window, scene: FitInputs, design: Design, sums: PublicRowSums, variance: FloatArray, *, rho: float
) -> Sequence[Noisy]:
    """Count links by the values of public rows. Where it is known how links spread over the left side, a small part
    counts all links first, and the others are counted around that.
    """
    first: tuple[Noisy, ...] = ()
    if scene.left_known:
        start, rho = split(rho, [chosen.FIRST_COUNT, 1 - chosen.FIRST_COUNT])
        every = sums.balanced(sums.question((), list(sums.share)), rho=start, links=scene.links)
        first = ask(window, [every], rho=start)
        sums = sums.around(*first, links=scene.links)
    counting, made = design.counting(sums)
    shares = counting.solve(variance, [q.clip for q in made], rho=rho, links=scene.links)
    picked = [(made[i], float(shares[i])) for i in np.flatnonzero(shares)]
    if scene.left_known:
        picked = [(sums.settled(q, rho=rho * share, links=scene.links), share) for q, share in picked]
    return (*first, *ask(window, [q for q, _ in picked], rho=rho, weights=[share for _, share in picked]))


def fit_links(
    problem: LinkProblem,
    measured: Sequence[Noisy],
    *,
    degrees: Degrees = UNKNOWN,
    rng: np.random.Generator,
) -> LinkFit:
    """Fit θ to noisy counts; without any, links are independent."""
    scene = FitInputs.of(problem, degrees)
    if not measured or not problem.left_rows or not problem.right_rows:
        return LinkFit(problem.shape, dict(problem.expected), 0, converged=True)
    stage = Stage.of(scene, measured, rng)
    return _maximise(stage, prior_variances(stage))


class _Coordinates:
    """Whitened coordinates z of all θ, in which the prior is standard normal; components of one shape go together.

    A component's table is its z, centred along every axis, scaled by its prior's width, that of linear
    effects and that of the rest, over the root of its margins and bent (:func:`_bent`). Steps are taken in
    x, which is z in units of the posterior's width: tens of iterations instead of hundreds.
    """

    def __init__(
        self,
        stage: Stage,
        operator: LinkOperator,
        variance: Mapping[Workload, PriorVariance],
        informed: Sequence[Workload],
    ) -> None:
        precisions = stage.precisions()
        shapes: dict[tuple[tuple[int, ...], tuple[int, ...]], list[Workload]] = {}
        for t in informed:
            shape = tuple(stage.scene.margin[c].size for c in t.columns)
            shapes.setdefault((shape, tuple(stage.lines(t))), []).append(t)
        self.groups = list(shapes.values())
        places = np.arange(operator.mask.size).reshape(operator.mask.shape)
        self._where = [
            np.stack([places[operator.blocks[t]].reshape(shape) for t in group]) for (shape, _), group in shapes.items()
        ]
        self._roots = [
            [
                along(
                    np.stack([np.sqrt(stage.scene.margin[t.columns[axis]].p) for t in group]), axis + 1, len(shape) + 1
                )
                for axis in range(len(shape))
            ]
            for (shape, _), group in shapes.items()
        ]
        self._lines = [
            [
                (axis + 1, along(np.stack([stage.lines(t)[axis] for t in group]), axis + 1, len(shape) + 1))
                for axis in axes
            ]
            for (shape, axes), group in shapes.items()
        ]
        self._prior, self._width = [], []
        for (shape, _), group in shapes.items():
            variances = np.array([variance[t] for t in group]).T
            precision = np.array([precisions[t] for t in group])
            self._prior.append([along(np.sqrt(v), 0, len(shape) + 1) for v in variances])
            self._width.append([along((1 + v * precision) ** -0.5, 0, len(shape) + 1) for v in variances])
        self._starts = np.cumsum([0] + [w.size for w in self._where])
        self._answers = operator.mask.shape
        self.least = 1.0 if stage.shares_noise else chosen.DOUBT
        """Below which density θ is a line (:func:`_bent`). Values of public rows share noise, which takes part in all
        that is below chance; there it begins at once.
        """
        self.size = int(self._starts[-1])

    def _bend(self, i: int, tables: FloatArray, sizes: Sequence[FloatArray]) -> FloatArray:
        """Scale what is linear by one size and the rest by another: its own adjoint."""
        linear, rest = sizes
        if not self._lines[i]:
            return linear * tables
        part = tables
        for axis, q in self._lines[i]:
            part = q * (q * part).sum(axis=axis, keepdims=True)
        return rest * tables + (linear - rest) * part

    def _cut(self, flat: FloatArray) -> Iterator[tuple[int, FloatArray]]:
        for i, where in enumerate(self._where):
            yield i, flat[self._starts[i] : self._starts[i + 1]].reshape(where.shape)

    def whitened(self, x: FloatArray) -> FloatArray:
        """Return z at x. Its own adjoint, so that it takes gradients back too."""
        return np.concatenate([self._bend(i, part, self._width[i]).ravel() for i, part in self._cut(x)])

    def deviations(self, z: FloatArray) -> list[FloatArray]:
        """How far each group's densities are off independence, before they are bent."""
        return [
            self._bend(i, _centre(part, self._roots[i]), self._prior[i]) / math.prod(self._roots[i])
            for i, part in self._cut(z)
        ]

    def stacked(self, deviations: Sequence[FloatArray]) -> FloatArray:
        """θ of all components in the operator's matrix of answers."""
        out = np.zeros(self._answers)
        for where, off in zip(self._where, deviations, strict=True):
            out.reshape(-1)[where] = _bent(off, self.least)
        return out

    def gradient(self, slope: FloatArray, deviations: Sequence[FloatArray]) -> FloatArray:
        """Pull a gradient in θ back to z."""
        flat = slope.reshape(-1)
        out = []
        for i, (where, off) in enumerate(zip(self._where, deviations, strict=True)):
            pulled = flat[where] / np.maximum(1 + off, self.least) / math.prod(self._roots[i])
            out.append(_centre(self._bend(i, pulled, self._prior[i]), self._roots[i]).ravel())
        return np.concatenate(out)


def _bent(off: FloatArray, least: float) -> FloatArray:
    """θ of a density 1 + ``off``: its logarithm, and below ``least`` a line, along which it falls to nothing.

    The prior is normal in the density, as in the design. Were it normal in θ, the count
    of a rare cell could follow its noise upwards at next to no cost: from one expected
    link to twenty takes three units of θ, and such a cell's prior is wider. And cells that are empty in the
    data would keep a part of what chance gives them, since emptying one would take more than a density of nothing.
    """
    return np.log(np.maximum(1 + off, least)) + np.minimum((1 + off) / least - 1, 0.0)


def _centre(tables: FloatArray, roots: Sequence[FloatArray]) -> FloatArray:
    """Project each axis but the first onto the complement of the root of its margin: its own adjoint."""
    for axis, q in enumerate(roots, start=1):
        tables = tables - q * (q * tables).sum(axis=axis, keepdims=True)
    return tables


@dataclass(frozen=True)
class _Slack:
    """The components of a given margin: they move its mass per row type and nothing else."""

    outside: LinkOperator
    blocks: Mapping[Workload, tuple[slice, slice]]

    @classmethod
    def of(cls, stage: Stage, operator: LinkOperator, informed: Sequence[Workload]) -> _Slack | None:
        loose = [t for t in informed if stage.scene.fixed(t)]
        if not loose:
            return None
        one = RowTypes(
            (), (), np.zeros((1, 0), dtype=np.int64), np.zeros(0, dtype=np.int64), np.ones(1, dtype=np.int64)
        )
        sides = (stage.left, one) if stage.scene.given == 0 else (one, stage.right)
        return cls(LinkOperator(*sides, loose), {t: operator.blocks[t] for t in loose})

    def move(self, given: FloatArray, theta: FloatArray) -> FloatArray:
        """Masses of the row types under θ; they add up to one."""
        log_odds = self.outside.adjoint(self.outside.stack({t: theta[b] for t, b in self.blocks.items()}))
        mass = given * np.exp(log_odds - log_odds.max())
        return np.asarray(mass / mass.sum())

    def slope(self, pull: FloatArray, out: FloatArray) -> None:
        """Write the gradient of the margin's components into ``out``."""
        found = self.outside.histogram(pull)
        for t, block in self.blocks.items():
            out[block] = found[self.outside.blocks[t]]


def _laid_out(stage: Stage, expected: Mapping[Workload, FloatArray]) -> FloatArray:
    """Log-odds that are known before counts, for each pair of row types, as far as these tell its columns apart."""
    seen = {
        t: x for t, x in expected.items() if {*t.left} <= {*stage.left.columns} and {*t.right} <= {*stage.right.columns}
    }
    if not seen:
        return np.zeros(())
    operator = LinkOperator(stage.left, stage.right, tuple(seen))
    return np.asarray(operator.laid_out(operator.stack(seen)))


def _maximise(stage: Stage, variance: Mapping[Workload, PriorVariance]) -> LinkFit:
    """Minimise the objective by L-BFGS from independent wiring."""
    from scipy.optimize import minimize

    informed = stage.informed({t: max(both) for t, both in variance.items()}, least=chosen.NEXT_TO_NOTHING)
    expected = stage.scene.problem.expected
    if not informed:
        return LinkFit(stage.scene.problem.shape, dict(expected), 0, converged=True)
    tables = {
        s: t for s, t in stage.tables.items() if t.blur is None or not set(informed).isdisjoint(stage.informed_by(s))
    }
    operator = LinkOperator(stage.left, stage.right, tuple(dict.fromkeys([*informed, *tables])))
    target = operator.stack({s: t.y for s, t in tables.items()})
    precision = operator.stack({s: t.precision for s, t in tables.items()})
    # Types may be a sample (ALGORITHMS B4), which has too many or too few of a value,
    # or none. So it tells only how much likelier than by chance a
    # cell is; chance is known. Otherwise θ would make good what is wrong with the
    # sample, and that is gone when links are drawn.
    chance = operator.stack({s: stage.expected[s] for s in tables})
    sampled = operator.histogram(stage.base)
    times, unseen = np.divide(chance, sampled, out=np.zeros_like(chance), where=sampled > 0), chance * (sampled <= 0)
    base = np.log(np.maximum(stage.base, 1e-300)) + _laid_out(stage, expected)
    place = _Coordinates(stage, operator, variance, informed)
    # Where one side's margin is given, P is conditional on it: a row (or column) has
    # its mass, up to the margin's slack.
    axis = {None: None, 0: 1, 1: 0}[stage.scene.given]
    given = np.maximum(stage.base.sum(axis=axis, keepdims=True), 1e-300)
    slack = _Slack.of(stage, operator, informed)

    def spread(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        mass = given if slack is None else slack.move(given, theta)
        p = base + operator.laid_out(theta)
        p -= p.max(axis=axis, keepdims=True)
        np.exp(p, out=p)
        p *= mass / p.sum(axis=axis, keepdims=True)
        return p, mass

    def objective(x: FloatArray) -> tuple[float, FloatArray]:
        z = place.whitened(x)
        deviations = place.deviations(z)
        p, mass = spread(place.stacked(deviations))
        off = stage.links * (times * operator.histogram(p) + unseen) - target
        pull = operator.laid_out(times * precision * off * stage.links)
        mean = (p * pull).sum(axis=axis, keepdims=True) / np.maximum(mass, 1e-300)  # none where θ left nothing
        pull -= mean
        pull *= p
        slope = operator.histogram(pull)
        if slack is not None:
            slack.slope(mass * (mean - (mass * mean).sum()), slope)
        gradient = z + place.gradient(slope, deviations)
        return float(0.5 * (precision * off**2).sum() + 0.5 * z @ z), place.whitened(gradient)

    result = minimize(
        objective,
        np.zeros(place.size),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": _ITERATIONS, "ftol": _ENOUGH, "maxcor": 20},
    )
    deviations = place.deviations(place.whitened(result.x))
    answers = operator.unstack(times * operator.histogram(spread(place.stacked(deviations))[0]) + unseen)
    joint = {s: (answers[s] / answers[s].sum(), t.weight) for s, t in tables.items()}
    bent = [_bent(off, place.least) for off in deviations]
    theta = {t: bent[i][j] for i, group in enumerate(place.groups) for j, t in enumerate(group)}
    loose = {t: table for t, table in theta.items() if stage.scene.fixed(t)}
    firm = {t: table + expected.get(t, 0.0) for t, table in theta.items() if t not in loose}
    firm |= {t: table for t, table in expected.items() if t not in firm}
    done = bool(result.success)
    return LinkFit(stage.scene.problem.shape, firm, int(result.nit), converged=done, slack=loose, joint=joint)
