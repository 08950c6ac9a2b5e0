r"""Links exchanged until their counts are those of the fit.

Where nearly every row is of a type of its own, rounding gives each row one whole link out of many small expectations, and
what the last rows of a slice get is what is left over: leanings come out weaker than they were learned. Here two
links exchange their right ends, (i, a) and (j, b) become (i, b) and (j, a). That keeps every degree, and with it every
count over columns of one side alone. For each learned clique S the fit says how links spread over its cells; raked to the
counts :math:`r` and :math:`c` that degrees dictate, which keeps its odds ratios, these are the targets :math:`t_S`. An
exchange is made if it lowers

.. math:: F = \sum_S \frac{\lVert h_S - t_S \rVert^2}{\sigma_S^2},

with :math:`h_S` the counts of the links and :math:`\sigma_S` the noise with which S was measured: the distance that the fit
itself minimises. F only falls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpweave.links.wiring import rake
from dpweave.links.workload import cells

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.links.base import LinkProblem
    from dpweave.links.workload import Workload
    from dpweave.privacy.window import FloatArray, IntArray

ROUNDS = 60
PAIRS = 1 << 15
"""Exchanges that a round looks at."""
ENOUGH = 0.005
"""A round that lowers F by less than this share of it is the last but few."""
PATIENCE = 3


@dataclass(frozen=True)
class _Table:
    """One clique: the cell of every left and right row on its axes, and the counts it should have."""

    u: IntArray
    v: IntArray
    target: FloatArray
    precision: float

    def counts(self, pairs: IntArray) -> FloatArray:
        """How many links there are per cell."""
        flat = self.u[pairs[:, 0]] * self.target.shape[1] + self.v[pairs[:, 1]]
        return np.bincount(flat, minlength=self.target.size).reshape(self.target.shape).astype(np.float64)


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
    tables = [_table(w, *found, pairs, problem) for w, found in fitted.items() if w.left and w.right]
    if not tables or len(pairs) < 2:
        return pairs
    best, score = pairs, _distance(tables, pairs)
    stalled, bold = 0, 1.0
    for _ in range(ROUNDS):
        tried = _exchanged(best, tables, problem, bold, rng)
        if tried is None:
            break
        reached = _distance(tables, tried)
        stalled = 0 if reached < (1 - ENOUGH) * score else stalled + 1
        if reached < score:
            best, score = tried, reached
        else:
            bold /= 2
        if stalled > PATIENCE:
            break
    return best


def _table(workload: Workload, fitted: FloatArray, precision: float, pairs: IntArray, problem: LinkProblem) -> _Table:
    u = cells(problem.left, workload.left, problem.shape, rows=problem.left_rows)
    v = cells(problem.right, workload.right, problem.shape, rows=problem.right_rows)
    joint = fitted.reshape(int(np.prod([problem.shape[c] for c in workload.left])), -1)
    rows = np.bincount(u[pairs[:, 0]], minlength=joint.shape[0]).astype(np.float64)
    columns_ = np.bincount(v[pairs[:, 1]], minlength=joint.shape[1]).astype(np.float64)
    # Weights are the odds beyond the margins of the fit itself.
    margins = np.multiply.outer(joint.sum(axis=1), joint.sum(axis=0))
    odds = np.where(margins > 0, joint / np.maximum(margins, 1e-300), 1.0)
    return _Table(u, v, rake(np.maximum(odds, 1e-12), rows, columns_), precision)


def _distance(tables: list[_Table], pairs: IntArray) -> float:
    return sum(t.precision * float(((t.counts(pairs) - t.target) ** 2).sum()) for t in tables)


def _exchanged(
    pairs: IntArray, tables: list[_Table], problem: LinkProblem, bold: float, rng: np.random.Generator
) -> IntArray | None:
    """Make the exchanges of one round that lower F most; None if there are none.

    Gains are those of one exchange made alone. To keep many at once from overshooting, a round makes an eighth of those
    that the distance left calls for.
    """
    some = rng.permutation(len(pairs))[: 2 * min(PAIRS, len(pairs) // 2)]
    one, two = some[0::2], some[1::2]
    change = np.zeros(len(one))
    wrong = 0.0
    for t in tables:
        off = t.counts(pairs) - t.target
        wrong += t.precision * float(np.abs(off).sum())
        more, less = t.precision * (1 + 2 * off), t.precision * (1 - 2 * off)
        u, w = t.u[pairs[one, 0]], t.u[pairs[two, 0]]
        v, x = t.v[pairs[one, 1]], t.v[pairs[two, 1]]
        change += np.where((u != w) & (v != x), more[u, x] + more[w, v] + less[u, v] + less[w, x], 0.0)
    if problem.bars_self:
        change[(pairs[one, 0] == pairs[two, 1]) | (pairs[two, 0] == pairs[one, 1])] = 0.0
    most = max(1, int(bold * wrong / (8 * sum(t.precision for t in tables))))
    chosen = np.argsort(change, kind="stable")[:most]
    chosen = chosen[change[chosen] < 0]
    if not len(chosen):
        return None
    made = pairs.copy()
    made[one[chosen], 1], made[two[chosen], 1] = pairs[two[chosen], 1], pairs[one[chosen], 1]
    return made
