"""One-to-one: a matching (paper, `subsec::setup`: the kind of relationship is preserved exactly)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpweave.links.link_method import without_self_pairs
from dpweave.links.relaxed.exact_rounding import cell_counts
from dpweave.links.relaxed.projections import project_capped_simplex, project_rows_simplex

if TYPE_CHECKING:
    from dpweave.arrays import FloatArray, IntArray
    from dpweave.links.relaxed.dense_block import Block


@dataclass(frozen=True)
class MatchingPolytope:
    r""":math:`\Omega = \{b \ge 0, \mathbf 1^T b = m, \text{ rows and columns add up to at most } 1\}`.

    ``sweeps`` of Dykstra's algorithm alternate between rows, columns and the total, so rows and columns may be passed
    by a little; rounding keeps them exactly.
    """

    multiplicity: FloatArray
    left: FloatArray
    right: FloatArray
    links: float
    sweeps: int = 6

    @classmethod
    def of(cls, block: Block) -> MatchingPolytope:
        """The matchings of ``block``."""
        rows, others = block.left.multiplicity.astype(np.float64), block.right.multiplicity.astype(np.float64)
        return cls(block.multiplicity, rows, others, float(block.links))

    def project(self, b: FloatArray, near: FloatArray | None = None) -> FloatArray:  # noqa: ARG002
        """Nearest matching, by Dykstra's alternating projections."""
        x = b
        memory = [np.zeros_like(b) for _ in range(3)]
        for _ in range(self.sweeps):
            for i, onto in enumerate((self._rows, self._columns, self._total)):
                before = x + memory[i]
                x = onto(before)
                memory[i] = before - x
            if self._excess(x) < 1e-6:
                break
        return x

    def _excess(self, b: FloatArray) -> float:
        mass = b * self.multiplicity
        return float(max((mass.sum(axis=1) / self.left).max(), (mass.sum(axis=0) / self.right).max()) - 1.0)

    def _rows(self, b: FloatArray) -> FloatArray:
        return _at_most_one(b, self.multiplicity / self.left[:, None])

    def _columns(self, b: FloatArray) -> FloatArray:
        return _at_most_one(b.T, self.multiplicity.T / self.right[:, None]).T

    def _total(self, b: FloatArray) -> FloatArray:
        return project_capped_simplex(b, total=self.links, weights=self.multiplicity)

    def extreme(self, gradient: FloatArray) -> FloatArray:
        """Each left row on its cheapest partner, cheapest rows first; columns are let go: a larger set."""
        cost = np.where(self.multiplicity > 0.0, gradient, np.inf)
        best = np.argmin(cost, axis=1)
        rows = np.arange(len(best))
        order = np.argsort(cost[rows, best], kind="stable")
        used = np.zeros(len(best))
        used[order] = np.clip(self.links - (np.cumsum(self.left[order]) - self.left[order]), 0.0, self.left[order])
        x = np.zeros(gradient.shape)
        x[rows, best] = used / np.maximum(self.multiplicity[rows, best], 1.0)
        return x

    def centre(self) -> FloatArray:
        """Every pair alike, which respects rows and columns up to the pairs that may not be linked."""
        return np.full(self.multiplicity.shape, self.links / self.multiplicity.sum())


def _at_most_one(b: FloatArray, weights: FloatArray) -> FloatArray:
    """Project rows onto non-negative vectors of weighted sum at most 1."""
    x = np.where(weights > 0.0, np.maximum(b, 0.0), 0.0)
    over = (weights * x).sum(axis=1) > 1.0
    if over.any():
        x[over] = project_rows_simplex(b[over], weights=weights[over])
    return x


def round_one_to_one(b: FloatArray, block: Block, rng: np.random.Generator) -> IntArray:
    """A matching of exactly ``block.links`` pairs whose types follow ``b``.

    Links are drawn over pairs of types without bias; types that got more links than rows give some back, chosen at
    random, and those links join rows that are still free. Rows of one type are dealt out in random order.
    """
    counts = cell_counts(b, block.multiplicity, rng)
    flat = np.repeat(np.arange(counts.size), counts.ravel())
    s, t = np.divmod(rng.permutation(flat), counts.shape[1])
    keep = _ranks(s) < block.left.multiplicity[s]
    s, t = s[keep], t[keep]
    keep = _ranks(t) < block.right.multiplicity[t]
    s, t = s[keep], t[keep]
    left, right = _deal(s, block.left.members, rng), _deal(t, block.right.members, rng)
    missing = block.links - len(s)
    left = np.concatenate([left, rng.permutation(np.setdiff1d(np.arange(block.left.rows), left))[:missing]])
    right = np.concatenate([right, rng.permutation(np.setdiff1d(np.arange(block.right.rows), right))[:missing]])
    if block.twin is not None:
        right = without_self_pairs(left, right, block.right.rows, rng, twin=block.twin)
    return np.stack([left, right], axis=1)


def _ranks(kind: IntArray) -> IntArray:
    """How many earlier entries are of the same kind."""
    order = np.argsort(kind, kind="stable")
    ordered = kind[order]
    first = np.searchsorted(ordered, ordered, side="left")
    rank = np.empty(len(kind), dtype=np.int64)
    rank[order] = np.arange(len(kind)) - first
    return rank


def _deal(kind: IntArray, members: tuple[IntArray, IntArray], rng: np.random.Generator) -> IntArray:
    """A different row of each kind asked for."""
    order, starts = members
    shuffled = rng.permutation(len(order))
    of_kind = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    dealt = order[shuffled[np.argsort(of_kind[shuffled], kind="stable")]]
    rows: IntArray = dealt[starts[kind] + _ranks(kind)]
    return rows
