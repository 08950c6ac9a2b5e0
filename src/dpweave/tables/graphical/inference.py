"""Sum-product on a junction tree: from log-potentials to every clique's marginal, and from those to any other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpweave.privacy.window import FloatArray

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from dpweave.tables.graphical.tree import JunctionTree, Variables


class Placement:
    """How an array over ``variables`` lies in a clique: ``spread`` broadcasts it, ``gather`` sums a clique down to it."""

    def __init__(self, variables: Variables, clique: Variables, sizes: Sequence[int]) -> None:
        inside = [v for v in clique if v in variables]
        self.order = tuple(variables.index(v) for v in inside)
        self.inverse = tuple(inside.index(v) for v in variables)
        self.shape = tuple(sizes[v] for v in variables)
        self.spread_shape = tuple(sizes[v] if v in variables else 1 for v in clique)
        self.summed = tuple(axis for axis, v in enumerate(clique) if v not in variables)
        self.sorted = self.order == tuple(range(len(variables)))

    def spread(self, array: FloatArray) -> FloatArray:
        """View of ``array`` that broadcasts against the clique."""
        return (array if self.sorted else array.transpose(self.order)).reshape(self.spread_shape)

    def gather(self, clique: FloatArray) -> FloatArray:
        """Sum of ``clique`` over the variables that are not ours, axes in our order."""
        summed = np.add.reduce(clique, axis=self.summed) if self.summed else clique
        return summed if self.sorted else summed.transpose(self.inverse)


class Engine:
    """Work plan for sum-product on one junction tree."""

    def __init__(self, tree: JunctionTree) -> None:
        self.tree = tree
        sizes = tree.sizes
        self.shapes = [tuple(sizes[v] for v in clique) for clique in tree.cliques]
        self.flat = [
            (math.prod(sizes[v] for v in sep), math.prod(sizes[v] for v in clique[len(sep) :]))
            for sep, clique in zip(tree.separators, tree.cliques, strict=True)
        ]
        self.up = [
            Placement(sep, tree.cliques[parent], sizes) if parent >= 0 else None
            for sep, parent in zip(tree.separators, tree.parents, strict=True)
        ]

    def calibrate(self, potentials: Sequence[FloatArray]) -> Calibrated:
        r"""Marginals of :math:`p(x) \propto \exp(\sum_c \theta_c(x_c))`.

        Upwards, in log space, each clique is split into a message to its parent and the conditional law of its own
        variables given the separator; downwards conditionals are multiplied by the separator's law. One ``exp`` per
        cell. ``potentials`` are overwritten. A potential of minus infinity is an impossible cell.
        """
        conditionals: list[FloatArray] = [_NONE] * len(potentials)
        for c in range(len(potentials) - 1, -1, -1):
            belief = potentials[c].reshape(self.flat[c])
            top = np.maximum.reduce(belief, axis=1, keepdims=True)
            np.copyto(top, 0.0, where=np.isneginf(top))
            belief = np.subtract(belief, top, out=belief)
            np.exp(belief, out=belief)
            total = np.add.reduce(belief, axis=1, keepdims=True)
            placement = self.up[c]
            if placement is not None:
                with np.errstate(divide="ignore"):
                    message = np.log(total) + top
                parent = potentials[self.tree.parents[c]]
                parent += placement.spread(message.reshape(placement.shape))
            np.copyto(total, 1.0, where=total == 0)
            belief /= total
            conditionals[c] = belief
        marginals: list[FloatArray] = []
        for c, conditional in enumerate(conditionals):
            placement = self.up[c]
            if placement is None:
                marginals.append(conditional.reshape(self.shapes[c]))
            else:
                separator = placement.gather(marginals[self.tree.parents[c]])
                marginals.append((conditional * separator.reshape(-1, 1)).reshape(self.shapes[c]))
        return Calibrated(self, tuple(conditionals), tuple(marginals))


_NONE: FloatArray = np.zeros(0)


@dataclass(frozen=True)
class Calibrated:
    """A distribution: per clique its marginal, and the conditional law given its separator (two axes)."""

    engine: Engine
    conditionals: tuple[FloatArray, ...]
    marginals: tuple[FloatArray, ...]

    @cached_property
    def _neighbours(self) -> tuple[tuple[int, ...], ...]:
        lists: list[list[int]] = [[] for _ in self.marginals]
        for child, parent in enumerate(self.engine.tree.parents):
            if parent >= 0:
                lists[child].append(parent)
                lists[parent].append(child)
        return tuple(map(tuple, lists))

    def marginal(self, variables: Variables) -> FloatArray:
        """Probabilities over ``variables``: one clique's where they share one, else joined along the tree."""
        tree = self.engine.tree
        wanted = set(variables)
        if not variables:
            return np.ones(())
        if any(wanted <= set(clique) for clique in tree.cliques):
            host = tree.host(wanted)
            return Placement(variables, tree.cliques[host], tree.sizes).gather(self.marginals[host])
        return self._joined(variables)

    def _joined(self, variables: Variables) -> FloatArray:
        """Variable elimination over the smallest subtree that covers ``variables``, leaves first."""
        tree = self.engine.tree
        wanted = set(variables)
        keep = set(range(len(tree.cliques)))
        degree = {c: len(self._neighbours[c]) for c in keep}
        stack = [c for c in keep if degree[c] <= 1]
        while stack:  # prune leaves that add no wanted variable beyond what their one neighbour has
            leaf = stack.pop()
            if leaf not in keep:
                continue
            around = [c for c in self._neighbours[leaf] if c in keep]
            rest: set[int] = set().union(*(tree.cliques[c] for c in keep if c != leaf)) if len(keep) > 1 else set()
            if len(around) <= 1 and wanted & set(tree.cliques[leaf]) <= rest:
                keep.discard(leaf)
                stack.extend(around)
        operands: list[object] = []
        for c in sorted(keep):  # parents first: the top of each kept component gives its marginal, others conditionals
            clique = tree.cliques[c]
            array = self.marginals[c]
            if tree.parents[c] in keep:
                array = self.conditionals[c].reshape(self.engine.shapes[c])
            operands += [array, list(clique)]
        used = sorted({v for c in keep for v in tree.cliques[c]})
        rename = {v: i for i, v in enumerate(used)}
        operands = [[rename[v] for v in x] if isinstance(x, list) else x for x in operands]
        result: FloatArray = np.einsum(*operands, [rename[v] for v in variables], optimize="greedy")
        return result

    def singles(self) -> list[FloatArray]:
        """Every one-way marginal."""
        return [self.marginal((v,)) for v in range(len(self.engine.tree.sizes))]

    def tuples(self, order: int, wanted: Container[Variables]) -> dict[Variables, FloatArray]:
        """The marginals over increasing variables of length 1, 2 and up to ``order`` (at most 3) that are ``wanted``.

        From each variable the tree is walked once for the pairs, and once more, with the first variable as a batch
        axis, for the triples: some microseconds per marginal, where eliminating variables for each takes hundreds.
        """
        tree = self.engine.tree
        found: dict[Variables, FloatArray] = {(v,): p for v, p in enumerate(self.singles()) if (v,) in wanted}
        top = [m[np.newaxis] for m in self.marginals]
        links = self._links(top)
        for a in range(len(tree.sizes) if order > 1 else 0):
            joints = self._walk(a, top, links)
            self._collect(joints, (a,), wanted, found)
            if order < 3 or a + 2 >= len(tree.sizes):
                continue
            batch = [joint[0] for joint in joints]
            conditioned = self._links(batch)
            for b in range(a + 1, len(tree.sizes) - 1):
                self._collect(self._walk(b, batch, conditioned), (a, b), wanted, found)
        return found

    @cached_property
    def _home(self) -> dict[int, int]:
        home: dict[int, int] = {}
        for c, clique in enumerate(self.engine.tree.cliques):
            for v in clique:
                home.setdefault(v, c)
        return home

    @cached_property
    def _steps(self) -> dict[tuple[int, int], tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
        """Per direction from clique to clique: axes to sum there, axes to sum here, shape of the separator here."""
        tree = self.engine.tree
        steps = {}
        for child, parent in enumerate(tree.parents):
            if parent < 0:
                continue
            separator = set(tree.separators[child])
            for here, there in ((child, parent), (parent, child)):
                away = tuple(i for i, v in enumerate(tree.cliques[here]) if v not in separator)
                own = tuple(i for i, v in enumerate(tree.cliques[there]) if v not in separator)
                spread = tuple(tree.sizes[v] if v in separator else 1 for v in tree.cliques[there])
                steps[here, there] = (away, own, spread)
        return steps

    def _links(self, marginals: Sequence[FloatArray]) -> dict[tuple[int, int], FloatArray]:
        """Law of each clique given the separator towards a neighbour, batch axis first."""
        links = {}
        for (here, there), (_, own, _) in self._steps.items():
            joint = marginals[there]
            separator = np.add.reduce(joint, axis=tuple(i + 1 for i in own), keepdims=True)
            links[here, there] = np.divide(joint, separator, out=np.zeros_like(joint), where=separator > 0)
        return links

    def _walk(
        self, a: int, marginals: Sequence[FloatArray], links: dict[tuple[int, int], FloatArray]
    ) -> list[FloatArray]:
        """Joint law of (batch, variable ``a``, clique) for every clique."""
        size = self.engine.tree.sizes[a]
        start = self._home[a]
        axis = self.engine.tree.cliques[start].index(a)
        diagonal = np.zeros((size,) + tuple(size if i == axis else 1 for i in range(marginals[start].ndim - 1)))
        diagonal[(np.arange(size), *(np.arange(size) if i == axis else 0 for i in range(marginals[start].ndim - 1)))] = 1
        joints: list[FloatArray | None] = [None] * len(marginals)
        joints[start] = marginals[start][:, np.newaxis] * diagonal
        stack = [start]
        while stack:
            here = stack.pop()
            joint = joints[here]
            assert joint is not None
            for there in self._neighbours[here]:
                if joints[there] is None:
                    away, _, spread = self._steps[here, there]
                    separator = np.add.reduce(joint, axis=tuple(i + 2 for i in away))
                    joints[there] = separator.reshape(*separator.shape[:2], *spread) * links[here, there][:, np.newaxis]
                    stack.append(there)
        law = np.add.reduce(joints[start], axis=tuple(range(2, joints[start].ndim)))
        total = law.sum(axis=1)
        for c, joint in enumerate(joints):
            if joint is None:  # another component: independent of a, given the batch variable where that lies there
                weight = np.divide(law, total[:, np.newaxis], out=np.zeros_like(law), where=total[:, np.newaxis] > 0)
                joints[c] = weight.reshape(*weight.shape, *([1] * (marginals[c].ndim - 1))) * marginals[c][:, np.newaxis]
        return joints

    def _collect(
        self,
        joints: Sequence[FloatArray],
        prefix: Variables,
        wanted: Container[Variables],
        found: dict[Variables, FloatArray],
    ) -> None:
        for v in range(prefix[-1] + 1, len(self.engine.tree.sizes)):
            key = (*prefix, v)
            if key in wanted:
                c = self._home[v]
                axis = self.engine.tree.cliques[c].index(v) + 2
                joint = joints[c]
                marginal = np.add.reduce(joint, axis=tuple(i for i in range(2, joint.ndim) if i != axis))
                found[key] = marginal if len(prefix) == 2 else marginal[0]
