"""What a fit of links found: log-odds by sets of columns, as a value that is stored with the model."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.links.row_types import Layout, LinkOperator, RowTypes
from dpweave.measure.cross_workloads import Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class LinkFit:
    """θ per component: log-odds of links against independent wiring. Applies to any rows with these columns.

    ``slack`` holds what the counts say of the side whose margin is given: how far the view's links per value
    differ from those of the synthetic rows. It keeps their difference out of θ and leaves wiring alone.
    """

    shape: Mapping[str, int]
    theta: Mapping[Workload, FloatArray]
    iterations: int
    converged: bool
    slack: Mapping[Workload, FloatArray] = field(default_factory=dict)
    joint: Mapping[Workload, tuple[FloatArray, float]] = field(default_factory=dict)
    """How the fit spreads links over the cells of each measured clique, and how precisely that was measured."""

    @property
    def left(self) -> tuple[str, ...]:
        """Left columns that matter."""
        return tuple(dict.fromkeys(c for w in self.theta for c in w.left))

    @property
    def right(self) -> tuple[str, ...]:
        """Right columns that matter."""
        return tuple(dict.fromkeys(c for w in self.theta for c in w.right))

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return it as plain values and arrays; see :meth:`restore`."""
        joint = {w: table for w, (table, _) in self.joint.items()}
        state: dict[str, Any] = {"shape": dict(self.shape), "iterations": self.iterations, "converged": self.converged}
        state["precision"] = [float(precision) for _, precision in self.joint.values()]
        arrays: dict[str, Any] = {}
        for name, tables in (("theta", self.theta), ("slack", self.slack), ("joint", joint)):
            state[name] = [[list(w.left), list(w.right)] for w in tables]
            arrays |= {f"{name}/{i}": table for i, table in enumerate(tables.values())}
        return state, arrays

    @classmethod
    def restore(cls, state: Mapping[str, Any], arrays: Mapping[str, Any]) -> LinkFit:
        """Make a fit again from its :meth:`state`."""
        theta, slack, joint = (
            {Workload(tuple(a), tuple(b)): arrays[f"{name}/{i}"] for i, (a, b) in enumerate(state[name])}
            for name in ("theta", "slack", "joint")
        )
        known = {w: (table, p) for (w, table), p in zip(joint.items(), state["precision"], strict=True)}
        return cls(state["shape"], theta, state["iterations"], state["converged"], slack, known)

    def weights(self, left: RowTypes, right: RowTypes) -> FloatArray:
        """How much likelier than by chance a pair of types is linked, up to a factor."""
        odds = self.log_odds(left, right)
        return np.exp(odds - odds.max()) if odds.size else odds

    def log_odds(self, left: RowTypes, right: RowTypes) -> FloatArray:
        """The logarithm of that, up to a constant which is the same for all types."""
        if not self.theta:
            return np.zeros((left.count, right.count))
        return LinkOperator(left, right, self._layout).laid_out(self._stacked)

    def log_odds_of_pairs(
        self, left: Mapping[str, IntArray], right: Mapping[str, IntArray], i: IntArray, j: IntArray
    ) -> FloatArray:
        """The same for some left rows ``i`` and right rows ``j``, pair by pair."""
        out = np.zeros(len(i))
        for t, table in self.theta.items():
            out += table[(*(left[c][i] for c in t.left), *(right[c][j] for c in t.right))]
        return out

    @cached_property
    def _layout(self) -> Layout:
        return Layout.of(tuple(self.theta), self.shape, self.shape)

    @cached_property
    def _stacked(self) -> FloatArray:
        """θ in the matrix of answers, which is the same for all rows."""
        return self._layout.stack(self.theta)
