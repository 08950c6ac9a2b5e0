"""The paper's learner: choose workloads, measure them, fit the links to them by projected gradient descent, repeat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from dpweave.errors import UsageError, nearest
from dpweave.links.degrees import UNKNOWN, Degrees
from dpweave.links.link_method import LinkProblem, LinkResult, random_links
from dpweave.links.relaxed.dense_block import Block
from dpweave.links.relaxed.gradient_descent import FeasibleSet, Relaxed, descend
from dpweave.links.relaxed.many_to_many import CappedSimplex, RescaledSimplex, round_many_to_many
from dpweave.links.relaxed.one_to_many import RowSimplices, round_one_to_many
from dpweave.links.relaxed.one_to_one import MatchingPolytope, round_one_to_one
from dpweave.links.relaxed.random_slices import Slice, draw_links, draw_slice
from dpweave.links.row_types import LinkOperator
from dpweave.measure.cross_workloads import Workload, answers_from_links, cross_workloads
from dpweave.measure.purse import Purse
from dpweave.privacy.window import Candidate, Columns, NoisyMarginal, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dpweave.arrays import FloatArray, IntArray

Fitted = Literal["worst", "random"]
Start = Literal["links", "even", "random"]
Projection = Literal["nearest", "rescaled"]


@dataclass(frozen=True)
class PGD:
    r"""Settings of `alg::alg_sparse_large`, with the paper's defaults for MovieLens (`sec::experiments`).

    Each of ``T`` rounds chooses ``K`` new workloads over ``k`` columns, for the share ``alpha`` of its budget, measures
    them for the rest, and re-learns ``slices`` blocks of ``slice_rows`` × ``slice_rows`` rows, of which the share
    ``guaranteed`` have links in the block. A slice is fitted to the ``worst`` measured workloads by ``iterations``
    steps. ``tau`` gives the size of a slice as a share of the rows instead. ``slices=None`` fits all rows and all
    measured workloads at once, which row types often make cheap. ``candidates`` bounds how many workloads compete in
    one choice, drawn at random (the paper's Subsample); None lets all compete.

    Three choices are made otherwise by the authors' code than by their text, and matter (``docs/paper.md``):

    - ``fitted``: which ``worst`` workloads a slice is fitted to, those with the largest error (``"worst"``, the
      text) or as many at ``"random"``. Where noise is large the largest error is that of the noisiest workload.
    - ``start``: where descent in a slice begins. The text says at random and not from which law. ``"links"`` are the
      links the slice has; ``"even"`` gives every pair the same weight, the mean of every random start that prefers no
      pair; ``"random"`` are as many random links (the code).
    - ``projection``: the ``"nearest"`` feasible point (`thm::proj_cf`), or the clipped one ``"rescaled"`` to the number
      of links (the code; many-to-many only). From links, 100 steps to the nearest points move few of them; rescaled
      steps move most.
    """

    T: int = 15
    K: int = 3
    k: int = 3
    alpha: float = 0.2
    slices: int | None = 8
    slice_rows: int = 1000
    tau: float | None = None
    guaranteed: float = 0.2
    worst: int = 8
    iterations: int = 100
    candidates: int | None = None
    fitted: Fitted = "worst"
    start: Start = "links"
    projection: Projection = "nearest"

    def __post_init__(self) -> None:
        for name, value, least in (
            ("T", self.T, 1),
            ("K", self.K, 1),
            ("k", self.k, 2),
            ("slices", 1 if self.slices is None else self.slices, 1),
            ("slice_rows", self.slice_rows, 1),
            ("worst", self.worst, 1),
            ("iterations", self.iterations, 1),
        ):
            if value < least:
                raise UsageError(f"{name} = {value}: it must be at least {least}")
        if not 0.0 <= self.alpha < 1.0:
            raise UsageError(f"alpha = {self.alpha}: choosing takes a share in 0 … 1, and measuring needs the rest")
        if not 0.0 <= self.guaranteed <= 1.0:
            raise UsageError(f"guaranteed = {self.guaranteed}: a share lies in 0 … 1")
        if self.tau is not None and not 0.0 < self.tau <= 1.0:
            raise UsageError(f"tau = {self.tau}: the share of rows in a slice lies in 0 … 1")
        if self.candidates is not None and self.candidates < self.K:
            raise UsageError(f"candidates = {self.candidates}: at least K = {self.K} workloads must compete")
        for name, word, words in (
            ("fitted", self.fitted, get_args(Fitted)),
            ("start", self.start, get_args(Start)),
            ("projection", self.projection, get_args(Projection)),
        ):
            if word not in words:
                raise UsageError(f"{name} = {word!r} is not one of {', '.join(words)}; {nearest(word, words)}")

    def workloads(self, problem: LinkProblem) -> tuple[Workload, ...]:
        """All workloads that may be chosen; refuses settings that ask for more than there are."""
        if self.projection == "rescaled" and problem.kind != "many-to-many":
            raise UsageError(
                f"projection = 'rescaled' is for many-to-many relations and this one is {problem.kind}; use 'nearest'"
            )
        every = cross_workloads(list(problem.left), list(problem.right), k=self.k)
        if len(every) < self.K * self.T:
            raise UsageError(
                f"K T = {self.K} · {self.T} = {self.K * self.T} workloads are to be measured and there are "
                f"{len(every)} over k = {self.k} columns; lower T or K"
            )
        return every

    def learn(
        self,
        window: Window,
        problem: LinkProblem,
        *,
        rho: float,
        rng: np.random.Generator,
        progress: Callable[[str, float], None],
        degrees: Degrees = UNKNOWN,  # noqa: ARG002 - the paper's method knows no degrees
    ) -> LinkResult:
        r"""Run `alg::adapt_alg_l2` in the form of `alg::alg_sparse_large`, for exactly ``rho``.

        Cost (`thm::DP_guarantee`): with :math:`\epsilon_0 = \sqrt{2\rho / (K T)}` each choice costs
        :math:`\alpha \epsilon_0^2 / 2` and each measurement :math:`(1 - \alpha) \epsilon_0^2 / 2`. A round asks the
        window for its K choices and its K measurements together, T rounds add up to rho.

        Where the paper scores and measures frequencies, the window does so with counts, so no scale depends on the
        private number of links. Counts become frequencies by ``problem.links_measured`` afterwards.
        """
        every = self.workloads(problem)
        wiring = Wiring(problem, self, rng)
        purse = Purse(rho)
        rounds = self.T
        measured: list[NoisyMarginal] = []
        for done in range(rounds):
            progress("learning links", done / rounds)
            left = [w for w in every if w not in wiring.targets]
            chosen = self._choose(window, problem, wiring, left, purse, rng)
            last = done == rounds - 1
            share = purse.rest() if last else purse.take((1.0 - self.alpha) * rho / rounds)
            new = window.measure([w.columns for w in chosen], rho=share)
            measured.extend(new)
            wiring.observe(new)
            wiring.improve()
        return LinkResult(wiring.links, tuple(measured), rho)

    def _choose(
        self,
        window: Window,
        problem: LinkProblem,
        wiring: Wiring,
        left: Sequence[Workload],
        purse: Purse,
        rng: np.random.Generator,
    ) -> list[Workload]:
        """K workloads whose answers are far from the truth (`alg::exponential`); at random where alpha is 0."""
        if self.alpha == 0.0:
            return [left[i] for i in rng.choice(len(left), size=self.K, replace=False)]
        if self.candidates is not None and self.candidates < len(left):
            left = [left[i] for i in np.sort(rng.choice(len(left), size=self.candidates, replace=False))]
        scale = problem.links_measured / max(len(wiring.links), 1)
        options = [Candidate(w.columns, wiring.answers(w) * scale) for w in left]
        won = window.select(options, rho=purse.take(self.alpha * purse.rho / self.T), count=self.K)
        return [left[i] for i in won]

    def wire(
        self,
        problem: LinkProblem,
        measured: Sequence[NoisyMarginal],
        *,
        rng: np.random.Generator,
        degrees: Degrees = UNKNOWN,  # noqa: ARG002
    ) -> IntArray:
        """Link other rows, or the same ones anew, from what was measured: the rounds again without the choosing."""
        wiring = Wiring(problem, self, rng)
        for start in range(0, len(measured), self.K):
            wiring.observe(measured[start : start + self.K])
            wiring.improve()
        return wiring.links


class Wiring:
    """Links of a problem on their way: random at first, then rewired slice by slice towards noisy frequencies."""

    def __init__(self, problem: LinkProblem, settings: PGD, rng: np.random.Generator) -> None:
        self.problem = problem
        self.settings = settings
        self.links = random_links(problem, rng)
        self.targets: dict[Workload, FloatArray] = {}
        self._rng = rng

    def answers(self, workload: Workload) -> FloatArray:
        """Counts of the current links."""
        problem = self.problem
        counts = answers_from_links(workload, problem.left, problem.right, self.links, shape=problem.shape)
        return counts.astype(np.float64)

    def observe(self, measured: Sequence[NoisyMarginal]) -> None:
        """Take in noisy counts, as frequencies by the noisy number of links."""
        for marginal in measured:
            workload = split(marginal.columns, self.problem)
            self.targets[workload] = marginal.counts / self.problem.links_measured

    def improve(self) -> None:
        """One round of rewiring."""
        if self.problem.links == 0:
            return
        settings, problem = self.settings, self.problem
        if settings.slices is None:
            block = Block.of(problem, tuple(self.targets), links=problem.links)
            self.links = self._rewire(block, self.targets)
            return
        for _ in range(settings.slices):
            part = draw_slice(
                problem,
                self.links,
                left_rows=self._size(problem.left_rows),
                right_rows=self._size(problem.right_rows),
                guaranteed=settings.guaranteed,
                rng=self._rng,
            )
            if part.links:
                self._rewire_slice(part)

    def _size(self, rows: int) -> int:
        tau = self.settings.tau
        return min(rows, self.settings.slice_rows) if tau is None else max(int(tau * rows), 1)

    def _rewire_slice(self, part: Slice) -> None:
        """Re-learn the links inside one slice and put them back."""
        targets = self._fitted()
        block = Block.of(
            self.problem,
            tuple(targets),
            links=part.links,
            left_rows=part.left,
            right_rows=part.right,
            current=self._start(part),
        )
        new = self._rewire(block, targets)
        moved = np.stack([part.left[new[:, 0]], part.right[new[:, 1]]], axis=1)
        self.links = np.concatenate([self.links[~part.inside], moved])

    def _rewire(self, block: Block, targets: Mapping[Workload, FloatArray]) -> IntArray:
        settings = self.settings
        return rewire(
            block,
            targets,
            self.problem,
            iterations=settings.iterations,
            projection=settings.projection,
            rng=self._rng,
        )

    def _start(self, part: Slice) -> IntArray | None:
        """Links to start a slice from, as positions among its rows; None where every pair is to weigh the same."""
        if self.settings.start == "even":
            return None
        if self.settings.start == "random":
            return draw_links(self.problem, part, self._rng)
        inside = self.links[part.inside]
        return np.stack([np.searchsorted(part.left, inside[:, 0]), np.searchsorted(part.right, inside[:, 1])], axis=1)

    def _fitted(self) -> dict[Workload, FloatArray]:
        """The measured workloads to fit next: those that the current links answer worst, or some at random."""
        count, every = self.settings.worst, list(self.targets)
        if len(every) <= count:
            return self.targets
        if self.settings.fitted == "random":
            chosen = [every[i] for i in self._rng.choice(len(every), size=count, replace=False)]
        else:
            total = len(self.links)
            errors = {w: float(np.abs(self.answers(w) / total - a).sum()) for w, a in self.targets.items()}
            chosen = sorted(every, key=lambda w: -errors[w])[:count]
        return {w: self.targets[w] for w in chosen}


def split(columns: Columns, problem: LinkProblem) -> Workload:
    """The workload that a clique of the window is."""
    return Workload(tuple(c for c in columns if c in problem.left), tuple(c for c in columns if c in problem.right))


def feasible_set(block: Block, problem: LinkProblem, projection: Projection = "nearest") -> FeasibleSet:
    """What the kind of relation allows in ``block``, and how descent comes back to it."""
    if problem.kind == "one-to-many":
        return RowSimplices.of(block)
    if problem.kind == "one-to-one":
        return MatchingPolytope.of(block)
    capped = CappedSimplex(block.multiplicity, block.links)
    return capped if projection == "nearest" else RescaledSimplex(capped)


def solve(
    block: Block,
    targets: Mapping[Workload, FloatArray],
    problem: LinkProblem,
    *,
    iterations: int,
    tolerance: float = 0.0,
    accelerate: bool = False,
    projection: Projection = "nearest",
) -> Relaxed:
    """The relaxed problem of one block (`alg::relaxed_optimization`): frequencies in, weighted links out."""
    operator = LinkOperator(block.left, block.right, tuple(targets), multiplicity=block.multiplicity)
    return descend(
        operator,
        operator.stack(targets),
        feasible_set(block, problem, projection),
        links=block.links,
        start=block.start,
        iterations=iterations,
        tolerance=tolerance,
        accelerate=accelerate,
    )


def rewire(
    block: Block,
    targets: Mapping[Workload, FloatArray],
    problem: LinkProblem,
    *,
    iterations: int,
    rng: np.random.Generator,
    projection: Projection = "nearest",
) -> IntArray:
    """Fit a block to ``targets`` and round: positions inside the block, exactly ``block.links`` pairs."""
    b = solve(block, targets, problem, iterations=iterations, projection=projection).value
    if problem.kind == "one-to-many":
        return round_one_to_many(b, block, rng)
    if problem.kind == "one-to-one":
        return round_one_to_one(b, block, rng)
    return round_many_to_many(b, block, rng)
