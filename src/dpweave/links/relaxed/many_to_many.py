"""Many-to-many: any pairs of rows, none twice, an exact number in all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpweave.errors import UsageError
from dpweave.links.relaxed.dense_block import Block, keep_links, place_links
from dpweave.links.relaxed.exact_rounding import cell_counts
from dpweave.links.relaxed.projections import project_capped_simplex, rescale_capped_simplex

if TYPE_CHECKING:
    from dpweave.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class CappedSimplex:
    r""":math:`\Omega = \{0 \le b \le 1, \mathbf 1^T b = m\}` (`eq::relaxed_opt`), over pairs of types."""

    multiplicity: FloatArray
    links: float

    def __post_init__(self) -> None:
        if not 0 <= self.links <= self.multiplicity.sum():
            raise UsageError(f"{self.links} links do not fit on {self.multiplicity.sum():g} pairs")

    def project(self, b: FloatArray, near: FloatArray | None = None) -> FloatArray:
        """`thm::proj_cf`, weighted."""
        return project_capped_simplex(b, total=self.links, weights=self.multiplicity, near=near)

    def extreme(self, gradient: FloatArray) -> FloatArray:
        """Fill pairs up in the order of the gradient until the links are used up."""
        order = np.argsort(gradient, axis=None, kind="stable")
        weight = self.multiplicity.ravel()[order]
        room = np.clip(self.links - (np.cumsum(weight) - weight), 0.0, weight)
        x = np.zeros(gradient.size)
        x[order] = np.divide(room, weight, out=np.zeros_like(room), where=weight > 0.0)
        return x.reshape(gradient.shape)

    def centre(self) -> FloatArray:
        """Every pair alike."""
        return np.full(self.multiplicity.shape, self.links / self.multiplicity.sum())


@dataclass(frozen=True)
class RescaledSimplex:
    """The same set with what the authors' code does in place of the projection (:func:`rescale_capped_simplex`)."""

    exact: CappedSimplex

    def project(self, b: FloatArray, near: FloatArray | None = None) -> FloatArray:  # noqa: ARG002
        """A point of the set, not the nearest."""
        return rescale_capped_simplex(b, total=self.exact.links, weights=self.exact.multiplicity)

    def extreme(self, gradient: FloatArray) -> FloatArray:
        """As for the set itself."""
        return self.exact.extreme(gradient)

    def centre(self) -> FloatArray:
        """As for the set itself."""
        return self.exact.centre()


def round_many_to_many(b: FloatArray, block: Block, rng: np.random.Generator) -> IntArray:
    """Exactly ``block.links`` distinct pairs, each with its probability ``b`` (`alg::rec_ubs`, weighted form)."""
    counts = cell_counts(b, block.multiplicity, rng)
    if block.current is None:
        return place_links(counts, block, rng)
    return np.concatenate([keep_links(counts[1], block, block.current, rng), place_links(counts[0], block, rng)])
