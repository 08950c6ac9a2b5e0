"""The paper's learner: choose workloads, measure them, fit the links to them by projected gradient descent, repeat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpweave.errors import UsageError
from dpweave.links.base import LinkProblem, LinkResult, random_links
from dpweave.links.block import Block
from dpweave.links.degrees import UNKNOWN, Degrees
from dpweave.links.descent import FeasibleSet, Relaxed, descend
from dpweave.links.many_to_many import CappedSimplex, round_many_to_many
from dpweave.links.one_to_many import RowSimplices, round_one_to_many
from dpweave.links.one_to_one import MatchingPolytope, round_one_to_one
from dpweave.links.slicing import Slice, draw_slice
from dpweave.links.types import LinkOperator
from dpweave.links.workload import Workload, answers_from_links, cross_workloads
from dpweave.privacy.window import Candidate, Columns, FloatArray, IntArray, NoisyMarginal, Window
from dpweave.tables.base import Purse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True)
class PGD:
    r"""Settings of `alg::alg_sparse_large`, with the paper's defaults for MovieLens (`sec::experiments`).

    Each of ``T`` rounds chooses ``K`` new workloads over ``k`` columns, for the share ``alpha`` of its budget, measures
    them for the rest, and re-learns ``slices`` blocks of ``slice_rows`` × ``slice_rows`` rows, of which the share
    ``guaranteed`` have links in the block. A slice is fitted to the ``worst`` measured workloads by ``iterations``
    steps. ``tau`` gives the size of a slice as a share of the rows instead. ``slices=None`` fits all rows and all
    measured workloads at once, which row types often make cheap. ``candidates`` bounds how many workloads compete in
    one choice, drawn at random (the paper's Subsample); None lets all compete.
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

    def workloads(self, problem: LinkProblem) -> tuple[Workload, ...]:
        """All workloads that may be chosen; refuses settings that ask for more than there are."""
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
            self.links = rewire(block, self.targets, problem, iterations=settings.iterations, rng=self._rng)
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
        worst = self._worst()
        block = Block.of(
            self.problem,
            tuple(worst),
            links=part.links,
            left_rows=part.left,
            right_rows=part.right,
            current=self._positions(part),
        )
        new = rewire(block, worst, self.problem, iterations=self.settings.iterations, rng=self._rng)
        moved = np.stack([part.left[new[:, 0]], part.right[new[:, 1]]], axis=1)
        self.links = np.concatenate([self.links[~part.inside], moved])

    def _positions(self, part: Slice) -> IntArray:
        """The links inside a slice, as positions among its rows."""
        inside = self.links[part.inside]
        return np.stack([np.searchsorted(part.left, inside[:, 0]), np.searchsorted(part.right, inside[:, 1])], axis=1)

    def _worst(self) -> dict[Workload, FloatArray]:
        """The measured workloads that the current links answer worst."""
        if len(self.targets) <= self.settings.worst:
            return self.targets
        total = len(self.links)
        errors = {w: float(np.abs(self.answers(w) / total - a).sum()) for w, a in self.targets.items()}
        ranked = sorted(errors, key=lambda w: -errors[w])[: self.settings.worst]
        return {w: self.targets[w] for w in ranked}


def split(columns: Columns, problem: LinkProblem) -> Workload:
    """The workload that a clique of the window is."""
    return Workload(tuple(c for c in columns if c in problem.left), tuple(c for c in columns if c in problem.right))


def feasible_set(block: Block, problem: LinkProblem) -> FeasibleSet:
    """What the kind of relation allows in ``block``."""
    if problem.kind == "one-to-many":
        return RowSimplices.of(block)
    if problem.kind == "one-to-one":
        return MatchingPolytope.of(block)
    return CappedSimplex(block.multiplicity, block.links)


def solve(
    block: Block,
    targets: Mapping[Workload, FloatArray],
    problem: LinkProblem,
    *,
    iterations: int,
    tolerance: float = 0.0,
    accelerate: bool = False,
) -> Relaxed:
    """The relaxed problem of one block (`alg::relaxed_optimization`): frequencies in, weighted links out."""
    operator = LinkOperator(block.left, block.right, tuple(targets), multiplicity=block.multiplicity)
    return descend(
        operator,
        operator.stack(targets),
        feasible_set(block, problem),
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
) -> IntArray:
    """Fit a block to ``targets`` and round: positions inside the block, exactly ``block.links`` pairs."""
    b = solve(block, targets, problem, iterations=iterations).value
    if problem.kind == "one-to-many":
        return round_one_to_many(b, block, rng)
    if problem.kind == "one-to-one":
        return round_one_to_one(b, block, rng)
    return round_many_to_many(b, block, rng)
