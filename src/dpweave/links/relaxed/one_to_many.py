"""One-to-many: each left row (child) has exactly one right row (parent) (paper, `apx::one-to-many`).

Parents may be childless; no child is an orphan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpweave.links.relaxed.exact_rounding import categorical_round
from dpweave.links.relaxed.projections import project_rows_simplex

if TYPE_CHECKING:
    from dpweave.arrays import FloatArray, IntArray
    from dpweave.links.relaxed.dense_block import Block


@dataclass(frozen=True)
class RowSimplices:
    r""":math:`\Omega = \{b \ge 0, \mathbf 1^T b_i = 1 \text{ for each left row } i\}` (`eq::relaxed_opt_one-to-many`).

    ``weights[s, t]`` is the number of right rows of type t that a left row of type s may have as its parent.
    """

    weights: FloatArray

    @classmethod
    def of(cls, block: Block) -> RowSimplices:
        """The rows of ``block``."""
        return cls(block.multiplicity / block.left.multiplicity[:, None])

    def project(self, b: FloatArray, near: FloatArray | None = None) -> FloatArray:
        """Project each row by itself."""
        return project_rows_simplex(b, weights=self.weights, near=near)

    def extreme(self, gradient: FloatArray) -> FloatArray:
        """Each row on its cheapest parent."""
        best = np.argmin(np.where(self.weights > 0.0, gradient, np.inf), axis=1)[:, None]
        x = np.zeros(gradient.shape)
        np.put_along_axis(x, best, 1.0 / np.take_along_axis(self.weights, best, axis=1), axis=1)
        return x

    def centre(self) -> FloatArray:
        """Every parent alike."""
        return np.where(self.weights > 0.0, 1.0 / self.weights.sum(axis=1, keepdims=True), 0.0)


def round_one_to_many(b: FloatArray, block: Block, rng: np.random.Generator) -> IntArray:
    """One parent for each left row: a type by `alg::categoricalround`, then any row of that type but itself.

    This is the paper's rounding of the expanded rows: given the type, its rows have the same probability.
    """
    share = RowSimplices.of(block).weights * b
    children = np.arange(block.left.rows)
    kind = categorical_round(share[block.left.of_row], rng)
    order, starts = block.right.members
    size = block.right.multiplicity[kind]
    if block.twin is None:
        at = rng.integers(0, size)
    else:
        place = np.empty(block.right.rows, dtype=np.int64)
        place[order] = np.arange(block.right.rows)
        barred = (block.twin >= 0) & (block.right.of_row[block.twin] == kind)
        at = rng.integers(0, size - barred)
        at += barred & (at >= np.where(barred, place[block.twin] - starts[kind], size))
    return np.stack([children, order[starts[kind] + at]], axis=1)
