r"""Links exchanged until their counts are those of the fit.

Where nearly every row is of a type of its own, rounding gives each row one whole link out of many small expectations,
and what the last rows of a slice get is what is left over: associations come out weaker than they were learned. Here
two links exchange their right ends, (i, a) and (j, b) become (i, b) and (j, a). That keeps every degree, and with it
every count over columns of one side alone. For each learned clique S the fit says how links spread over its cells;
raked to the counts :math:`r` and :math:`c` that degrees dictate, which keeps its odds ratios, these are the targets
:math:`t_S`. The loss is

.. math:: F = \sum_S \frac{\lVert h_S - t_S \rVert^2}{\sigma_S^2},

with :math:`h_S` the counts of the links and :math:`\sigma_S` the noise with which S was
measured: the distance that the fit itself minimises.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from dpweave.links.wiring.constraints import NotItself
from dpweave.links.wiring.exchange import Effort, exchange
from dpweave.links.wiring.wire import rake
from dpweave.measure.cross_workloads import cells

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.links.link_method import LinkProblem
    from dpweave.links.wiring.exchange import Exchanges
    from dpweave.measure.cross_workloads import Workload

PAIRS = 1 << 15
"""Exchanges that a round looks at."""
_EFFORT = Effort(rounds=60, patience=3, enough=0.005)
"""A round that lowers F by less than this share of it is the last but few."""
MOST_TABLES = 40
"""Cliques that are looked at: those whose fit is furthest off chance, in units of their noise."""


@dataclass(frozen=True)
class _Table:
    """One clique: where the left end of every link and every right row lie on its axes, and the counts it should have.

    ``left`` is the first cell of a row of the table, so that ``left + right`` is a cell; left ends stay where they are.
    """

    left: IntArray
    right: IntArray
    target: FloatArray
    precision: float

    def counts(self, ends: IntArray) -> FloatArray:
        """How many links there are per cell, if they lead to the right rows ``ends``."""
        return np.bincount(self.left + self.right[ends], minlength=len(self.target)).astype(np.float64)

    def change(self, off: FloatArray, some: Exchanges) -> FloatArray:
        """By how much its part of F changes where two links exchange ends, each pair alone."""
        u, w, v, x = self.left[some.one], self.left[some.two], self.right[some.ends], self.right[some.others]
        change = 4 + 2 * (off[u + x] + off[w + v] - off[u + v] - off[w + x])
        return self.precision * np.where((u != w) & (v != x), change, 0.0)

    def moved(self, off: FloatArray, some: Exchanges) -> FloatArray:
        """How far counts are off after links exchanged ends."""
        u, w, v, x = self.left[some.one], self.left[some.two], self.right[some.ends], self.right[some.others]
        come, gone = (np.concatenate(cells_) for cells_ in ((u + x, w + v), (u + v, w + x)))
        return off + (np.bincount(come, minlength=len(off)) - np.bincount(gone, minlength=len(off)))


@dataclass(frozen=True)
class CliqueCounts:
    """Counts over the cells of some cliques, and how far ``off`` their targets they are."""

    tables: tuple[_Table, ...]
    off: tuple[FloatArray, ...]

    @cached_property
    def loss(self) -> float:
        """The distance F."""
        return sum(t.precision * float(o @ o) for t, o in zip(self.tables, self.off, strict=True))

    def propose(self, ends: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Draw pairs of links: any, or, of many, two runs of neighbours, which are in random order."""
        if len(ends) < 4 * PAIRS:
            some = rng.permutation(len(ends))[: 2 * min(PAIRS, len(ends) // 2)]
            return some[0::2], some[1::2]
        first = int(rng.integers(0, len(ends) - 2 * PAIRS + 1))
        second = int(rng.integers(first + PAIRS, len(ends) - PAIRS + 1))
        return np.arange(first, first + PAIRS), np.arange(second, second + PAIRS)

    def change(self, some: Exchanges) -> FloatArray:
        """By how much F changes."""
        change = np.zeros(len(some.one))
        for t, o in zip(self.tables, self.off, strict=True):
            change += t.change(o, some)
        return change

    def conflicts(self, some: Exchanges) -> None:  # noqa: ARG002
        """None: nearly all exchanges change the same few cells, and many can be made all the same."""
        return

    def most(self, some: Exchanges) -> int:
        """All of them."""
        return len(some.one)

    def after(self, some: Exchanges) -> tuple[Self, float]:
        """Count again where links have moved."""
        moved = replace(self, off=tuple(t.moved(o, some) for t, o in zip(self.tables, self.off, strict=True)))
        return moved, moved.loss - self.loss


class _Joint(NamedTuple):
    """How a fit spreads links over the cells of a clique, left by right, and how precisely that was measured."""

    workload: Workload
    frequencies: FloatArray
    precision: float

    @property
    def chance(self) -> FloatArray:
        return np.asarray(np.multiply.outer(self.frequencies.sum(axis=1), self.frequencies.sum(axis=0)))

    def off_chance(self) -> float:
        """How far it is off chance, in units of the noise."""
        return self.precision * float(((self.frequencies - self.chance) ** 2).sum())

    def table(self, pairs: IntArray, problem: LinkProblem) -> _Table:
        """State what the links ``pairs`` should come to: raked to what degrees dictate, by the odds beyond chance."""
        u = cells(problem.left, self.workload.left, problem.shape, rows=problem.left_rows)[pairs[:, 0]]
        v = cells(problem.right, self.workload.right, problem.shape, rows=problem.right_rows)
        rows, columns = (
            np.bincount(at, minlength=size).astype(np.float64)
            for at, size in zip((u, v[pairs[:, 1]]), self.frequencies.shape, strict=True)
        )
        odds = np.where(self.chance > 0, self.frequencies / np.maximum(self.chance, 1e-300), 1.0)
        return _Table(u * len(columns), v, rake(np.maximum(odds, 1e-12), rows, columns).ravel(), self.precision)


def _joint(workload: Workload, fitted: FloatArray, precision: float, problem: LinkProblem) -> _Joint:
    height = int(np.prod([problem.shape[c] for c in workload.left]))
    return _Joint(workload, fitted.reshape(height, -1), precision)


def exchange_for_counts(
    pairs: IntArray,
    problem: LinkProblem,
    fitted: Mapping[Workload, tuple[FloatArray, float]],
    *,
    rng: np.random.Generator,
) -> IntArray:
    """Return links with the same degrees whose counts are nearer to what was ``fitted``.

    That is, for every clique, the frequencies of its cells and the precision with which they were measured.
    For relations in which a left row has at most one link, so that no exchange can repeat a pair.
    """
    across = [_joint(w, *found, problem) for w, found in fitted.items() if w.left and w.right]
    strongest = sorted(across, key=_Joint.off_chance, reverse=True)[:MOST_TABLES]
    if not strongest or len(pairs) < 2:
        return pairs
    # In random order, links next to each other are any two, and memory is read from front to back.
    order = rng.permutation(len(pairs))
    pairs = pairs[order]
    tables = tuple(joint.table(pairs, problem) for joint in strongest)
    counts = CliqueCounts(tables, tuple(t.counts(pairs[:, 1]) - t.target for t in tables))
    keep = [NotItself(pairs[:, 0])] if problem.bars_self else []
    found = exchange(pairs[:, 1], keep, counts, effort=_EFFORT, rng=rng)
    made = np.empty_like(pairs)
    made[order] = np.stack([pairs[:, 0], found.ends], axis=1)
    return made
