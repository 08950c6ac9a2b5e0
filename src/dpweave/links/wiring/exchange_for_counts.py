r"""Links exchanged until their counts are those of the fit.

Where nearly every row is of a type of its own, rounding gives each row one whole link out of many small expectations,
and what the last rows of a slice get is what is left over: leanings come out weaker than they were learned. Here two
links exchange their right ends, (i, a) and (j, b) become (i, b) and (j, a). That keeps every degree, and with it every
count over columns of one side alone. For each learned clique S the fit says how links spread over its cells; raked to
the counts :math:`r` and :math:`c` that degrees dictate, which keeps its odds ratios, these are the targets :math:`t_S`.
An exchange is made if it lowers

.. math:: F = \sum_S \frac{\lVert h_S - t_S \rVert^2}{\sigma_S^2},

with :math:`h_S` the counts of the links and :math:`\sigma_S` the noise with which S was
measured: the distance that the fit itself minimises. F only falls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpweave.links.wiring.wire import rake
from dpweave.measure.cross_workloads import cells

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.links.link_method import LinkProblem
    from dpweave.measure.cross_workloads import Workload

ROUNDS = 60
PAIRS = 1 << 15
"""Exchanges that a round looks at."""
ENOUGH = 0.005
"""A round that lowers F by less than this share of it is the last but few."""
PATIENCE = 3
MOST_TABLES = 40
"""Cliques that are looked at: those whose fit leans most, in units of their noise."""


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

    def change(self, off: FloatArray, some: _Exchanges) -> FloatArray:
        """By how much its part of F changes where two links exchange ends, each pair alone."""
        u, w, v, x = self.left[some.one], self.left[some.two], self.right[some.ends], self.right[some.others]
        change = 4 + 2 * (off[u + x] + off[w + v] - off[u + v] - off[w + x])
        return self.precision * np.where((u != w) & (v != x), change, 0.0)

    def moved(self, off: FloatArray, some: _Exchanges) -> FloatArray:
        """How far counts are off after links exchanged ends."""
        off = off.copy()
        u, w, v, x = self.left[some.one], self.left[some.two], self.right[some.ends], self.right[some.others]
        np.add.at(off, np.concatenate([u + x, w + v]), 1.0)
        np.subtract.at(off, np.concatenate([u + v, w + x]), 1.0)
        return off


class _Exchanges(NamedTuple):
    """Links ``one`` and ``two`` that may exchange the ends they have now."""

    one: IntArray
    two: IntArray
    ends: IntArray
    others: IntArray


class _Joint(NamedTuple):
    """How a fit spreads links over the cells of a clique, left by right, and how precisely that was measured."""

    workload: Workload
    frequencies: FloatArray
    precision: float

    @property
    def chance(self) -> FloatArray:
        return np.asarray(np.multiply.outer(self.frequencies.sum(axis=1), self.frequencies.sum(axis=0)))

    def leaning(self) -> float:
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


def polish(
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
    most = sorted(across, key=_Joint.leaning, reverse=True)[:MOST_TABLES]
    if not most or len(pairs) < 2:
        return pairs
    order = rng.permutation(
        len(pairs)
    )  # so that links next to each other are any two, and memory is read from front to back
    pairs = pairs[order]
    tables = [joint.table(pairs, problem) for joint in most]
    starts, ends = pairs[:, 0], pairs[:, 1].copy()
    off = [t.counts(ends) - t.target for t in tables]
    score = _distance(tables, off)
    stalled, bold = 0, 1.0
    for _ in range(ROUNDS):
        made = _exchanges(starts, ends, tables, off, bold, rng, bars_self=problem.bars_self)
        if not len(made.ends):
            break
        tried = [t.moved(o, made) for t, o in zip(tables, off, strict=True)]
        reached = _distance(tables, tried)
        stalled = 0 if reached < (1 - ENOUGH) * score else stalled + 1
        if reached < score:
            ends[made.one], ends[made.two] = made.others, made.ends
            off, score = tried, reached
        else:
            bold /= 2
        if stalled > PATIENCE:
            break
    polished = np.empty_like(pairs)
    polished[order] = np.stack([starts, ends], axis=1)
    return polished


def _distance(tables: list[_Table], off: list[FloatArray]) -> float:
    return sum(t.precision * float(o @ o) for t, o in zip(tables, off, strict=True))


def _exchanges(
    starts: IntArray,
    ends: IntArray,
    tables: list[_Table],
    off: list[FloatArray],
    bold: float,
    rng: np.random.Generator,
    *,
    bars_self: bool,
) -> _Exchanges:
    """Find the exchanges of one round that lower F most.

    Gains are those of one exchange made alone. To keep many at once from overshooting, a round makes an eighth of those
    that the distance left calls for.
    """
    some = _drawn(ends, rng)
    change = np.zeros(len(some.ends))
    for t, o in zip(tables, off, strict=True):
        change += t.change(o, some)
    if bars_self:
        change[(starts[some.one] == some.others) | (starts[some.two] == some.ends)] = 0.0
    wrong = sum(t.precision * float(np.abs(o).sum()) for t, o in zip(tables, off, strict=True))
    most = max(1, int(bold * wrong / (8 * sum(t.precision for t in tables))))
    chosen = np.argsort(change, kind="stable")[:most]
    chosen = chosen[change[chosen] < 0]
    return _Exchanges(some.one[chosen], some.two[chosen], some.ends[chosen], some.others[chosen])


def _drawn(ends: IntArray, rng: np.random.Generator) -> _Exchanges:
    """Draw pairs of links: any, or, of many, two runs of neighbours, which are in random order."""
    if len(ends) < 4 * PAIRS:
        some = rng.permutation(len(ends))[: 2 * min(PAIRS, len(ends) // 2)]
        one, two = some[0::2], some[1::2]
    else:
        first = int(rng.integers(0, len(ends) - 2 * PAIRS + 1))
        second = int(rng.integers(first + PAIRS, len(ends) - PAIRS + 1))
        one, two = np.arange(first, first + PAIRS), np.arange(second, second + PAIRS)
    return _Exchanges(one, two, ends[one], ends[two])
