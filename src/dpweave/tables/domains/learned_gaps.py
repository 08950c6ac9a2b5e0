"""How far rows of one owner are from the one before: buckets from public limits, and what their noisy counts say."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen
from dpweave.links.relaxed.projections import project_capped_simplex
from dpweave.measure.estimates import estimates
from dpweave.measure.per_unit.sibling_moments import RARE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.privacy.window import Noisy


def gap_edges(span: int) -> tuple[int, ...]:
    """Edges of buckets for gaps of whole steps, from none to a ``span``; each is wider than the one before.

    >>> gap_edges(30)
    (0, 1, 2, 3, 4, 5, 7, 9, 12, 15, 19, 24, 30, 31)
    """
    edges = [0, 1]
    while edges[-1] < span:
        edges.append(min(max(math.ceil(edges[-1] * chosen.GROWTH), edges[-1] + 1), span))
    return (*edges, span + 1) if edges[-1] <= span else tuple(edges)


@dataclass(frozen=True)
class Gaps:
    """How far rows of one owner are from the one before: shares of buckets, and of first rows."""

    edges: tuple[int, ...]
    counts: FloatArray
    """Noisy counts of the buckets, and last of rows without one before them."""
    sigma: float
    groups: tuple[int, ...]
    """Edges of the groups that moments tell apart, some of all edges."""

    @classmethod
    def of(cls, answers: Sequence[Noisy], name: str, edges: tuple[int, ...]) -> Gaps | None:
        """Read all that was answered about gaps, each by the inverse of its variance. Groups are those of the first."""
        read = [estimates(noisy, {name: len(edges)}, lambda _: np.array(0.0))[0].marginal for noisy in answers]
        if not read:
            return None
        weights = np.array([m.sigma**-2 for m in read])
        counts = np.average([m.counts for m in read], axis=0, weights=weights)
        first = cls(edges, read[0].counts.astype(np.float64), read[0].sigma, ())
        return cls(edges, counts, float(weights.sum() ** -0.5), first._grouped())

    def _grouped(self) -> tuple[int, ...]:
        """Edges of groups with about as many gaps each; those without room for another have fewer."""
        running = np.append(0.0, np.cumsum(self.shares[:-1]))
        ends = [int(np.searchsorted(running, running[-1] * i / chosen.GROUPS)) for i in range(1, chosen.GROUPS)]
        inside = sorted({min(max(i, 1), len(self.edges) - 2) for i in ends})
        return (self.edges[0], *(self.edges[i] for i in inside), self.edges[-1])

    @cached_property
    def shares(self) -> FloatArray:
        """The distribution nearest to the counts."""
        rows = max(float(self.counts.sum()), self.sigma * math.sqrt(len(self.counts)))
        return project_capped_simplex(self.counts / rows, total=1.0)

    @cached_property
    def group(self) -> IntArray:
        """Which group each bucket is in; the last one is that of first rows."""
        inside = np.searchsorted(self.groups, self.edges[:-1], side="right") - 1
        return np.append(inside, len(self.groups) - 1)

    @cached_property
    def group_shares(self) -> tuple[float, ...]:
        """Shares of the groups, and last of first rows."""
        return tuple(np.bincount(self.group, self.shares).tolist())

    def codes(self, gaps: IntArray) -> IntArray:
        """Groups of some gaps; a negative one is that of a first row."""
        inside = np.clip(np.searchsorted(self.groups, gaps, side="right") - 1, 0, len(self.groups) - 2)
        return np.where(gaps < 0, len(self.groups) - 1, inside)

    def drawn(self, groups: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw a gap of each of some groups."""
        out = np.zeros(len(groups), dtype=np.int64)
        for g in np.unique(groups):
            inside, here = np.flatnonzero(self.group[:-1] == g), groups == g
            share = np.maximum(self.shares[inside], chosen.NEXT_TO_NOTHING)
            bucket = rng.choice(inside, int(here.sum()), p=share / share.sum())
            edges = np.array(self.edges)
            out[here] = rng.integers(edges[bucket], edges[bucket + 1])
        return out

    def stand_out(self, gaps: IntArray) -> bool:
        """Whether those of a copy are others, beyond what noise and chance make of the same ones."""
        if not len(gaps):
            return False
        buckets = np.clip(np.searchsorted(self.edges, gaps, side="right") - 1, 0, len(self.edges) - 2)
        buckets = np.where(gaps < 0, len(self.edges) - 1, buckets)
        theirs = np.bincount(buckets, minlength=len(self.counts)) / len(gaps)
        rows, cells = max(float(self.counts.sum()), 1.0), len(self.counts)
        noise = self.sigma**2 * cells + rows * (1 + rows / len(gaps))
        return bool(np.square(self.counts - theirs * rows).sum() > noise * (1 + RARE * math.sqrt(2 / cells)))
