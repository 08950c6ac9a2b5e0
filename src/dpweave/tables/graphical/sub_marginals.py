"""From one clique to many of its sub-marginals and back, sharing partial sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpweave.tables.graphical.inference import Placement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpweave.arrays import FloatArray
    from dpweave.tables.graphical.junction_tree import Variables

DIRECT_CELLS = 2048
"""Arrays up to this size are summed to each target at once; above, axis by axis with partial sums shared."""


@dataclass(frozen=True)
class _Node:
    """A partial sum: which node it comes from, the axis that is summed out, and the targets read off it."""

    parent: int
    axis: int
    shape: tuple[int, ...]
    targets: tuple[tuple[int, Placement], ...]


class Projection:
    """Sums of a clique's array over each of ``targets``, and the adjoint: arrays over
    the targets added up to the clique.

    A clique of six variables with twenty measured triples inside is read six times instead of twenty: variables are
    summed out one at a time, always the one that most remaining targets can do without.
    """

    def __init__(self, clique: Variables, targets: Sequence[Variables], sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._nodes: list[_Node] = []
        self._targets = targets
        self._build(clique, list(range(len(targets))), parent=-1, axis=-1)

    def _build(self, variables: Variables, wanted: list[int], *, parent: int, axis: int) -> None:
        shape = tuple(self._sizes[v] for v in variables)
        here = len(self._nodes)
        small = math.prod(shape) <= DIRECT_CELLS
        direct = [i for i in wanted if small or len(self._targets[i]) == len(variables)]
        placed = tuple((i, Placement(self._targets[i], variables, self._sizes)) for i in direct)
        self._nodes.append(_Node(parent, axis, shape, placed))
        left = [i for i in wanted if i not in set(direct)]
        while left:
            spared = {v: sum(v not in self._targets[i] for i in left) for v in variables}
            gone = max(variables, key=lambda v: (spared[v], self._sizes[v]))
            without = [i for i in left if gone not in self._targets[i]]
            position = variables.index(gone)
            rest = variables[:position] + variables[position + 1 :]
            self._build(rest, without, parent=here, axis=position)
            left = [i for i in left if gone in self._targets[i]]

    def gather(self, clique: FloatArray) -> list[FloatArray]:
        """One array per target."""
        sums: list[FloatArray] = []
        found: list[FloatArray] = [clique] * len(self._targets)
        for node in self._nodes:
            array = clique if node.parent < 0 else np.add.reduce(sums[node.parent], axis=node.axis)
            sums.append(array)
            for i, placement in node.targets:
                found[i] = placement.gather(array)
        return found

    def spread(self, base: FloatArray, arrays: Sequence[FloatArray]) -> FloatArray:
        """``base`` plus every array of a target, broadcast; a new array."""
        sums = [base.copy(), *(np.zeros(node.shape) for node in self._nodes[1:])]
        for node, total in zip(reversed(self._nodes), reversed(sums), strict=True):
            for i, placement in node.targets:
                np.add(total, placement.spread(arrays[i]), out=total)
            if node.parent >= 0:
                above = sums[node.parent]
                np.add(above, np.expand_dims(total, node.axis), out=above)
        return sums[0]
